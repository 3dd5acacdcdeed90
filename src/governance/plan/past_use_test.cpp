// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/past_use.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/rng.h"
#include "governance/plan/books_lab.h"
#include "governance/plan/views.h"
#include "governance/replay/decision_replay.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using kube::ObjectKey;
using namespace std::chrono_literals;
using testing::DoubleNear;
using testing::HasSubstr;

const Instant start = *parse_time("2026-11-23T12:00:00Z");
const ObjectKey a{"lab", "a"}, b{"lab", "b"};

double gpus(const PastUse& past, const ObjectKey& key, Instant now) {
  const PastAmounts all = past.at(key, now);
  return all.contains("gpu") ? all.at("gpu") : 0;
}

TEST(PastUse, HalvesAndGrows) {
  PastUse past;
  past.set_half_life(3600s, start);
  past.use(a, {{"gpu", 8}}, start, start);
  EXPECT_DOUBLE_EQ(gpus(past, a, start), 0);
  EXPECT_DOUBLE_EQ(gpus(past, a, start + 1h), 4);
  EXPECT_DOUBLE_EQ(gpus(past, a, start + 2h), 6);
  past.use(a, {{"gpu", -8}}, start, start + 2h);
  EXPECT_DOUBLE_EQ(gpus(past, a, start + 3h), 3);
  EXPECT_DOUBLE_EQ(gpus(past, a, start + 2h - 5min), 6) << "the clock has jumped back";
  EXPECT_DOUBLE_EQ(gpus(past, b, start + 3h), 0);
  past.forget(a);
  EXPECT_DOUBLE_EQ(gpus(past, a, start + 3h), 0);
}

// However finely it is asked and told, the same comes out.
TEST(PastUse, DoesNotDependOnWhenItIsLookedAt) {
  Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    PastUse coarse, fine;
    for (PastUse* past : {&coarse, &fine}) past->set_half_life(1800s, start);
    Instant now = start;
    double held = 0;
    for (int event = 0; event < 20; ++event) {
      for (int look = 0; look < 5; ++look) {
        now += std::chrono::seconds(rng.below(400));
        fine.use(a, {{"gpu", 0}}, now, now);
      }
      const double more = rng.below(2) == 0 ? static_cast<double>(rng.below(8)) : -std::min(held, static_cast<double>(rng.below(8)));
      held += more;
      for (PastUse* past : {&coarse, &fine}) past->use(a, {{"gpu", more}}, now, now);
      ASSERT_NEAR(gpus(coarse, a, now), gpus(fine, a, now), 1e-9);
    }
  }
}

