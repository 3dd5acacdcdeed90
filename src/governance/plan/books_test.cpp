// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/books_lab.h"
#include "governance/replay/decision_replay.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using kube::ObjectKey;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// A has 6 and uses 2, B has 5 and uses 4, B asks for 4 more: three are borrowed from A.
TEST_F(BooksOf, TheWorkedExampleOfTwoTeams) {
  queue("a", "6"), queue("b", "5", "", ", borrowingLimit: 3");
  submit("a1", "a", "2"), submit("b1", "b", "4"), submit("b2", "b", "4");
  settle();
  EXPECT_TRUE(admitted("a1") && admitted("b1") && admitted("b2"));
  EXPECT_EQ(kube::print_json(at("b2")["status"]["admission"]),
            R"({"clusterQueue":"b","podSetAssignments":[{"name":"main","flavors":{"cpu":"default"},"resourceUsage":{"cpu":"4"},"count":1}]})");
  EXPECT_EQ(says("b2", "QuotaReserved"), "True QuotaReserved: Quota reserved in ClusterQueue b");
  const Json status = (*books_.queue_status("b", now_))["status"];
  EXPECT_EQ(kube::print_json(status["flavorsUsage"]), R"([{"name":"default","resources":[{"name":"cpu","total":"8","borrowed":"3"}]}])");
  EXPECT_EQ(status["admittedWorkloads"].integer(), 2);
  EXPECT_EQ(status["fairSharing"]["weightedShare"].integer(), 273) << "3 of 11, rounded up";
  EXPECT_EQ(share("a"), "0");
}

TEST_F(BooksOf, TheWorkedExampleWaitsAtTheDefaultLimit) {
  queue("a", "6"), queue("b", "5", "", ", borrowingLimit: 2500m");
  submit("a1", "a", "2"), submit("b1", "b", "4"), submit("b2", "b", "4");
  settle();
  EXPECT_FALSE(admitted("b2"));
  EXPECT_EQ(says("b2", "QuotaReserved"), "False WaitingForQuota: couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 500m more needed");
  EXPECT_EQ((*books_.queue_status("b", now_))["status"]["pendingWorkloads"].integer(), 1);
  queue("b", "5", "", ", borrowingLimit: 3");  // at least 60 %
  settle();
  EXPECT_TRUE(admitted("b2"));
}

// Eight are left to two who own nothing: by share the one who has borrowed less goes first, else the one who came first.
TEST_F(BooksOf, FairOrFirstComeFirstServedAsThePolicySays) {
  queue("lender", "8"), queue("b", "0"), queue("c", "0");
  for (const bool fair : {true, false, true}) {
    books_.set_fair(fair);
    submit("b1", "b", "4");
    settle();
    ASSERT_TRUE(admitted("b1"));
    submit("b2", "b", "4"), submit("c1", "c", "4");
    settle();
    EXPECT_EQ(admitted("c1"), fair);
    EXPECT_EQ(admitted("b2"), !fair);
    Json told = *books_.queue_status("b", now_);
    EXPECT_EQ(told["status"].has("fairSharing"), fair);
    told.child("status").set("fairSharing", Json::object({{"weightedShare", 7}}));
    books_.set_queue("b", told);
    books_.decide();
    EXPECT_EQ((*books_.queue_status("b", now_))["status"].has("fairSharing"), fair) << "what an earlier policy told is taken away";
    for (const char* name : {"b1", "b2", "c1"}) {
      books_.set_workload({"lab", name}, Json());
      objects_.erase({"lab", name});
    }
    settle();
  }
}

