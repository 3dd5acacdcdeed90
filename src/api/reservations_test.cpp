// SPDX-License-Identifier: Apache-2.0
#include "api/reservations.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/cluster.h"
#include "base/rng.h"
#include "kube/object.h"

namespace fairlead::api {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::IsEmpty;
using Holder = PlanMachine::Holder;

const Instant now = *parse_time("2026-11-26T12:00:00Z");
Instant at(int hours) { return now + std::chrono::hours(hours); }
Commitment from_to(int count, int start, int end) { return {count, {at(start), at(end)}}; }

TEST(Promises, ThePeakIsTheMostAtOneTime) {
  const std::vector<Commitment> all{from_to(2, 0, 4), from_to(3, 4, 8), from_to(1, 2, 6)};
  EXPECT_EQ(peak(all, at(0), at(8)), 4);
  EXPECT_EQ(peak(all, at(0), at(2)), 2);
  EXPECT_EQ(peak(all, at(2), at(4)), 3);
  EXPECT_EQ(peak(all, at(6), at(9)), 3);
  EXPECT_EQ(peak(all, at(8), kForever), 0) << "an end is no part of it";
  EXPECT_EQ(peak({}, at(0), kForever), 0);
}

TEST(Offerings, AreTheEarliestThatFit) {
  const std::vector<Commitment> promised{from_to(2, 1, 3), from_to(3, 3, 5)};
  const auto ask = [&](int count, int hours, int after, std::optional<int> before = {}) {
    std::vector<std::string> out;
    for (const Offering& one : offerings({.type = "ml.p5.48xlarge", .count = count, .duration = std::chrono::hours(hours), .after = at(after), .before = before ? std::optional<Instant>(at(*before)) : std::nullopt}, 4, promised, now))
      out.push_back(fmt::format("{}-{}", (one.window.start - now) / 1h, (one.window.end - now) / 1h));
    return out;
  };
  EXPECT_THAT(ask(1, 2, 0), ElementsAre("0-2", "3-5", "5-7"));
  EXPECT_THAT(ask(2, 2, 0), ElementsAre("0-2", "5-7"));
  EXPECT_THAT(ask(2, 1, -50), ElementsAre("0-1", "5-6")) << "nothing begins in the past; from 3 to 5 three are gone";
  EXPECT_THAT(ask(4, 1, 0), ElementsAre("0-1", "5-6"));
  EXPECT_THAT(ask(4, 2, 0), ElementsAre("5-7"));
  EXPECT_THAT(ask(5, 1, 0), IsEmpty()) << "more than there are";
  EXPECT_THAT(ask(1, 2, 2, 4), ElementsAre("2-4"));
  EXPECT_THAT(ask(1, 2, 2, 3), IsEmpty());
  EXPECT_THAT(ask(0, 2, 0), IsEmpty());
}

// Whatever was taken in whatever order: at no hour are more promised than there are, and what was refused did not fit.
TEST(OfferingsProperty, NeverPromiseMoreThanThereIs) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Rng rng(seed);
    const int there = 1 + static_cast<int>(rng.below(6));
    std::vector<Commitment> promised;
    for (int i = 0; i < 12; ++i) {
      const OfferingQuestion question{.type = "ml.p5.48xlarge", .count = 1 + static_cast<int>(rng.below(6)), .duration = std::chrono::hours(1 + rng.below(6)), .after = at(static_cast<int>(rng.below(12))), .before = at(static_cast<int>(rng.below(30)))};
      const auto offered = offerings(question, there, promised, now);
      // Brute force, hour by hour.
      const auto fits = [&](Instant start) {
        for (Instant hour = start; hour < start + question.duration; hour += 1h) {
          int sum = question.count;
          for (const Commitment& one : promised) sum += one.window.start <= hour && hour < one.window.end ? one.count : 0;
          if (sum > there) return false;
        }
        return true;
      };
      std::optional<Instant> earliest;
      for (Instant start = question.after; !earliest && start + question.duration <= *question.before; start += 1h)
        if (fits(start)) earliest = start;
      ASSERT_EQ(offered.empty(), !earliest) << "seed " << seed;
      for (const Offering& one : offered) ASSERT_TRUE(fits(one.window.start) && one.window.end <= *question.before && one.window.start >= question.after) << "seed " << seed;
      if (offered.empty()) continue;
      ASSERT_EQ(offered.front().window.start, *earliest) << "seed " << seed;
      const Offering& taken = offered[rng.below(offered.size())];
      promised.push_back({taken.count, taken.window});
      ASSERT_LE(peak(promised, now, kForever), there) << "seed " << seed;
    }
  }
}