TEST(PastUse, SurvivesARestart) {
  PastUse before;
  before.set_half_life(3600s, start);
  before.restore(a, Json(), start - 3h);
  before.use(a, {{"gpu", 8}, {"cpu", 2'500}}, start - 2h, start - 2h);
  Json status = Json::object({{"fairSharing", Json::object({{"admissionFairSharingStatus", before.status(a, start)}})}});
  EXPECT_EQ(kube::print_json(status["fairSharing"]["admissionFairSharingStatus"]), R"({"consumedResources":{"cpu":"1875m","gpu":"6000m"},"lastUpdate":"2026-11-23T12:00:00Z"})");
  for (const bool object_first : {true, false}) {
    PastUse after;
    after.set_half_life(3600s, start + 1h);
    if (object_first) after.restore(a, status, start + 1h);
    after.use(a, {{"gpu", 8}, {"cpu", 2'500}}, start - 2h, start + 1h);
    if (!object_first) after.restore(a, status, start + 1h);
    EXPECT_NEAR(gpus(after, a, start + 1h), gpus(before, a, start + 1h), 1e-6) << object_first;
    after.restore(a, Json::object(), start + 1h);
    EXPECT_NEAR(gpus(after, a, start + 2h), gpus(before, a, start + 2h), 1e-6) << "an echo of its own status changes nothing";
  }
}

TEST(PastUse, OddStatusesCountNothing) {
  for (const char* odd : {"{fairSharing: {admissionFairSharingStatus: {consumedResources: {gpu: 8}, lastUpdate: '2027-01-01T00:00:00Z'}}}", "{fairSharing: {admissionFairSharingStatus: {consumedResources: {gpu: -8}, lastUpdate: '2026-11-23T11:00:00Z'}}}",
                          "{fairSharing: {admissionFairSharingStatus: {consumedResources: {gpu: soon}, lastUpdate: '2026-11-23T11:00:00Z'}}}", "{fairSharing: {admissionFairSharingStatus: {consumedResources: [8], lastUpdate: yesterday}}}", "{fairSharing: 3}", "{}"}) {
    PastUse past;
    past.set_half_life(3600s, start);
    past.restore(a, yaml(odd), start);
    EXPECT_EQ(gpus(past, a, start + 1h), 0) << odd;
    past.use(a, {{"gpu", 2}}, start, start);
    EXPECT_NEAR(gpus(past, a, start + 1h), 1, 1e-9) << odd;
  }
  PastUse large;
  large.set_half_life(3600s, start);
  large.restore(a, yaml("{fairSharing: {admissionFairSharingStatus: {consumedResources: {gpu: 1e30}, lastUpdate: '2026-11-23T12:00:00Z'}}}"), start);
  EXPECT_TRUE(std::isfinite(gpus(large, a, start)));
  PastUse off;
  off.use(a, {{"gpu", 8}}, start, start);
  EXPECT_EQ(gpus(off, a, start + 100h), 0) << "nobody asked for it";
  off.set_half_life(3600s, start + 100h);
  EXPECT_NEAR(gpus(off, a, start + 101h), 4, 1e-9) << "from then on";
}

std::vector<PastNode> teams(std::vector<std::pair<double, double>> weight_and_use) {
  std::vector<PastNode> out{{.name = "all", .parent = "", .leaf = false, .weight = 1, .used = {}, .nominal = {}}};
  for (std::size_t i = 0; i < weight_and_use.size(); ++i)
    out.push_back({.name = std::string(1, static_cast<char>('a' + i)), .parent = "all", .leaf = true, .weight = weight_and_use[i].first, .used = {{"gpu", weight_and_use[i].second}}, .nominal = {{"gpu", 10}}});
  return out;
}

TEST(PastUse, WhoUsedMoreThanItsPartWeighsLess) {
  const auto even = weights_by_past(teams({{1, 5}, {1, 5}}), 3);
  EXPECT_DOUBLE_EQ(even[1].factor, 1);
  const auto two = weights_by_past(teams({{1, 10}, {1, 0}}), 3);
  EXPECT_DOUBLE_EQ(two[1].factor, 4.0 / 7);
  EXPECT_DOUBLE_EQ(two[2].factor, 4);
  EXPECT_DOUBLE_EQ(two[1].used, 1);
  EXPECT_DOUBLE_EQ(two[1].due, 0.5);
  const auto by_weight = weights_by_past(teams({{3, 6}, {1, 2}}), 3);
  EXPECT_DOUBLE_EQ(by_weight[1].factor, 1) << "three quarters are its part";
  for (const auto& one : weights_by_past(teams({{1, 0}, {2, 0}}), 3)) EXPECT_DOUBLE_EQ(one.factor, 1);
  for (const auto& one : weights_by_past(teams({{1, 9}, {2, 0}}), 0)) EXPECT_DOUBLE_EQ(one.factor, 1);
  EXPECT_DOUBLE_EQ(weights_by_past(teams({{0, 9}, {1, 1}}), 3)[1].factor, 1) << "0 stays 0";
  // Two of ten that used all of it, one more than the other: who used more weighs less.
  std::vector<std::pair<double, double>> ten(10, {1, 0});
  ten[0].second = 70, ten[1].second = 30;
  const auto many = weights_by_past(teams(ten), 3);
  EXPECT_LT(many[1].factor, 0.5 * many[2].factor);
  EXPECT_LT(many[2].factor, many[3].factor);
}

TEST(PastUse, EachLevelIsComparedByItself) {
  std::vector<PastNode> nodes{{.name = "left", .parent = "root", .leaf = false, .weight = 1, .used = {}, .nominal = {}}, {.name = "right", .parent = "root", .leaf = false, .weight = 1, .used = {}, .nominal = {}}};
  const auto leaf = [&](const char* name, const char* parent, double used) { nodes.push_back({.name = name, .parent = parent, .leaf = true, .weight = 1, .used = {{"gpu", used}, {"cpu", used}}, .nominal = {{"gpu", 4}}}); };
  leaf("l1", "left", 6), leaf("l2", "left", 0), leaf("r1", "right", 1), leaf("r2", "right", 1), leaf("alone", "", 9);
  const auto found = weights_by_past(nodes, 1);
  EXPECT_DOUBLE_EQ(found[0].used, 0.75);
  EXPECT_DOUBLE_EQ(found[0].factor, 0.8);
  EXPECT_DOUBLE_EQ(found[1].factor, 2 / 1.5);
  EXPECT_DOUBLE_EQ(found[2].factor, 2.0 / 3);
  EXPECT_DOUBLE_EQ(found[3].factor, 2);
  EXPECT_DOUBLE_EQ(found[4].factor, 1);
  EXPECT_DOUBLE_EQ(found[6].factor, 1);
  // A cycle has no root.
  nodes[0].parent = "right", nodes[1].parent = "left";
  for (const auto& one : weights_by_past(nodes, 1)) EXPECT_DOUBLE_EQ(one.factor, 1);
}

class HistoryBooks : public BooksOf {
 protected:
  int stopped_ = 0;
  HistoryBooks() {
    books_.set_time(now_);
    books_.set_time_rules({.reservation = {}, .min_run = {}, .least_lost_work = false, .past = PastRules{.half_life = 3600s}});
    books_.set_cohort("pool", yaml("{metadata: {name: pool}, spec: {}}"));
    const std::string shared = "{cohortName: pool, namespaceSelector: {}, preemption: {reclaimWithinCohort: Any}, resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: ";
    put_queue("a", shared + "0}]}]}]}"), put_queue("b", shared + "0}]}]}]}"), put_queue("idle", shared + "8}]}]}], fairSharing: {weight: '0'}}");
  }
  void pass(std::chrono::seconds time) {
    now_ += time;
    if (books_.tend(now_)) books_.decide();
    all_stop();
  }
  // Who was told to stop has.
  void all_stop() {
    for (int round = 0; round < 50; ++round) {
      settle();
      std::vector<std::string> stopping;
      for (const auto& [key, object] : objects_)
        if (books_.place(key) == Books::Place::Stopping) stopping.push_back(key.name);
      if (stopping.empty()) return;
      for (const std::string& name : stopping) stopped(name), ++stopped_;
    }
    ADD_FAILURE() << "there is no peace";
  }
  int running(const std::string& queue) const {
    int out = 0;
    for (const auto& [key, object] : objects_)
      if (object["spec"]["queueName"].string() == queue && books_.place(key) == Books::Place::Running) ++out;
    return out;
  }
  void finish(const std::string& queue) {
    for (auto& [key, object] : objects_) {
      if (object["spec"]["queueName"].string() != queue || books_.place(key) != Books::Place::Running) continue;
      Json done = object;
      tell_finished(done, true, "done", now_);
      put(done);
    }
    all_stop();
  }
};

TEST_F(HistoryBooks, WhoHasUsedMoreGetsLessOfWhatIsIdle) {
  settle();
  for (int i = 0; i < 8; ++i) submit("a" + std::to_string(i), "a", "1");
  settle();
  EXPECT_EQ(running("a"), 8);
  for (int i = 0; i < 60; ++i) pass(2min);
  finish("a");
  for (int i = 0; i < 8; ++i) submit("c" + std::to_string(i), "a", "1"), submit("d" + std::to_string(i), "b", "1");
  settle();
  // 4 : 4/7 is 7 : 1.
  EXPECT_EQ(running("b"), 7);
  EXPECT_EQ(running("a"), 1);
  const Json view = quota_view(books_);
  const Json& queue = view["tree"].items().at(0)["children"].items().at(0);
  EXPECT_EQ(queue["name"].string(), "a");
  EXPECT_EQ(queue["usedLately"].number(), 1);
  EXPECT_NEAR(queue["due"].number(), 0.5, 0.001);
  EXPECT_EQ(queue["writtenWeight"].number(), 1);
  EXPECT_NEAR(queue["weight"].number(), 0.571, 0.001);
  const auto status = books_.local_queue_status({"lab", "a"}, now_);
  ASSERT_TRUE(status);
  EXPECT_THAT(kube::print_json((*status)["status"]["fairSharing"]), HasSubstr(R"({"weightedShare":0,"admissionFairSharingStatus":{"consumedResources":{"cpu":"6000m"},"lastUpdate":")"));
  // Without the rule as it was.
  books_.set_time_rules({});
  settle();
  const Json plain = quota_view(books_);
  EXPECT_EQ(plain["tree"].items().at(0)["children"].items().at(0)["weight"].number(), 1);
  EXPECT_FALSE(plain["tree"].items().at(0)["children"].items().at(0).has("usedLately"));
}

// Of one that runs other fields change, too, and pods of it end: what it has used so far was counted.
TEST_F(HistoryBooks, NothingCountsTwice) {
  settle();
  submit("a0", "a", "4");
  settle();
  pass(3600s);
  const auto used = [&] { return (*books_.local_queue_status({"lab", "a"}, now_))["status"]["fairSharing"]["admissionFairSharingStatus"]["consumedResources"]["cpu"].string(); };
  EXPECT_EQ(used(), "2000m");
  Json object = at("a0");
  object.child("status").set("reclaimablePods", Json::array({Json::object({{"name", "main"}, {"count", 1}})}));
  put(object);
  settle();
  pass(60s);
  EXPECT_EQ(used(), "1977m") << "it fades, and nothing is added";
  object = at("a0");
  object.child("status").erase("reclaimablePods");
  put(object);
  settle();
  pass(60s);
  EXPECT_EQ(used(), "2000m") << "a minute more of 4 cores";
}

// Once a second somebody looks; statuses are for the weights' own rhythm, and for those that used something.
TEST_F(HistoryBooks, IsWrittenDownNowAndThen) {
  settle();
  submit("a0", "a", "4");
  settle();
  pass(3600s);
  (void)books_.take_changed();
  for (int second = 0; second < 30; ++second) {
    now_ += 1s;
    books_.set_time(now_);
    books_.set_time_rules({.reservation = {}, .min_run = {}, .least_lost_work = false, .past = PastRules{.half_life = 3600s}});
    if (books_.tend(now_)) books_.decide();
    EXPECT_TRUE(books_.take_changed().local_queues.empty()) << second;
  }
  pass(6s);
  EXPECT_TRUE(books_.local_queue_status({"lab", "a"}, now_));
  const auto idle = books_.local_queue_status({"lab", "idle"}, now_);
  ASSERT_TRUE(idle) << "it was never written here";
  EXPECT_TRUE((*idle)["status"]["fairSharing"].is_null());
}

// As weights become even again, quota goes over a job at a time, and nothing goes to and fro.
TEST_F(HistoryBooks, WhatIsDueIsTakenOnce) {
  settle();
  for (int i = 0; i < 16; ++i) submit("a" + std::to_string(i), "a", "1");
  settle();
  for (int i = 0; i < 60; ++i) pass(2min);
  for (int i = 0; i < 16; ++i) submit("b" + std::to_string(i), "b", "1");
  all_stop();
  EXPECT_EQ(running("b"), 7);
  const int at_first = stopped_;
  for (int i = 0; i < 300; ++i) pass(2min);
  EXPECT_EQ(running("b"), 4);
  EXPECT_LE(stopped_ - at_first, 8);
}

// Two local queues of one ClusterQueue that orders them by what they used: who has used less goes first, whatever the priority; a burst of one does not slip in; and it is decided again as it was.
TEST_F(HistoryBooks, LocalQueuesOfAQueueGoByWhatTheyUsed) {
  const auto local = [&](const char* name, const char* weight) { books_.set_local_queue({"lab", name}, yaml(fmt::format("{{metadata: {{name: {}, namespace: lab}}, spec: {{clusterQueue: mixed, fairSharing: {{weight: '{}'}}}}}}", name, weight))); };
  put_queue("mixed", "{namespaceSelector: {}, admissionScope: {admissionMode: UsageBasedAdmissionFairSharing}, resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: 4}]}]}]}");
  local("ada", "1"), local("bob", "1"), local("eve", "0");
  books_.record(now_);
  books_.fill_anew();
  settle();
  EXPECT_EQ(books_.queue_view("mixed")->message, "Can admit new workloads");
  for (int i = 0; i < 4; ++i) submit(fmt::format("ada{}", i), "ada", "1");
  settle();
  for (int i = 0; i < 30; ++i) pass(2min);
  finish("ada");
  for (int i = 0; i < 4; ++i) submit(fmt::format("more{}", i), "ada", "1", 9), submit(fmt::format("bob{}", i), "bob", "1"), submit(fmt::format("eve{}", i), "eve", "1", 10);
  settle();
  EXPECT_EQ(running("bob"), 4);
  finish("bob");
  EXPECT_EQ(running("ada"), 4) << "bob has no more, and eve has no weight";
  finish("ada");
  EXPECT_EQ(running("eve"), 4);
  finish("eve");
  // Both had their turn: they take it in turns.
  local("new1", "1"), local("new2", "1");
  for (int i = 0; i < 4; ++i) submit(fmt::format("x{}", i), "new1", "1");
  for (int i = 0; i < 4; ++i) submit(fmt::format("y{}", i), "new2", "1");
  settle();
  EXPECT_EQ(running("new1"), 2);
  EXPECT_EQ(running("new2"), 2);
  for (const CaseOutcome& part : replay_decisions(decision_log_header(now_) + books_.take_record())) EXPECT_EQ(part.kind, CaseOutcome::Kind::Passed) << part.detail;
  books_.set_time_rules({});
  settle();
  EXPECT_THAT(books_.queue_view("mixed")->message, HasSubstr("spec.admissionScope has no effect without fairShareHistory"));
  EXPECT_EQ(running("new1"), 2) << "what runs goes on";
}

// Whatever happened before, who asks for all of it for long ends with its part of what was used.
TEST_F(HistoryBooks, WhatWasUsedBecomesEven) {
  settle();
  for (int i = 0; i < 8; ++i) submit("first" + std::to_string(i), "a", "1");
  settle();
  for (int i = 0; i < 60; ++i) pass(2min);
  int more = 0;
  double used = 0;
  for (int round = 0; round < 200; ++round) {
    finish(round % 2 == 0 ? "a" : "b");
    for (int i = 0; i < 8; ++i, ++more) submit("a" + std::to_string(more), "a", "1"), submit("b" + std::to_string(more), "b", "1");
    all_stop();
    EXPECT_EQ(running("a") + running("b"), 8);
    pass(3min);
    used = books_.past_weight("a", true)->used;
  }
  EXPECT_NEAR(used, 0.5, 0.1);
}

}  // namespace
}  // namespace fairlead::governance
