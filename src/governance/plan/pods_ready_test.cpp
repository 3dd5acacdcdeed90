// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/pods_ready.h"

#include <gmock/gmock.h>

#include "kube/object.h"

namespace fairlead::governance {
namespace {

using namespace std::chrono_literals;
using kube::Json;
using testing::HasSubstr;

Json yaml(const std::string& text) { return kube::parse_yaml(text)->at(0); }
const Instant now = *parse_time("2026-11-23T10:00:00Z");

// SchedulerConfigs, by age.
std::optional<ReadyRules> rules_of(const std::string& spec) { return ready_rules({yaml("{metadata: {name: new, creationTimestamp: '2026-11-23T09:00:00Z'}, spec: {waitForPodsReady: {timeoutSeconds: 1}}}"), yaml("{metadata: {name: old, creationTimestamp: '2026-11-22T09:00:00Z'}, spec: " + spec + "}")}); }

TEST(ReadyRules, AreThoseOfThePolicyInForce) {
  EXPECT_FALSE(ready_rules({}));
  EXPECT_FALSE(rules_of("{}"));
  const auto least = rules_of("{waitForPodsReady: {}}");
  ASSERT_TRUE(least);
  EXPECT_EQ(least->timeout, 300s);
  EXPECT_EQ(least->recovery, 300s) << "as the other one";
  EXPECT_FALSE(least->limit);
  EXPECT_EQ(least->base, 60s);
  EXPECT_EQ(least->most, 3600s);
  const auto all = rules_of("{waitForPodsReady: {timeoutSeconds: 7, recoveryTimeoutSeconds: 0, requeuingStrategy: {backoffLimitCount: 0, backoffBaseSeconds: 1, backoffMaxSeconds: 2}}}");
  ASSERT_TRUE(all);
  EXPECT_EQ(all->timeout, 7s);
  EXPECT_FALSE(all->recovery) << "0 switches it off";
  EXPECT_EQ(all->limit, 0);
  EXPECT_EQ(all->base, 1s);
  EXPECT_EQ(all->most, 2s);
}

TEST(PodsReady, TellsOfStartLossAndRecovery) {
  Json workload = yaml("{metadata: {name: w}, status: {}}");
  const auto says = [&] { return (*kube::find_condition(workload, kPodsReady))["status"].string() + " " + (*kube::find_condition(workload, kPodsReady))["reason"].string(); };
  EXPECT_TRUE(tell_pods_ready(workload, false, now));
  EXPECT_EQ(says(), "False WaitForStart");
  EXPECT_FALSE(tell_pods_ready(workload, false, now + 1s)) << "as it was";
  EXPECT_TRUE(tell_pods_ready(workload, true, now));
  EXPECT_EQ(says(), "True Started");
  EXPECT_TRUE(tell_pods_ready(workload, false, now));
  EXPECT_EQ(says(), "False WaitForRecovery");
  EXPECT_FALSE(tell_pods_ready(workload, false, now));
  EXPECT_TRUE(tell_pods_ready(workload, true, now));
  EXPECT_EQ(says(), "True Recovered");
  EXPECT_FALSE(tell_pods_ready(workload, true, now));
}

// A Workload that was admitted ten minutes ago; its pods are not ready since five.
Json admitted(const std::string& more = "", const std::string& reason = "WaitForStart", const std::string& spec = "{}") {
  return yaml("{metadata: {name: w, namespace: lab}, spec: " + spec + ", status: {admission: {clusterQueue: q}" + more +
              ", conditions: [{type: QuotaReserved, status: 'True', lastTransitionTime: '2026-11-23T09:50:00Z'}, {type: Admitted, status: 'True', lastTransitionTime: '2026-11-23T09:50:00Z'}, "
              "{type: PodsReady, status: 'False', reason: " + reason + ", lastTransitionTime: '2026-11-23T09:55:00Z'}]}}");
}
const ReadyRules at_600{.timeout = 600s, .recovery = 400s, .limit = 3, .base = 60s, .most = 100s};

TEST(PodsReady, WhoIsNotReadyInTimeGivesItsQuotaBack) {
  ReadyRules later = at_600;
  later.timeout = 601s;
  ReadyPlan plan = plan_pods_ready(admitted(), later, now);
  EXPECT_FALSE(plan.status);
  EXPECT_EQ(plan.later, 1s);
  plan = plan_pods_ready(admitted(), at_600, now);
  ASSERT_TRUE(plan.status);
  EXPECT_EQ((*kube::find_condition(*plan.status, "Evicted"))["message"].string(), "Exceeded the PodsReady timeout lab/w");
  EXPECT_EQ((*kube::find_condition(*plan.status, "Evicted"))["reason"].string(), "PodsReadyTimeout");
  EXPECT_EQ(kube::print_json((*plan.status)["status"]["requeueState"]), R"({"count":1,"requeueAt":"2026-11-23T10:01:00Z"})");
  EXPECT_TRUE(holds_quota(*plan.status)) << "until its pods are gone";
  ASSERT_TRUE(plan.note);
  EXPECT_EQ(plan.note->reason, "EvictedDueToPodsReadyTimeout");
  EXPECT_FALSE(plan_pods_ready(*plan.status, at_600, now + 1h).status) << "once";
  EXPECT_EQ(plan_pods_ready(admitted(", requeueState: {count: 1}"), at_600, now).status->at("status")["requeueState"]["requeueAt"].string(), "2026-11-23T10:01:40Z") << "twice as long, at most 100 s";
}

TEST(PodsReady, TheLossOfAPodHasATimeOfItsOwn) {
  ReadyPlan plan = plan_pods_ready(admitted("", "WaitForRecovery"), at_600, now);
  EXPECT_FALSE(plan.status);
  EXPECT_EQ(plan.later, 100s);
  EXPECT_TRUE(plan_pods_ready(admitted("", "WaitForRecovery"), at_600, now + 100s).status);
  ReadyRules unwatched = at_600;
  unwatched.recovery.reset();
  plan = plan_pods_ready(admitted("", "WaitForRecovery"), unwatched, now + 24h);
  EXPECT_FALSE(plan.status || plan.later);
}

TEST(PodsReady, AfterItsLastTryItIsDeactivated) {
  const ReadyPlan plan = plan_pods_ready(admitted(", requeueState: {count: 3}"), at_600, now);
  ASSERT_TRUE(plan.status);
  EXPECT_EQ(kube::find_condition(*plan.status, "Evicted"), nullptr);
  EXPECT_EQ((*kube::find_condition(*plan.status, "DeactivationTarget"))["reason"].string(), "RequeuingLimitExceeded");
  EXPECT_FALSE(plan_pods_ready(*plan.status, at_600, now + 1h).status) << "once";
  ReadyRules endless = at_600;
  endless.limit.reset();
  EXPECT_NE(kube::find_condition(*plan_pods_ready(admitted(", requeueState: {count: 1000000}"), endless, now).status, "Evicted"), nullptr);
}

TEST(PodsReady, NothingFollowsWithoutRulesOrWord) {
  EXPECT_FALSE(plan_pods_ready(admitted(), std::nullopt, now + 24h).status);
  Json silent = admitted();
  std::erase_if(silent.child("status").child("conditions").items(), [](const Json& one) { return one["type"].string() == "PodsReady"; });
  EXPECT_FALSE(plan_pods_ready(silent, at_600, now + 24h).status) << "nobody said that its pods are not ready";
  Json ready = admitted();
  tell_pods_ready(ready, true, now);
  EXPECT_FALSE(plan_pods_ready(ready, at_600, now + 24h).status);
  EXPECT_FALSE(plan_pods_ready(admitted("", "WaitForStart", "{active: false}"), at_600, now + 24h).status);
  Json timeless = admitted();
  for (Json& one : timeless.child("status").child("conditions").items()) one.set("lastTransitionTime", "soon");
  EXPECT_FALSE(plan_pods_ready(timeless, at_600, now + 24h).status);
}

TEST(PodsReady, ItStandsInLineAgainWhenItsTimeIsOver) {
  const std::string conditions = "conditions: [{type: QuotaReserved, status: 'False'}, {type: Requeued, status: 'False', reason: PodsReadyTimeout}]";
  Json out = yaml("{metadata: {name: w, namespace: lab}, spec: {}, status: {requeueState: {count: 2, requeueAt: '2026-11-23T10:00:07Z'}, " + conditions + "}}");
  EXPECT_EQ(plan_pods_ready(out, at_600, now).later, 7s);
  for (const auto& rules : {std::optional(at_600), std::optional<ReadyRules>()}) {  // also when the rules are gone
    const ReadyPlan plan = plan_pods_ready(out, rules, now + 7s);
    ASSERT_TRUE(plan.status);
    EXPECT_EQ((*kube::find_condition(*plan.status, "Requeued"))["reason"].string(), "BackoffFinished");
    EXPECT_EQ(kube::print_json((*plan.status)["status"]["requeueState"]), R"({"count":2})");
    EXPECT_FALSE(plan_pods_ready(*plan.status, rules, now + 8s).status);
  }
  // Who was deactivated and is activated again begins anew.
  out.child("spec").set("active", false);
  const ReadyPlan plan = plan_pods_ready(out, at_600, now);
  ASSERT_TRUE(plan.status);
  EXPECT_TRUE((*plan.status)["status"]["requeueState"].is_null());
}

}  // namespace
}  // namespace fairlead::governance