TEST_F(BooksOf, TheLenderTakesItsOwnBackAndWaitsUntilItIsFree) {
  queue("a", "6"), queue("b", "5");
  submit("b1", "b", "5"), submit("b2", "b", "4");
  settle();
  EXPECT_TRUE(admitted("b1") && admitted("b2"));
  notes_.clear();
  submit("a1", "a", "6");
  settle();
  EXPECT_EQ(says("b2", "Evicted").substr(0, 15), "True Preempted:");
  EXPECT_THAT(says("b2", "Preempted"), StartsWith("True InCohortReclamation: Preempted to accommodate a workload (UID: 00000000-0000-0000-0000-000000000003, JobUID: UNKNOWN) due to reclamation within the cohort; preemptor path: /pool/a; preemptee path: /pool/b"));
  EXPECT_TRUE(kube::condition_is_true(at("b2"), "QuotaReserved")) << "its pods run still";
  EXPECT_THAT(says("a1", "QuotaReserved"), StartsWith("False WaitingForPreemptedWorkloads: "));
  EXPECT_THAT(notes_, testing::Contains("b2 Preempted"));
  stopped("b2");
  EXPECT_TRUE(admitted("a1"));
  EXPECT_THAT(says("b2", "QuotaReserved"), StartsWith("False WaitingForQuota: "));
  EXPECT_THAT(says("b2", "Requeued"), StartsWith("True Preempted: "));
  Json done = at("a1");
  tell_finished(done, true, "done", now_);
  put(done);
  settle();
  EXPECT_TRUE(admitted("b2"));
  EXPECT_THAT(says("b2", "Evicted"), StartsWith("False QuotaReserved: Previously: Preempted to"));
}

// Another process, of what was written alone: nothing is decided on quota that is taken, and what was told to stop is not replaced by another victim.
TEST_F(BooksOf, WhatIsNotUsedOfAQueueIsTold) {
  queue("a", "4", ", admissionScope: {admissionMode: UsageBasedAdmissionFairSharing}");
  settle();
  EXPECT_THAT(books_.queue_view("a")->message, HasSubstr("; spec.admissionScope has no effect without fairShareHistory"));
}

TEST_F(BooksOf, ASuccessorCountsWhatIsThereBeforeItDecides) {
  queue("a", "6"), queue("b", "5");
  submit("b1", "b", "5"), submit("b2", "b", "4");
  settle();
  submit("a1", "a", "6");
  settle();
  Books next;
  next.set_space("lab", yaml("{metadata: {name: lab}}"));
  next.set_flavor("default", yaml("{metadata: {name: default}, spec: {}}"));
  for (auto& [key, object] : objects_) next.set_workload(key, object);
  std::swap(books_, next);
  queue("a", "6"), queue("b", "5");
  settle();
  EXPECT_TRUE(admitted("b1"));
  EXPECT_FALSE(admitted("a1")) << "b2 runs still";
  stopped("b2");
  EXPECT_TRUE(admitted("a1") && admitted("b1"));
}

TEST_F(BooksOf, ASuccessorLetsStopWhatWasToldTo) {
  queue("a", "6"), queue("b", "5");
  submit("b1", "b", "5"), submit("b2", "b", "4");
  settle();
  Json told = at("b1");  // another one than it would choose
  tell_evicted(told, "Preempted", "for a1", VictimReason::InCohortReclamation, now_);
  objects_[{"lab", "b1"}] = told;
  Books next;
  next.set_space("lab", yaml("{metadata: {name: lab}}"));
  next.set_flavor("default", yaml("{metadata: {name: default}, spec: {}}"));
  std::swap(books_, next);
  queue("a", "6"), queue("b", "5");
  for (const char* name : {"b1", "b2"}) put(at(name));
  submit("a1", "a", "6");
  settle();
  EXPECT_TRUE(admitted("b2"));
  EXPECT_FALSE(admitted("a1"));
  stopped("b1");
  EXPECT_TRUE(admitted("a1") && admitted("b2"));
}

TEST_F(BooksOf, AnAdmissionThatTheApiDoesNotTakeIsTakenBack) {
  queue("a", "6");
  submit("a1", "a", "6"), submit("a2", "a", "6");
  books_.decide();
  auto write = books_.write_of({"lab", "a1"}, now_);
  ASSERT_TRUE(write && write->admits);
  EXPECT_TRUE(books_.refused({"lab", "a1"}, "admission webhook denied the request"));
  settle();
  EXPECT_TRUE(admitted("a2"));
  EXPECT_EQ(says("a1", "QuotaReserved"), "False PendingEvaluation: The API did not take the admission: admission webhook denied the request");
  books_.again({"lab", "a1"});
  settle();
  EXPECT_THAT(says("a1", "QuotaReserved"), StartsWith("False WaitingForQuota: "));
  EXPECT_EQ(books_.in_use().usage(books_.in_use().leaf("a"), 0), 6000);
}