TEST(OfferingIds, SayWhatIsOffered) {
  const Offering offering{"ml.p6-b200.48xlarge", 16, {at(0), at(24)}};
  const std::string id = offering_id(offering);
  EXPECT_EQ(id, "tpo-16-1795694400-1795780800-ml--p6-b200--48xlarge");
  EXPECT_EQ(parse_offering_id(id), offering);
  for (const char* wrong : {"", "tpo-", "tpo-16-1795694400-1795780800", "tpo-0-1795694400-1795780800-ml--p5--48xlarge", "tpo-257-1795694400-1795780800-ml--p5--48xlarge", "tpo-4-1795780800-1795694400-ml--p5--48xlarge", "tpo-04-1795694400-1795780800-ml--p5--48xlarge", "tpo-4--1-1795780800-ml--p5--48xlarge", "tpo-4-1795694400-1795780800-ml--none", "tpo-4-1795694400-1795780800-ml.p5.48xlarge", "tpo-4-1795694400-99999999999-ml--p5--48xlarge", "tpo-4-1795694400-1795694401-ml--p5--48xlarge", "tpo-4-1795694400-2111058000-ml--p5--48xlarge"})
    EXPECT_EQ(parse_offering_id(wrong), std::nullopt) << wrong;
  const ExtensionOffering extension{"abcdefghij01", {at(0), at(24)}};
  EXPECT_EQ(extension_id(extension), "tpe-abcdefghij01-1795694400-1795780800");
  EXPECT_EQ(parse_extension_id(extension_id(extension)), extension);
  for (const char* wrong : {"", "tpe-abcdefghij01", "tpe-ABCDEFGHIJ01-1795694400-1795780800", "tpe-abcdefghij01-1795694400-1795780800-", "tpe-abcdefghij01-1795694400-1795694400", "tpe-abcdefghij01-1795694400-1795694460", "tpe-abcdefghij01-1795694400-1811422800"}) EXPECT_EQ(parse_extension_id(wrong), std::nullopt) << wrong;
}

struct Machines : testing::Test {
  Plans plans;
  std::vector<Json> clusters, instances, nodes;
  void plan(const std::string& name, int count, int start, int end, const char* type = "ml.g5.xlarge") {
    Json object = *kube::parse_json(fmt::format(R"({{"metadata": {{"name": "{}"}}, "spec": {{"instanceType": "{}", "instanceCount": {}, "endTime": "{}"}}, "status": {{"granted": {{"instanceType": "{}", "instanceCount": {}}}, "startTime": "{}", "endTime": "{}"}}}})", name, type, count, print_time(at(end)), type, count, print_time(at(start)), print_time(at(end))));
    plans.emplace(name, read_training_plan(object));
  }
  void group(const std::string& cluster, const std::string& plan) {
    Json one = Json::object({{"instanceGroupName", "gpu"}});
    if (!plan.empty()) one.set("trainingPlanArn", plan);
    clusters.push_back(Json::object({{"metadata", Json::object({{"name", cluster}, {"uid", "u-" + cluster}})}, {"spec", Json::object({{"instanceGroups", Json::array({std::move(one)})}})}}));
  }
  Json& instance(const std::string& id, const std::string& cluster, const std::string& node) {
    instances.push_back(Json::object({{"metadata", Json::object({{"name", id}})}, {"spec", Json::object({{"clusterUid", "u-" + cluster}, {"instanceGroupName", "gpu"}})}, {"status", Json::object({{"node", node}})}}));
    return instances.back();
  }
  Json& node(const std::string& name, const std::string& owner = "", const std::string& label = "") {
    Json labels = Json::object({{kSpareLabel, "true"}, {"node.kubernetes.io/instance-type", "ml.g5.xlarge"}});
    if (!owner.empty()) labels.set(kInstanceLabel, owner);
    if (!label.empty()) labels.set(kPlanLabel, label);
    Json object = Json::object({{"metadata", Json::object({{"name", name}, {"labels", std::move(labels)}})}, {"spec", Json::object()}, {"status", *kube::parse_json(R"({"capacity": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}})")}});
    kube::set_condition(object, {"Ready", "True", "", ""}, at(-1));
    nodes.push_back(std::move(object));
    return nodes.back();
  }
  std::vector<PlanMachine> look(std::optional<Instant>* again = nullptr) {
    Inventory inventory(plans, now);
    for (const Json& one : clusters) inventory.cluster(one);
    for (const Json& one : instances) inventory.instance(one);
    for (const Json& one : nodes) inventory.node(one);
    if (again != nullptr) *again = inventory.look_again();
    return inventory.machines();
  }
  std::string seen() {
    static constexpr const char* names[] = {"nobody", "leaving", "plan", "ended", "others", "unknown"};
    std::string out;
    for (const PlanMachine& one : look()) out += fmt::format("{}{}: {}{}{}\n", one.node, one.healthy ? "" : "!", names[static_cast<int>(one.holder)], one.plan.empty() ? "" : " " + one.plan, one.promisable() ? "" : " -");
    return out;
  }
};

