// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/admission_checks.h"

#include <gmock/gmock.h>

#include "base/encoding.h"
#include "governance/plan/explain.h"
#include "governance/plan/explain_lab.h"
#include "governance/plan/kueue_read.h"
#include "governance/plan/owner_workload.h"
#include "governance/plan/run_limit.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;

const Instant now = *parse_time("2026-11-23T12:00:00Z");

Json yaml(const std::string& text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed) << text;
  return parsed->at(0);
}

// Two flavors; `budget` for all of them, `warm` for f1 alone.
QueueSpec queue(const std::string& more = "admissionChecksStrategy: {admissionChecks: [{name: budget}, {name: warm, onFlavors: [f1]}]}") {
  return *read_queue(yaml("{metadata: {name: q}, spec: {namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu], flavors: [{name: f0, resources: [{name: cpu, nominalQuota: 4}]}, {name: f1, resources: [{name: cpu, nominalQuota: 4}]}]}], " + more + "}}"));
}
// One that has quota, or (no flavor) waits.
Json workload(const std::string& checks, const std::string& flavor = "f0", const std::string& admitted = "'False', reason: UnsatisfiedAdmissionChecks", const std::string& more = "") {
  const std::string time = "message: '', lastTransitionTime: '2026-11-23T11:58:00Z'";
  return yaml(fmt::format("{{metadata: {{name: w, namespace: lab}}, spec: {{queueName: q}}, status: {{admissionChecks: {}{}{}}}}}", checks,
                          flavor.empty() ? "" : fmt::format(", conditions: [{{type: QuotaReserved, status: 'True', reason: QuotaReserved, {0}}}, {{type: Admitted, status: {1}, {0}}}], admission: {{clusterQueue: q, podSetAssignments: [{{name: main, flavors: {{cpu: {2}}}}}]}}", time, admitted, flavor), more));
}
std::string condition(const ChecksPlan& plan, const char* type) {
  const Json* found = plan.status ? kube::find_condition(*plan.status, type) : nullptr;
  return found == nullptr ? "none" : (*found)["status"].string() + " " + (*found)["reason"].string() + ": " + (*found)["message"].string();
}
std::string states(const Json& object) {
  std::string out;
  for (const Json& one : object["status"]["admissionChecks"].items()) out += one["name"].string() + "=" + one["state"].string() + " ";
  return out;
}

TEST(AdmissionChecks, AreThoseOfTheFlavorsThatItGot) {
  EXPECT_THAT(checks_of(queue(), {{"f0"}}), ElementsAre("budget"));
  EXPECT_THAT(checks_of(queue(), {{"f0", "f1"}}), ElementsAre("budget", "warm"));
  EXPECT_THAT(checks_of(queue(), std::nullopt), ElementsAre("budget")) << "of one that waits: those of every flavor";
  EXPECT_THAT(checks_of(queue("admissionChecksStrategy: {admissionChecks: [{name: warm, onFlavors: [f1, f0]}]}"), std::nullopt), ElementsAre("warm"));
  EXPECT_THAT(checks_of(queue("admissionChecks: [b, a]"), {{"f1"}}), ElementsAre("a", "b"));
  EXPECT_THAT(checks_of(queue("admissionChecks: [a]"), {std::set<std::string>{}}), IsEmpty()) << "nothing of it is counted";
  EXPECT_THAT(checks_of(queue("cohort: ''"), {{"f0"}}), IsEmpty());
}