// Nobody knows whether its admission was written, and somebody else gets its quota: first a write after which it cannot be.
TEST_F(BooksOf, AnAdmissionOfUnknownOutcomeIsClosedBeforeOthersStart) {
  queue("a", "6"), queue("b", "5");
  submit("b1", "b", "8");
  books_.decide();
  auto lost = books_.write_of({"lab", "b1"}, now_);
  ASSERT_TRUE(lost);
  submit("a1", "a", "6");
  books_.decide();
  EXPECT_EQ(books_.in_use().usage(books_.in_use().leaf("b"), 0), 8000);
  auto first = books_.write_of({"lab", "a1"}, now_);
  EXPECT_TRUE(first && !first->admits);
  auto closing = books_.write_of({"lab", "b1"}, now_);
  ASSERT_TRUE(closing);
  EXPECT_FALSE(closing->admits);
  EXPECT_EQ(kube::version_of(closing->object), kube::version_of(lost->object)) << "of the two one alone is taken";
  put(closing->object);
  settle();
  EXPECT_TRUE(admitted("a1"));
  EXPECT_FALSE(admitted("b1"));
}

TEST_F(BooksOf, OlderObjectsChangeNothing) {
  queue("a", "6");
  submit("a1", "a", "6");
  const Json before = at("a1");
  settle();
  books_.set_workload({"lab", "a1"}, before);
  books_.decide();
  EXPECT_FALSE(books_.write_of({"lab", "a1"}, now_)) << "it is admitted, and told so";
  EXPECT_EQ((*books_.queue_status("a", now_))["status"]["reservingWorkloads"].integer(), 1);
  submit("a2", "a", "1");
  settle();
  EXPECT_FALSE(admitted("a2"));
}

// Eight pods are asked for, two will do.
TEST_F(BooksOf, FewerPodsAreAdmittedWhereAllDoNotFit) {
  queue("a", "6");
  submit("a1", "a", "1");
  const auto eight = [&](const std::string& name) {
    submit(name, "a", "1");
    Json object = at(name);
    object.child("spec").set("podSets", yaml("[{name: main, count: 8, minCount: 2, template: {spec: {containers: [{name: c, resources: {requests: {cpu: '1'}}}]}}}]"));
    put(std::move(object));
  };
  eight("some");
  settle();
  EXPECT_EQ(kube::print_json(at("some")["status"]["admission"]), R"({"clusterQueue":"a","podSetAssignments":[{"name":"main","flavors":{"cpu":"default"},"resourceUsage":{"cpu":"5"},"count":5}]})");
  EXPECT_EQ(kube::print_json((*books_.queue_status("a", now_))["status"]["flavorsUsage"]), R"([{"name":"default","resources":[{"name":"cpu","total":"6","borrowed":"0"}]}])");
  eight("none");
  settle();
  EXPECT_EQ(says("none", "QuotaReserved"), "False WaitingForQuota: couldn't assign flavors to pod set main with 2 of 8 pods: insufficient unused quota for cpu in flavor default, 2 more needed");
  // A status of its own, and an engine that is filled anew, change nothing.
  Json same = at("some");
  put(same);
  settle();
  EXPECT_TRUE(admitted("some"));
  books_.fill_anew();
  settle();
  EXPECT_TRUE(admitted("some"));
  EXPECT_EQ(books_.in_use().usage(books_.in_use().leaf("a"), 0), 6000);
  // Three of five are left to do: two make room for those that wait.
  Json ended = at("some");
  ended.child("status").set("reclaimablePods", yaml("[{name: main, count: 5}]"));
  put(std::move(ended));
  settle();
  EXPECT_EQ(at("none")["status"]["admission"]["podSetAssignments"].items().at(0)["count"].integer(), 2) << kube::print_json(at("none")["status"]);
}

TEST_F(BooksOf, FewerPodsThatWerePromisedArePromisedOnce) {
  queue("a", "6"), queue("b", "0");
  submit("b1", "b", "3");
  settle();
  ASSERT_TRUE(admitted("b1"));
  submit("big", "a", "1");
  Json object = at("big");
  object.child("spec").set("podSets", yaml("[{name: main, count: 9, minCount: 2, template: {spec: {containers: [{name: c, resources: {requests: {cpu: '1'}}}]}}}]"));
  put(std::move(object));
  settle();
  EXPECT_THAT(says("b1", "Evicted"), StartsWith("True Preempted"));
  EXPECT_FALSE(admitted("big"));
  put(Json(at("big")));  // told again: what it was promised is not what it asked, and stays its own
  settle();
  EXPECT_EQ(books_.place({"lab", "big"}), Books::Place::Promised);
  stopped("b1");
  EXPECT_EQ(at("big")["status"]["admission"]["podSetAssignments"].items().at(0)["count"].integer(), 6);
}