TEST_F(Machines, AreWhatClustersMayTakeAndWhoHasThem) {
  plan("now", 1, -1, 1);
  plan("over", 1, -2, -1);
  plan("later", 1, 1, 2);
  for (const char* of : {"now", "over", "later", ""}) group(fmt::format("c-{}", of), of);
  group("c-none", "nonesuch");
  node("free");
  node("n0", "i-0"), instance("i-0", "c-now", "n0");
  node("n1", "i-1", "now"), instance("i-1", "c-now", "n1");
  node("n2", "i-2"), instance("i-2", "c-over", "n2");
  node("n3", "i-3"), instance("i-3", "c-later", "n3");
  node("n4", "i-4"), instance("i-4", "c-", "n4");
  node("n5", "i-5"), instance("i-5", "c-none", "n5");
  node("n6"), instance("i-6", "c-", "n6");
  node("n7", "i-7");
  node("n7b", "i-7b", "now");
  node("n8", "i-8"), instance("i-8", "c-", "n8").child("metadata").set("deletionTimestamp", "2026-11-26T12:00:00Z");
  node("n9", "i-9"), instance("i-9", "c-gone", "n9");
  node("na", "i-a"), instance("i-a", "c-now", "na").child("spec").set("instanceGroupName", "cpu");
  EXPECT_EQ(seen(), "free: nobody\nn0: others -\nn1: plan now\nn2: ended over\nn3: others -\nn4: others -\nn5: others -\nn6: others -\nn7: others -\nn7b: unknown -\nn8: leaving\nn9: others -\nna: others -\n");
  EXPECT_EQ(promisable(look(), "ml.g5.xlarge"), 4) << "what an unknown instance has is kept, and promised to nobody else";
  EXPECT_EQ(promisable(look(), "ml.p5.48xlarge"), 0);
}

// Whatever its group names after it was given out by a plan: others were promised it.
TEST_F(Machines, ThatWereGivenOutByAPlanStayPlanned) {
  plan("over", 4, -2, -1), plan("small", 1, -1, 1), plan("later", 4, 1, 2);
  for (const char* of : {"over", "small", "later", ""}) group(fmt::format("c-{}", of), of);
  group("c-none", "nonesuch");
  int at = 0;
  const auto held = [&](const std::string& cluster) {
    const int i = at++;
    node(fmt::format("n{}", i), fmt::format("i-{}", i), "later"), instance(fmt::format("i-{}", i), cluster, fmt::format("n{}", i));
  };
  for (const char* cluster : {"c-", "c-none", "c-later", "c-small", "c-small", "c-over", "c-"}) held(cluster);
  instances.back().child("spec").set("instanceGroupName", "gone");
  EXPECT_EQ(seen(), "n0: ended\nn1: ended\nn2: ended\nn3: plan small\nn4: ended\nn5: ended over\nn6: leaving\n");
}

TEST_F(Machines, ThatFailedADeepCheckDoNotCount) {
  node("a").child("metadata").child("labels").set(kDeepCheckLabel, "Failed");
  node("b").child("metadata").child("labels").set(kDeepCheckLabel, "Passed");
  node("c").child("metadata").child("labels").set(kHealthLabel, "UnschedulablePendingReplacement");
  EXPECT_EQ(seen(), "a!: nobody -\nb: nobody\nc!: nobody -\n");
  EXPECT_TRUE(look()[0].replaced && !look()[1].replaced && look()[2].replaced);
}