TEST(AdmissionChecks, ADecisionWritesThemDown) {
  Json one = workload("[]", "");
  const Admission admission{.queue = "q", .pod_sets = {{.name = "main", .flavors = {{"cpu", "f1"}}, .usage = {{"cpu", 1000}}, .count = 1, .topology = {}}}};
  tell_admitted(one, admission, {"warm", "budget"}, now);
  EXPECT_EQ(states(one), "budget=Pending warm=Pending ");
  EXPECT_TRUE(kube::condition_is_true(one, "QuotaReserved"));
  EXPECT_EQ((*kube::find_condition(one, "Admitted"))["reason"].string(), "UnsatisfiedAdmissionChecks");
  Json none = workload("[]", "");
  tell_admitted(none, admission, {}, now);
  EXPECT_TRUE(kube::condition_is_true(none, "Admitted"));
  EXPECT_TRUE(none["status"]["admissionChecks"].items().empty());
  Json before = workload("[{name: budget, state: Ready, lastTransitionTime: '2026-11-23T11:00:00Z'}]", "");
  tell_admitted(before, admission, {"budget"}, now);
  EXPECT_TRUE(kube::condition_is_true(before, "Admitted")) << "it was ready before there was quota";
}

TEST(AdmissionChecks, AllReadyAdmits) {
  const QueueSpec spec = queue();
  EXPECT_FALSE(plan_checks(workload("[{name: budget, state: Pending}]"), &spec, now).status) << "waits";
  EXPECT_FALSE(plan_checks(workload("[{name: budget, state: Purple}]"), &spec, now).status) << "what nobody knows is not ready";
  const ChecksPlan plan = plan_checks(workload("[{name: budget, state: Ready}]"), &spec, now);
  EXPECT_EQ(condition(plan, "Admitted"), "True Admitted: The workload is admitted");
  ASSERT_EQ(plan.notes.size(), 1U);
  EXPECT_EQ(plan.notes[0].message, "Admitted by ClusterQueue q, wait time since reservation was 120s");
  EXPECT_FALSE(plan_checks(*plan.status, &spec, now).status) << "once";
  const ChecksPlan more = plan_checks(workload("[{name: budget, state: Ready}]", "f1"), &spec, now);
  EXPECT_EQ(states(*more.status), "budget=Ready warm=Pending ") << "one that is missing comes first";
  EXPECT_EQ(condition(more, "Admitted").substr(0, 5), "False");
  EXPECT_EQ(states(*plan_checks(workload("[{name: old, state: Pending}, {name: budget, state: Pending}]"), &spec, now).status), "budget=Pending ") << "one that the queue does not ask for any more";
  EXPECT_FALSE(plan_checks(workload("[{name: old, state: Pending}]"), nullptr, now).status) << "a queue that cannot be read changes nothing";
}

TEST(AdmissionChecks, WhatRunsGoesOnWhenItsQueueAsksForMore) {
  const QueueSpec spec = queue();
  const ChecksPlan plan = plan_checks(workload("[]", "f0", "'True', reason: Admitted"), &spec, now);
  EXPECT_EQ(states(*plan.status), "budget=Pending ");
  EXPECT_EQ(condition(plan, "Admitted").substr(0, 4), "True");
  EXPECT_EQ(condition(plan, "Evicted"), "none");
}

TEST(AdmissionChecks, RetryEvictsForAWhile) {
  const QueueSpec spec = queue();
  for (const char* admitted : {"'False', reason: UnsatisfiedAdmissionChecks", "'True', reason: Admitted"}) {
    const ChecksPlan plan = plan_checks(workload("[{name: budget, state: Retry, message: none is left, lastTransitionTime: '2026-11-23T11:59:30Z', requeueAfterSeconds: 60}]", "f0", admitted), &spec, now);
    EXPECT_EQ(condition(plan, "Evicted"), "True AdmissionCheck: Evicted due to AdmissionCheck in Retry state: \"budget\" (none is left)");
    EXPECT_EQ((*plan.status)["status"]["requeueState"]["requeueAt"].string(), "2026-11-23T12:00:30Z");
    EXPECT_FALSE(plan_checks(*plan.status, &spec, now).status) << "until it has stopped";
    EXPECT_EQ(states(*plan.status), "budget=Pending ") << "asked anew from here on";
    Json stopped = *plan.status;
    tell_stopped(stopped, now);
    EXPECT_EQ(states(stopped), "budget=Pending ");
    EXPECT_EQ(stopped["status"]["admissionChecks"].items().at(0)["retryCount"].integer(), 1);
    EXPECT_EQ((*kube::find_condition(stopped, "Requeued"))["status"].string(), "False");
    EXPECT_EQ(plan_checks(stopped, &spec, now).later, 30s);
    const ChecksPlan back = plan_checks(stopped, &spec, now + 30s);
    EXPECT_EQ(condition(back, "Requeued"), "True BackoffFinished: The workload backoff was finished");
    EXPECT_TRUE((*back.status)["status"]["requeueState"]["requeueAt"].is_null());
  }
  const ChecksPlan at_once = plan_checks(workload("[{name: budget, state: Retry}]"), &spec, now);
  EXPECT_TRUE((*at_once.status)["status"]["requeueState"].is_null());
}