TEST_F(BooksOf, PodsThatHaveEndedGiveTheirPartBack) {
  queue("a", "6");
  put(yaml("{metadata: {name: many, namespace: lab, uid: 00000000-0000-0000-0000-000000000009, creationTimestamp: '2026-11-22T09:00:00Z'}, spec: {queueName: a, podSets: [{name: main, count: 3, template: {spec: {containers: [{name: c, resources: {requests: {cpu: '2'}}}]}}}]}}"));
  submit("a1", "a", "4");
  settle();
  EXPECT_FALSE(admitted("a1"));
  Json many = at("many");
  many.child("status").set("reclaimablePods", Json::array({Json::object({{"name", "main"}, {"count", 2}})}));
  put(many);
  settle();
  EXPECT_TRUE(admitted("a1"));
  EXPECT_EQ(kube::print_json((*books_.queue_status("a", now_))["status"]["flavorsUsage"].items().at(0)["resources"].items().at(0)["total"]), "\"6\"");
}

TEST_F(BooksOf, StoppedQueuesHoldAndDrain) {
  queue("a", "6");
  submit("a1", "a", "2");
  settle();
  queue("a", "6", ", stopPolicy: Hold");
  submit("a2", "a", "2");
  settle();
  EXPECT_TRUE(admitted("a1"));
  EXPECT_EQ(says("a2", "QuotaReserved"), "False Suspended: ClusterQueue a is stopped");
  EXPECT_EQ((*kube::find_condition(*books_.queue_status("a", now_), "Active"))["reason"].string(), "Stopped");
  queue("a", "6", ", stopPolicy: HoldAndDrain");
  settle();
  EXPECT_EQ(says("a1", "Evicted"), "True ClusterQueueStopped: The ClusterQueue is stopped");
  stopped("a1");
  EXPECT_THAT(says("a1", "Requeued"), StartsWith("False ClusterQueueStopped"));
  queue("a", "6");
  settle();
  EXPECT_TRUE(admitted("a1") && admitted("a2"));
  EXPECT_THAT(says("a1", "Requeued"), StartsWith("True ClusterQueueRestarted"));
  Json off = at("a1");
  off.child("spec").set("active", false);
  put(off);
  settle();
  EXPECT_EQ(says("a1", "Evicted"), "True Deactivated: The workload is deactivated");
}