TEST_F(Machines, ThatNobodyCouldUseDoNotCount) {
  node("a").child("metadata").child("labels").set("fairlead.dev/replaced", "i-1");
  node("b").child("spec").set("unschedulable", true);
  node("c").child("spec").set("taints", *kube::parse_json(R"([{"key": "mine", "effect": "NoSchedule"}])"));
  node("d").child("status").child("capacity").set("nvidia.com/gpu", "0");
  node("e").child("status").erase("conditions");
  node("f").child("metadata").set("deletionTimestamp", "2026-11-26T12:00:00Z");
  kube::set_condition(node("g"), {"Ready", "Unknown", "", ""}, at(-1));
  kube::set_condition(node("h"), {"Ready", "Unknown", "", ""}, now - 1min);
  node("h2").child("spec").set("taints", *kube::parse_json(R"([{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}])"));
  node("h3").child("spec").set("taints", *kube::parse_json(R"([{"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}])"));
  node("i").child("metadata").child("labels").set(kSpareLabel, "no");
  EXPECT_EQ(seen(), "a!: nobody -\nb!: nobody -\nc!: nobody -\nd!: nobody -\ne!: nobody -\nf!: nobody -\ng!: nobody -\nh: nobody\nh2: nobody\nh3!: nobody -\n");
  std::optional<Instant> again;
  (void)look(&again);
  EXPECT_EQ(again, now + 4min);
}

TEST(PlanNames, ComeFromArnsAndNames) {
  EXPECT_EQ(plan_object_name("arn:aws:sagemaker:r:111122223333:training-plan/spring"), "spring");
  EXPECT_EQ(plan_object_name("spring"), "spring");
  EXPECT_EQ(plan_object_name("arn:aws:sagemaker:r:111122223333:cluster/spring"), "");
  EXPECT_EQ(plan_object_name(""), "");
  EXPECT_EQ(plan_object_name("hand.made"), "hand.made");
  EXPECT_NE(plan_object_name("Spring"), "spring") << "another name is another plan";
}

TEST(TrainingPlans, AreWhatTheClockSays) {
  Json object = *kube::parse_json(R"({"metadata": {"name": "p"}, "spec": {"instanceType": "ml.g5.xlarge", "instanceCount": 2, "startTime": "2026-11-26T13:00:00Z", "endTime": "2026-11-26T15:00:00Z"}})");
  EXPECT_EQ(read_training_plan(object).phase(now), PlanPhase::Pending);
  object.set("status", *kube::parse_json(R"({"granted": {"instanceType": "ml.g5.xlarge", "instanceCount": 2}, "startTime": "2026-11-26T13:00:00Z", "endTime": "2026-11-26T15:00:00Z"})"));
  const TrainingPlan plan = read_training_plan(object);
  EXPECT_THAT(plan.problems, IsEmpty());
  EXPECT_EQ(plan.phase(at(0)), PlanPhase::Scheduled);
  EXPECT_EQ(plan.phase(at(1)), PlanPhase::Active);
  EXPECT_EQ(plan.phase(at(3) - 1s), PlanPhase::Active);
  EXPECT_EQ(plan.phase(at(3)), PlanPhase::Expired);
  object.child("status").set("failed", true);
  EXPECT_EQ(read_training_plan(object).phase(at(1)), PlanPhase::Failed);
}

TEST(TrainingPlans, ThatCannotBeSayWhy) {
  const auto problems = [](const char* spec) { return read_training_plan(Json::object({{"spec", *kube::parse_json(spec)}})).problems; };
  EXPECT_THAT(problems(R"({"instanceType": "p5", "instanceCount": 1, "endTime": "2026-11-26T15:00:00Z"})"), ElementsAre("spec.instanceType: \"p5\" is no type of the API"));
  EXPECT_THAT(read_training_plan(*kube::parse_json(fmt::format(R"({{"metadata": {{"name": "{}"}}, "spec": {{"instanceType": "ml.g5.xlarge", "instanceCount": 1, "endTime": "2026-11-26T15:00:00Z"}}}})", std::string(64, 'x')))).problems, ElementsAre("metadata.name: 63 characters at most, since Nodes are labelled with it"));
  EXPECT_THAT(problems(R"({"instanceType": "ml.g5.xlarge", "instanceCount": 0, "endTime": "2026-11-26T15:00:00Z"})"), ElementsAre("spec.instanceCount: 0 is not a whole number from 1 to 256"));
  EXPECT_THAT(problems(R"({"instanceType": "ml.g5.xlarge", "instanceCount": 1, "startTime": "soon", "endTime": "2026-11-26T15:00:00Z"})"), ElementsAre("spec.startTime: \"soon\" is no time such as 2026-11-30T08:00:00Z"));
  EXPECT_THAT(problems(R"({"instanceType": "ml.g5.xlarge", "instanceCount": 1, "startTime": "2026-11-26T15:00:00Z", "endTime": "2026-11-26T15:00:00Z"})"), ElementsAre("spec.endTime: it is not after spec.startTime"));
}

}  // namespace
}  // namespace fairlead::api