// Between the eviction and its end a check may speak already: of the next round.
TEST(AdmissionChecks, AVerdictDuringAnEvictionStays) {
  for (const char* state : {"Ready", "Rejected", "Retry"}) {
    Json evicted = workload("[{name: budget, state: Ready}]");
    tell_evicted(evicted, "Preempted", "for another", VictimReason::InClusterQueue, now);
    EXPECT_EQ(states(evicted), "budget=Pending ");
    evicted.child("status").child("admissionChecks").items().at(0).set("state", state);
    tell_evicted(evicted, "Deactivated", "The workload is deactivated", std::nullopt, now);  // evicted already
    tell_stopped(evicted, now);
    EXPECT_EQ(states(evicted), std::string(state) == "Retry" ? "budget=Pending " : std::string("budget=") + state + " ");
  }
}

TEST(AdmissionChecks, RejectedDeactivates) {
  const QueueSpec spec = queue();
  const char* both = "[{name: warm, state: Rejected}, {name: budget, state: Rejected, message: too dear}]";
  for (const char* flavor : {"f1", ""}) {
    const ChecksPlan plan = plan_checks(workload(both, flavor), flavor[0] == 0 ? nullptr : &spec, now);
    EXPECT_EQ(condition(plan, "DeactivationTarget"), "True AdmissionCheck: AdmissionChecks in Rejected state: \"budget\" (too dear); \"warm\"") << flavor;
    EXPECT_EQ(condition(plan, "Evicted"), "none");
    EXPECT_FALSE(plan_checks(*plan.status, &spec, now).status) << "once";
  }
  // One that never had quota, deactivated and activated again: it stays active.
  Json again = *plan_checks(workload(both, ""), nullptr, now).status;
  again = *plan_run_limit(again, now).spec;
  again = *plan_checks(again, &spec, now).status;
  EXPECT_EQ((*kube::find_condition(again, "Evicted"))["message"].string(), "The workload is deactivated due to AdmissionChecks in Rejected state: \"budget\" (too dear); \"warm\"");
  again.child("spec").set("active", true);
  EXPECT_FALSE(plan_run_limit(again, now).spec);
  EXPECT_EQ(states(*plan_checks(again, &spec, now).status), "budget=Pending ");
  Json off = workload(both, "");
  off.child("spec").set("active", false);
  EXPECT_EQ(states(*plan_checks(off, &spec, now).status), "warm=Pending budget=Pending ") << "who activates it again is asked anew";
}

TEST(AdmissionChecks, OddTimesHarmNobody) {
  const QueueSpec spec = queue();
  for (const char* odd : {"-5", "9223372036854775807", "soon"})
    for (const char* since : {"'2026-11-23T11:59:30Z'", "''", "yesterday"}) {
      const ChecksPlan plan = plan_checks(workload(fmt::format("[{{name: budget, state: Retry, lastTransitionTime: {}, requeueAfterSeconds: {}}}]", since, odd)), &spec, now);
      EXPECT_EQ(condition(plan, "Evicted").substr(0, 4), "True");
    }
}