struct Row {
  const char *name, *queue, *workload, *want;
};
class BooksSay : public BooksOf, public testing::WithParamInterface<Row> {};
TEST_P(BooksSay, WhyItWaits) {
  put_queue("a", GetParam().queue);
  books_.set_flavor("gpu", yaml("{metadata: {name: gpu}, spec: {nodeLabels: {kind: h200}, nodeTaints: [{key: gpu, value: here, effect: NoSchedule}]}}"));
  submit("w", "a", "2", 0, GetParam().workload);
  settle();
  EXPECT_THAT(says("w", "QuotaReserved"), HasSubstr(GetParam().want));
}
constexpr const char* kPlain = "{namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: 4}]}]}]}";
INSTANTIATE_TEST_SUITE_P(Rows, BooksSay, testing::Values(
    Row{"too_large", "{namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: 1}]}]}]}", "", "False ExceedsMaxQuota: couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, previously considered podsets requests (0) + current podset request (2) > maximum capacity (1)"},
    Row{"no_quota_of_it", "{namespaceSelector: {}, resourceGroups: [{coveredResources: [memory], flavors: [{name: default, resources: [{name: memory, nominalQuota: 1}]}]}]}", "", "NoMatchingFlavor: couldn't assign flavors to pod set main: resource cpu unavailable in ClusterQueue"},
    Row{"taint", "{namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu], flavors: [{name: gpu, resources: [{name: cpu, nominalQuota: 4}]}]}]}", "", "NoMatchingFlavor: couldn't assign flavors to pod set main: untolerated taint {gpu here NoSchedule <nil>} in flavor gpu"},
    Row{"affinity", "{namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu], flavors: [{name: gpu, resources: [{name: cpu, nominalQuota: 4}]}]}]}", ", tolerations: [{operator: Exists}], nodeSelector: {kind: a100}", "flavor gpu doesn't match node affinity"},
    Row{"other_namespaces", "{namespaceSelector: {matchLabels: {team: b}}, resourceGroups: []}", "", "Misconfigured: Workload namespace doesn't match ClusterQueue selector"},
    Row{"no_namespaces", "{resourceGroups: []}", "", "doesn't match ClusterQueue selector"},
    Row{"missing_flavor", "{namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu], flavors: [{name: gone, resources: [{name: cpu, nominalQuota: 4}]}]}]}", "", "Suspended: ClusterQueue a is inactive"},
    Row{"negative", kPlain, ", initContainers: [{name: i, resources: {requests: {cpu: -3}}}]", "Misconfigured: spec.podSets[0].template.spec.initContainers[0].resources.requests[cpu]: -3 is negative"},
    Row{"negative_limit", kPlain, ", initContainers: [{name: i, resources: {limits: {memory: -1}}}]", "initContainers[0].resources.limits[memory]: -1 is negative"},
    Row{"limits_alone_are_asked_for", kPlain, ", initContainers: [{name: i, resources: {limits: {cpu: 5}}}]", "> maximum capacity (4)"},
    Row{"beyond_all_numbers", kPlain, ", initContainers: [{name: i, resources: {requests: {cpu: 9E}}}]", "False ExceedsMaxQuota"},
    Row{"requests_above_limits", kPlain, ", initContainers: [{name: i, resources: {requests: {cpu: 3}, limits: {cpu: 1}}}]", "Misconfigured: resources validation failed"}),
    [](const auto& row) { return row.param.name; });

class QueuesSay : public BooksOf, public testing::WithParamInterface<Row> {};
TEST_P(QueuesSay, WhatIsWrongWithThem) {
  put_queue("a", GetParam().queue);
  books_.set_cohort("up", yaml("{metadata: {name: up}, spec: {parentName: down}}"));
  books_.set_cohort("down", yaml("{metadata: {name: down}, spec: {parentName: up}}"));
  books_.set_cohort("alone", yaml("{metadata: {name: alone}, spec: {resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: 4, borrowingLimit: 1}]}]}]}}"));
  books_.set_cohort("odd", yaml("{metadata: {name: odd}, spec: {fairSharing: {weight: -2}}}"));
  books_.set_cohort("twice", yaml("{metadata: {name: twice}, spec: {resourceGroups: [{coveredResources: [cpu, cpu], flavors: []}]}}"));
  queue("b", "2");
  submit("w", "b", "2");
  settle();
  const Json told = books_.queue_status("a", now_).value_or(Json());
  ASSERT_NE(kube::find_condition(told, "Active"), nullptr);
  EXPECT_EQ((*kube::find_condition(told, "Active"))["status"].string(), "False");
  EXPECT_THAT((*kube::find_condition(told, "Active"))["message"].string(), HasSubstr(GetParam().want));
  EXPECT_TRUE(admitted("w")) << "others go on";
  EXPECT_EQ((*kube::find_condition(*books_.local_queue_status({"lab", "a"}, now_), "Active"))["reason"].string(), "ClusterQueueIsInactive");
}
INSTANTIATE_TEST_SUITE_P(Rows, QueuesSay, testing::Values(
    Row{"negative", "{resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: -4}]}]}]}", "", "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: -4 is negative"},
    Row{"missing", "{resourceGroups: [{coveredResources: [cpu], flavors: [{name: gone, resources: [{name: cpu, nominalQuota: 4}]}]}]}", "", "references missing ResourceFlavor(s): gone"},
    Row{"borrow_alone", "{resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: 4, borrowingLimit: 1}]}]}]}", "", "resources[0].borrowingLimit: without a cohort"},
    Row{"lend_alone", "{resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: 4, lendingLimit: 1}]}]}]}", "", "resources[0].lendingLimit: without a cohort"},
    Row{"beyond_all_numbers", "{resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: 9E}]}]}]}", "", "resources[0].nominalQuota: more than can be counted"},
    Row{"preference", "{flavorFungibility: {whenCanBorrow: MayStopSearch, whenCanPreempt: TryNextFlavor, preference: PreemptionOverBorrowing}, resourceGroups: []}", "", "spec.flavorFungibility.preference: PreemptionOverBorrowing needs TryNextFlavor"},
    Row{"cohort_alone", "{cohortName: alone, resourceGroups: []}", "", "Cohort alone: spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit: without a parent"},
    Row{"cohort_weight", "{cohortName: odd, resourceGroups: []}", "", "Cohort odd: spec.fairSharing.weight"},
    Row{"cohort_twice", "{cohortName: twice, resourceGroups: []}", "", "Cohort twice: spec.resourceGroups[0].coveredResources: cpu is covered twice"},
    Row{"lends_more", "{cohortName: pool, resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: 4, lendingLimit: 5}]}]}]}", "", "lendingLimit: more than nominalQuota"},
    Row{"cycle", "{cohortName: up, resourceGroups: []}", "", "spec.cohortName: its cohorts are a cycle: up -> down -> up"},
    Row{"weight", "{fairSharing: {weight: -1}, resourceGroups: []}", "", "spec.fairSharing.weight"},
    Row{"checks", "{admissionChecksStrategy: {admissionChecks: [{name: prov}]}, resourceGroups: []}", "", "references missing AdmissionCheck(s): prov"}),
    [](const auto& row) { return row.param.name; });

TEST_F(BooksOf, AQueueThatIsGoneLeavesItsWorkloadsWaiting) {
  queue("a", "6");
  submit("a1", "a", "6"), submit("a2", "a", "1");
  settle();
  books_.set_queue("a", Json());
  settle();
  EXPECT_TRUE(admitted("a1"));
  EXPECT_EQ(says("a2", "QuotaReserved"), "False Misconfigured: ClusterQueue a doesn't exist");
  queue("a", "6");
  settle();
  EXPECT_FALSE(admitted("a2")) << "a1 counts again";
}

// Ten thousand priorities are ten thousand classes: each goes in its place, and none is lost.
TEST_F(BooksOf, TenThousandPrioritiesGoInTheirOrder) {
  queue("a", "1");
  for (int i = 0; i < 10'000; ++i) submit(fmt::format("w{}", i), "a", "1", i * 7919 % 10'000 - 5'000);
  books_.decide();
  const auto line = books_.engine().in_line("a");
  ASSERT_EQ(line.size(), 9'999u);
  std::int64_t before = 4'999;
  for (const JobId job : line) {
    const std::int64_t priority = books_.engine().what(books_.engine().class_of(job)).priority;
    EXPECT_EQ(priority, before - 1);
    before = priority;
  }
}

// Clocks of servers and objects differ, and jump: what is counted stays right, nothing is lost, and what is due by time comes at last.
TEST_F(BooksOf, ClocksMayJump) {
  using namespace std::chrono_literals;
  books_.set_time_rules({.reservation = Reservation{.after = 600s, .hold = 600s}, .min_run = 300s, .least_lost_work = true, .past = PastRules{.half_life = 3600s}});
  queue("a", "4"), queue("b", "4");
  submit("a1", "a", "4"), submit("b1", "b", "4"), submit("b2", "b", "2", 5);
  books_.record(now_);
  books_.fill_anew();
  const Instant begin = now_;
  for (const auto jump : {0h, 1h, -5h, 24h * 400, -24h * 900, 10h, 0h}) {
    now_ = begin + jump;
    books_.set_time(now_);
    (void)books_.tend(now_);
    settle();
    const Ledger& ledger = books_.in_use();
    std::map<std::string, Amount> held{{"a", 0}, {"b", 0}};
    for (const auto& [key, object] : objects_)
      if (const auto place = books_.place(key); place == Books::Place::Running || place == Books::Place::Stopping) held[object["spec"]["queueName"].string()] += key.name == "b2" ? 2'000 : 4'000;
    for (const auto& [name, amount] : held) {
      EXPECT_EQ(ledger.usage(ledger.leaf(name), 0), amount) << name;
      EXPECT_LE(amount, 4'000) << name;
    }
    for (const auto& [key, object] : objects_)
      if (books_.place(key) == Books::Place::Stopping) stopped(key.name);
  }
  EXPECT_TRUE(admitted("a1"));
  now_ = begin + 24h * 800;  // whoever runs has run for long enough
  books_.set_time(now_);
  (void)books_.tend(now_);
  settle();
  if (kube::condition_is_true(at("b1"), "Evicted")) stopped("b1");
  EXPECT_TRUE(admitted("b2")) << says("b2", "QuotaReserved");
  for (const CaseOutcome& part : replay_decisions(decision_log_header(begin) + books_.take_record())) EXPECT_EQ(part.kind, CaseOutcome::Kind::Passed) << part.detail;
}

// Two that started one after the other: the later one is the victim, but not once the earlier one has saved its work since.
TEST_F(BooksOf, WhoLosesLeastIsStoppedFirst) {
  for (const auto& [every, at, victim] : {std::tuple{"", "", "l2"}, {"10m", "", "l1"}, {"", "2026-11-22T10:40:00Z", "l1"}, {"odd", "2027-01-01T00:00:00Z", "l2"}}) {
    books_ = Books();
    books_.set_space("lab", yaml("{metadata: {name: lab, labels: {team: a}}}"));
    books_.set_flavor("default", yaml("{metadata: {name: default}, spec: {}}"));
    books_.set_time_rules({.reservation = {}, .min_run = {}, .least_lost_work = true});
    EXPECT_TRUE(books_.needs_tending());
    objects_.clear();
    queue("q", "4");
    books_.record(now_);
    books_.fill_anew();
    for (const auto& [name, minute] : {std::pair{"l1", 0}, {"l2", 25}}) {
      submit(name, "q", "2");
      settle();
      Json object = objects_.at({"lab", name});
      for (Json& condition : object.child("status").child("conditions").items()) condition.set("lastTransitionTime", fmt::format("2026-11-22T10:{:02d}:00Z", minute));
      if (std::string(name) == "l1" && *every != 0) object.child("metadata").child("annotations").set("fairlead.dev/checkpoint-every", every);
      if (std::string(name) == "l1" && *at != 0) object.child("metadata").child("annotations").set("fairlead.dev/checkpointed-at", at);
      put(object);
      settle();
    }
    (void)books_.tend(*parse_time("2026-11-22T10:45:00Z"));
    submit("big", "q", "2", 10);
    settle();
    EXPECT_TRUE(kube::condition_is_true(objects_.at({"lab", victim}), "Evicted")) << every << at << " " << victim;
    for (const CaseOutcome& part : replay_decisions(decision_log_header(now_) + books_.take_record())) EXPECT_EQ(part.kind, CaseOutcome::Kind::Passed) << part.detail;
  }
}

// Who waits for its checks runs nothing: it may be pre-empted, whatever the minimum run time is; once it is admitted it may not for so long.
TEST_F(BooksOf, WhoWaitsForItsChecksIsNotShielded) {
  books_.set_check("budget", yaml("{metadata: {name: budget}, status: {conditions: [{type: Active, status: 'True'}]}}"));
  books_.set_time_rules({.reservation = {}, .min_run = 600s});
  queue("q", "4", ", admissionChecksStrategy: {admissionChecks: [{name: budget}]}");
  books_.record(now_);
  books_.fill_anew();
  for (const bool admitted_first : {false, true}) {
    const std::string low = admitted_first ? "low2" : "low1", high = admitted_first ? "high2" : "high1";
    submit(low, "q", "4");
    settle();
    ASSERT_TRUE(kube::condition_is_true(at(low), "QuotaReserved"));
    (void)books_.tend(now_);
    settle();
    if (admitted_first) {
      Json object = at(low);
      kube::set_condition(object, {.type = "Admitted", .status = "True", .reason = "Admitted"}, now_);
      put(object);
      settle();
    }
    submit(high, "q", "4", 10);
    settle();
    (void)books_.tend(now_ + 1s);
    settle();
    EXPECT_EQ(kube::condition_is_true(at(low), "Evicted"), !admitted_first);
    if (admitted_first) { EXPECT_TRUE(books_.tend(now_ + 601s)); }
    settle();
    EXPECT_TRUE(kube::condition_is_true(at(low), "Evicted"));
    for (const std::string& name : {low, high}) books_.set_workload({"lab", name}, Json()), objects_.erase({"lab", name});
    settle();
  }
  for (const CaseOutcome& part : replay_decisions(decision_log_header(now_) + books_.take_record())) EXPECT_EQ(part.kind, CaseOutcome::Kind::Passed) << part.detail;
}

}  // namespace
}  // namespace fairlead::governance