TEST(AdmissionChecks, TheirChangesGoIntoPods) {
  Json one = workload("[{name: budget, state: Ready, podSetUpdates: [{name: main, labels: {team: red}, annotations: {cost: '7'}, nodeSelector: {zone: a}, tolerations: [{key: warm, operator: Exists}]}, {name: other, labels: {no: way}}]}]");
  const FlavorsByName flavors{{"f0", yaml("{metadata: {name: f0}, spec: {nodeLabels: {kind: f0}}}")}};
  Json pods = yaml("{metadata: {labels: {app: x}}, spec: {nodeSelector: {zone: a}}}");
  EXPECT_EQ(put_flavors(pods, one, "main", flavors), "");
  EXPECT_EQ(kube::print_json(pods["metadata"]), R"({"labels":{"app":"x","kueue.x-k8s.io/podset":"main","kueue.x-k8s.io/cluster-queue-name":"q","kueue.x-k8s.io/local-queue-name":"q","team":"red"},"annotations":{"cost":"7"}})");
  EXPECT_EQ(kube::print_json(pods["spec"]), R"({"nodeSelector":{"zone":"a","kind":"f0"},"tolerations":[{"key":"warm","operator":"Exists"}]})");
  Json against = yaml("{metadata: {labels: {team: blue}}, spec: {}}");
  EXPECT_THAT(put_flavors(against, one, "main", flavors), HasSubstr("admission check budget asks for labels team=red where the pods have blue"));
}

TEST(AdmissionChecks, QueuesAndExplanationsNameThem) {
  Lab lab;
  lab.queue("a", "4", "", ", admissionChecks: [budget, licence]", "");
  lab.work("one", "a", "2");
  const auto reason = [&] {
    const Books books = lab.books();
    const auto view = books.queue_view("a");
    return view->reason + ": " + view->message;
  };
  EXPECT_EQ(reason(), "AdmissionCheckNotFound: Can't admit new workloads: references missing AdmissionCheck(s): budget,licence.");
  for (const char* name : {"budget", "licence"}) lab.put(fmt::format("{{kind: AdmissionCheck, metadata: {{name: {}}}, spec: {{controllerName: x/y}}}}", name));
  EXPECT_EQ(reason(), "AdmissionCheckInactive: Can't admit new workloads: references inactive AdmissionCheck(s): budget,licence.");
  for (const char* name : {"budget", "licence"}) lab.put(fmt::format("{{kind: AdmissionCheck, metadata: {{name: {}}}, spec: {{controllerName: x/y}}, status: {{conditions: [{{type: Active, status: 'True'}}]}}}}", name));
  EXPECT_EQ(reason(), "Ready: Can admit new workloads");

  Books books = lab.books();
  auto write = books.write_of({"lab", "one"}, now);
  ASSERT_TRUE(write);
  EXPECT_EQ(states(write->object), "budget=Pending licence=Pending ");
  EXPECT_EQ(write->notes.size(), 1U) << "no event says that it is admitted";
  lab.set(write->object);
  const Json told = to_json(*explain(lab.books(), {"lab", "one"}));
  EXPECT_EQ(told["message"].string(), "It has its quota and waits for admission checks: budget (Pending), licence (Pending)");
  EXPECT_EQ(queue_view(lab.books())["workloads"].items().at(0)["waitsFor"].string(), "admission checks: budget (Pending), licence (Pending)");

  // One that waits and that a check does not let through is not in line.
  lab.work("two", "a", "4");
  lab.at("Workload", "two").set("status", yaml("{admissionChecks: [{name: budget, state: Retry, message: later}]}"));
  EXPECT_THAT(to_json(*explain(lab.books(), {"lab", "two"}))["message"].string(), HasSubstr("failed admission checks: budget (Retry: later)"));
}

}  // namespace
}  // namespace fairlead::governance
