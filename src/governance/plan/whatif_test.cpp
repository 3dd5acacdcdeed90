// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/whatif.h"

#include <gmock/gmock.h>

#include "base/test_rounds.h"
#include "governance/plan/explain_lab.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using kube::ObjectKey;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Place = Books::Place;

const Instant noon = *parse_time("2026-11-23T12:00:00Z");

Json yaml(const std::string& text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message) << text;
  return parsed->at(0);
}
WhatIf ask(const std::vector<Json>& objects, const std::vector<std::string>& changes, const std::vector<std::string>& without = {}) {
  WhatIfInput in{.objects = objects, .changes = {}, .without = without, .space = "lab", .now = noon};
  for (const std::string& text : changes) in.changes.push_back(yaml(text));
  auto answer = whatif(in);
  EXPECT_TRUE(answer) << answer.error().message;
  return answer ? std::move(*answer) : WhatIf{};
}
std::string problem_of(const std::vector<Json>& objects, const std::string& change, const std::vector<std::string>& without = {}) {
  WhatIfInput in{.objects = objects, .changes = {}, .without = without, .space = "lab", .now = noon};
  if (!change.empty()) in.changes.push_back(yaml(change));
  auto answer = whatif(in);
  return answer ? "" : answer.error().message;
}
std::vector<std::string> names(const std::vector<WhatIf::Shift>& shifts) {
  std::vector<std::string> out;
  for (const WhatIf::Shift& one : shifts) {
    std::string text = one.workload.name;
    if (one.position_before > 0 || one.position_after > 0) text += fmt::format(" {}->{}", one.position_before, one.position_after);
    if (one.preempted) text += fmt::format(" {} {}", governance::text(*one.preempted), one.preempted_by.name);
    for (const ObjectKey& key : one.after_stop_of) text += " after " + key.name;
    out.push_back(std::move(text));
  }
  return out;
}
void expect_no_shift(const WhatIf& it) {
  EXPECT_THAT(names(it.starts), IsEmpty());
  EXPECT_THAT(names(it.stops), IsEmpty());
  EXPECT_THAT(names(it.waits), IsEmpty());
  EXPECT_THAT(names(it.moves), IsEmpty());
  EXPECT_THAT(names(it.leaves), IsEmpty());
  EXPECT_TRUE(it.settled);
}

// A has 6 and uses 2, B has 5 and uses 4; B asks for 4 more, and may borrow 2.
Lab worked_example() {
  Lab lab;
  lab.queue("a", "6"), lab.queue("b", "5", ", borrowingLimit: 2");
  lab.work("a1", "a", "2", 0, "f0"), lab.work("b1", "b", "4", 0, "f0"), lab.work("b2", "b", "4"), lab.work("b3", "b", "4");
  return lab;
}
std::string quota_of_b(const std::string& limit) {
  return fmt::format("{{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {{name: b}}, spec: {{resourceGroups: [{{coveredResources: [cpu], flavors: [{{name: f0, resources: [{{name: cpu, nominalQuota: 5, borrowingLimit: {}}}]}}]}}]}}}}", limit);
}
std::string workload(const std::string& name, const std::string& queue, int cpu, int priority = 0) {
  return fmt::format("{{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {{name: {}}}, spec: {{queueName: {}, priority: {}, podSets: [{{name: main, count: 1, template: {{spec: {{containers: [{{name: c, resources: {{requests: {{cpu: {}}}}}}}]}}}}}}]}}}}", name, queue,
                     priority, cpu);
}
std::string job(const std::string& name, const std::string& queue, int cpu, const std::string& labels = "") {
  return fmt::format("{{apiVersion: batch/v1, kind: Job, metadata: {{name: {}, labels: {{kueue.x-k8s.io/queue-name: {}{}}}}}, spec: {{template: {{spec: {{restartPolicy: Never, containers: [{{name: c, resources: {{requests: {{cpu: {}}}}}}}]}}}}}}}}", name, queue, labels, cpu);
}

TEST(WhatIf, AHigherLimitStartsTheFirstInLineAndMovesTheOthers) {
  const WhatIf it = ask(worked_example().objects(), {quota_of_b("3")});
  EXPECT_THAT(names(it.starts), ElementsAre("b2 1->0"));
  EXPECT_THAT(names(it.moves), ElementsAre("b3 2->1"));
  EXPECT_THAT(names(it.stops), IsEmpty());
  ASSERT_EQ(it.changes.size(), 1U);
  EXPECT_EQ(it.changes[0].what, "Changed");
}

TEST(WhatIf, WhatIsAsItIsChangesNothing) {
  const WhatIf it = ask(worked_example().objects(), {quota_of_b("2")});
  expect_no_shift(it);
  EXPECT_EQ(it.changes[0].what, "Unchanged");
}

TEST(WhatIf, ANewWorkloadWaitsAsTheYoungest) {
  const WhatIf it = ask(worked_example().objects(), {workload("b4", "b", 4)});
  EXPECT_THAT(names(it.waits), ElementsAre("b4 0->3"));
  EXPECT_THAT(it.waits[0].waits_for, HasSubstr("borrowingLimit of ClusterQueue b"));
  EXPECT_THAT(names(it.moves), IsEmpty());
}

TEST(WhatIf, AHigherPriorityGoesBeforeOthers) {
  const WhatIf it = ask(worked_example().objects(), {workload("b4", "b", 7, 9)});
  // It takes from what its own queue runs, which comes back behind it.
  EXPECT_THAT(names(it.starts), ElementsAre("b4 after b1"));
  EXPECT_THAT(names(it.stops), ElementsAre("b1 0->1 InClusterQueue b4"));
  EXPECT_THAT(names(it.moves), ElementsAre("b2 1->2", "b3 2->3"));
}

std::string training(const std::string& name, const std::string& queue, int pods, const std::string& cpu) {
  return fmt::format("{{apiVersion: sagemaker.amazonaws.com/v1, kind: HyperPodPyTorchJob, metadata: {{name: {}, namespace: lab, labels: {{kueue.x-k8s.io/queue-name: {}}}}}, "
                     "spec: {{replicaSpecs: [{{name: pods, replicas: {}, template: {{spec: {{containers: [{{name: c, resources: {{requests: {{cpu: '{}'}}}}}}]}}}}}}]}}}}", name, queue, pods, cpu);
}
TEST(WhatIf, AGangOfAnotherControllerIsOneJob) {
  const WhatIf fits = ask(worked_example().objects(), {training("llm", "a", 2, "1")});
  ASSERT_EQ(fits.starts.size(), 1U);
  EXPECT_EQ(fits.starts[0].owner, "hyperpodpytorchjob/llm");
  EXPECT_EQ(fits.changes[0].what, "Created");
  const WhatIf waits = ask(worked_example().objects(), {training("llm", "b", 4, "1")});
  EXPECT_THAT(names(waits.starts), IsEmpty());
  ASSERT_EQ(waits.waits.size(), 1U);
  EXPECT_EQ(waits.waits[0].owner, "hyperpodpytorchjob/llm");
  // One that is there, asked for otherwise, and left out.
  Lab lab = worked_example();
  std::vector<Json> objects = lab.objects();
  for (Json& one : objects)
    if (one["kind"].string() == "Workload" && kube::name_of(one) == "b2") one.child("metadata").set("ownerReferences", yaml("[{apiVersion: sagemaker.amazonaws.com/v1, kind: HyperPodPyTorchJob, name: llm, uid: u, controller: true}]"));
  const WhatIf smaller = ask(objects, {training("llm", "b", 1, "1")});
  EXPECT_EQ(smaller.changes[0].what, "Changed");
  ASSERT_EQ(smaller.starts.size(), 1U);
  EXPECT_EQ(smaller.starts[0].workload.name, "b2");
  EXPECT_EQ(ask(objects, {}, {"hyperpodpytorchjob/llm"}).changes[0].what, "Removed");
  EXPECT_THAT(problem_of(objects, "", {"jobset/llm"}), HasSubstr("there is no workload of jobset/llm"));
  EXPECT_THAT(problem_of(objects, "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: x}}"), HasSubstr("no label kueue.x-k8s.io/queue-name"));
  EXPECT_THAT(problem_of(objects, "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: x, labels: {kueue.x-k8s.io/queue-name: a}}, spec: {replicatedJobs: 7}}"), HasSubstr("spec.replicatedJobs"));
  EXPECT_THAT(problem_of(objects, "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: x, labels: {kueue.x-k8s.io/queue-name: a}}, spec: {runPolicy: 7}}"), HasSubstr("not of the form"));
  for (const char* kind : {"kubeflow.org/v1, kind: PyTorchJob", "kubeflow.org/v2beta1, kind: MPIJob", "sagemaker.amazonaws.com/v1, kind: HyperPodPyTorchJob"})
    for (const char* odd : {"{runPolicy: true}", "{runPolicy: {suspend: 7}}", "{runPolicy: {suspend: {}}}", "true", "[]"})
      EXPECT_THAT(problem_of(objects, fmt::format("{{apiVersion: {}, metadata: {{name: x, labels: {{kueue.x-k8s.io/queue-name: a}}}}, spec: {}}}", kind, odd)), testing::AnyOf(HasSubstr("not of the form"), HasSubstr("spec: an object is expected"))) << kind << odd;
  EXPECT_THAT(problem_of(objects, "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: x, labels: {kueue.x-k8s.io/queue-name: a}}, spec: {suspend: 7}}"), HasSubstr("not of the form"));
}
TEST(WhatIf, AnOwnerTakesItsOwnBack) {
  Lab lab = worked_example();
  lab.queue("b", "5", ", borrowingLimit: 3");
  lab.work("b2", "b", "4", 0, "f0");
  const WhatIf it = ask(lab.objects(), {job("a2", "a", 4)});
  ASSERT_EQ(it.starts.size(), 1U);
  EXPECT_EQ(it.starts[0].owner, "job/a2");
  EXPECT_THAT(it.starts[0].after_stop_of, ElementsAre(ObjectKey{"lab", "b2"}));
  ASSERT_EQ(it.stops.size(), 1U);
  EXPECT_EQ(it.stops[0].workload.name, "b2");
  EXPECT_EQ(it.stops[0].preempted, VictimReason::InCohortReclamation);
  EXPECT_EQ(it.stops[0].after, Place::Waiting);
  const Json json = to_json(it);
  EXPECT_EQ(json["stops"].items().at(0)["for"]["owner"].string(), "job/a2");
  EXPECT_EQ(json["stops"].items().at(0)["reason"].string(), "InCohortReclamation");
}

TEST(WhatIf, WithoutOneOthersStart) {
  const WhatIf it = ask(worked_example().objects(), {}, {"workload/b1"});
  EXPECT_THAT(names(it.starts), ElementsAre("b2 1->0"));
  EXPECT_THAT(names(it.leaves), ElementsAre("b1"));
  EXPECT_FALSE(it.leaves[0].after);
}

TEST(WhatIf, AQueueThatGoesKeepsWhatItRuns) {
  const WhatIf it = ask(worked_example().objects(), {}, {"clusterqueue/b"});
  EXPECT_THAT(names(it.stops), IsEmpty());
  EXPECT_THAT(names(it.leaves), ElementsAre("b2 1->0", "b3 2->0"));
  ASSERT_EQ(it.problems.size(), 1U);
  EXPECT_EQ(it.problems[0].reason, "Terminating");
}

TEST(WhatIf, DrainingStopsWhatRuns) {
  const WhatIf it = ask(worked_example().objects(), {"{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: b}, spec: {stopPolicy: HoldAndDrain}}"});
  EXPECT_THAT(names(it.stops), ElementsAre("b1"));
  EXPECT_EQ(it.stops[0].after, Place::Out);
  EXPECT_THAT(names(it.leaves), ElementsAre("b2 1->0", "b3 2->0"));
}

TEST(WhatIf, TheOlderVersionOfTheApiIsUnderstood) {
  const WhatIf it = ask(worked_example().objects(), {"{apiVersion: kueue.x-k8s.io/v1beta1, kind: ClusterQueue, metadata: {name: b}, spec: {cohort: elsewhere}}"});
  EXPECT_THAT(it.changes.at(0).what, "Changed");
  EXPECT_THAT(names(it.stops), IsEmpty());  // b1 is within its own quota
}

TEST(WhatIf, WhatIsBeingStoppedAnywayIsNoEffect) {
  Lab lab = worked_example();
  lab.queue("b", "5", ", borrowingLimit: 3");
  lab.work("b2", "b", "4", 0, "f0"), lab.work("a2", "a", "4");
  expect_no_shift(ask(lab.objects(), {"{apiVersion: v1, kind: Namespace, metadata: {name: lab, labels: {x: y}}}"}));
}

TEST(WhatIf, AJobThatIsChangedWhileItRunsStandsInLineAnew) {
  Lab lab = worked_example();
  Json& run = lab.at("Workload", "b1");
  run.child("metadata").set("ownerReferences", Json::array({Json::object({{"apiVersion", "batch/v1"}, {"kind", "Job"}, {"name", "train"}, {"uid", "j1"}, {"controller", true}})}));
  auto objects = lab.objects();
  Json there = yaml(job("train", "b", 4));
  there.child("metadata").set("namespace", "lab").set("uid", "j1");
  objects.push_back(there);
  expect_no_shift(ask(objects, {job("train", "b", 4)}));
  const WhatIf it = ask(objects, {job("train", "b", 40)});
  ASSERT_EQ(it.stops.size(), 1U);
  EXPECT_TRUE(it.stops[0].anew);
  EXPECT_THAT(it.stops[0].waits_for, HasSubstr("never fits"));
  EXPECT_THAT(names(it.starts), ElementsAre("b2 1->0"));
}

TEST(WhatIf, PriorityClassesOfJobsAreLookedUpAndMissingOnesNamed) {
  Lab lab = worked_example();
  lab.put("{kind: WorkloadPriorityClass, metadata: {name: high}, value: 9}");
  const WhatIf it = ask(lab.objects(), {job("b4", "b", 7, ", kueue.x-k8s.io/priority-class: high")});
  ASSERT_EQ(it.starts.size(), 1U);
  EXPECT_THAT(problem_of(lab.objects(), job("b4", "b", 7, ", kueue.x-k8s.io/priority-class: hihg")), HasSubstr("there is no WorkloadPriorityClass hihg; there are: high"));
  // A class of another value moves those that wait with it.
  lab.at("Workload", "b3").child("spec").set("priorityClassRef", Json::object({{"group", "kueue.x-k8s.io"}, {"kind", "WorkloadPriorityClass"}, {"name", "low"}}));
  lab.put("{kind: WorkloadPriorityClass, metadata: {name: low}, value: 0}");
  EXPECT_THAT(names(ask(lab.objects(), {"{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {name: low}, value: -5}"}).moves), IsEmpty());  // it is last already
  EXPECT_THAT(names(ask(lab.objects(), {"{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {name: low}, value: 5}"}).stops), ElementsAre("b1 0->1 InClusterQueue b3"));
}

TEST(WhatIf, AClassOfAnotherValueCountsForThoseThatRun) {
  Lab lab = worked_example();
  for (const char* name : {"b1", "b2"}) lab.at("Workload", name).child("spec").set("priorityClassRef", Json::object({{"group", "kueue.x-k8s.io"}, {"kind", "WorkloadPriorityClass"}, {"name", "low"}}));
  lab.put("{kind: WorkloadPriorityClass, metadata: {name: low}, value: 0}");
  // b3 would pre-empt b1, were it not for that.
  const std::string urgent = "{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {name: b3}, spec: {priority: 5}}";
  EXPECT_THAT(names(ask(lab.objects(), {urgent}).stops), ElementsAre("b1 0->1 InClusterQueue b3"));
  EXPECT_THAT(names(ask(lab.objects(), {urgent, "{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {name: low}, value: 8}"}).stops), IsEmpty());
}

TEST(WhatIf, OfSeveralDefaultsTheLowestCounts) {
  Lab lab = worked_example();
  for (const auto& [name, value] : {std::pair("a", 7), std::pair("b", 3), std::pair("c", 5)}) lab.put(fmt::format("{{kind: PriorityClass, metadata: {{name: {}}}, value: {}, globalDefault: true}}", name, value));
  lab.at("Workload", "b2").child("spec").set("priority", 4), lab.at("Workload", "b3").child("spec").set("priority", 2);
  lab.at("Workload", "b1").child("spec").set("priority", 9);
  EXPECT_THAT(names(ask(lab.objects(), {job("b4", "b", 4)}).waits), ElementsAre(HasSubstr("0->2")));
}

TEST(WhatIf, AJobThatHasEndedIsNotStartedAgain) {
  Lab lab = worked_example();
  const std::string again = job("old", "b", 1);
  Json ended = yaml(again);
  ended.child("metadata").set("namespace", "lab").set("uid", "u-old");
  ended.set("status", yaml("{conditions: [{type: Complete, status: 'True'}]}"));
  lab.set(ended);
  EXPECT_THAT(problem_of(lab.objects(), again), HasSubstr("it has ended and never runs again"));
}

TEST(WhatIf, PodsAndGroupsOfThemBecomeWorkloads) {
  Lab lab = worked_example();
  const auto pod = [](const std::string& name, const std::string& more, int cpu, const std::string& gate = "{name: kueue.x-k8s.io/admission}") {
    return fmt::format("{{apiVersion: v1, kind: Pod, metadata: {{name: {}, labels: {{kueue.x-k8s.io/queue-name: a{}}}, annotations: {{kueue.x-k8s.io/pod-group-total-count: '2'}}}}, spec: {{schedulingGates: [{}], containers: [{{name: c, resources: {{requests: {{cpu: {}}}}}}}]}}}}", name, more, gate, cpu);
  };
  const WhatIf alone = ask(lab.objects(), {pod("one", "", 3)});
  ASSERT_EQ(alone.starts.size(), 1U);
  EXPECT_EQ(alone.starts[0].owner, "pod/one");
  const std::string ring = ", kueue.x-k8s.io/pod-group-name: ring";
  EXPECT_THAT(names(ask(lab.objects(), {pod("r1", ring, 2), pod("r2", ring, 2)}).starts), ElementsAre("ring"));
  EXPECT_THAT(names(ask(lab.objects(), {pod("r1", ring, 20), pod("r2", ring, 2)}).waits), ElementsAre("ring 0->1"));
  EXPECT_THAT(problem_of(lab.objects(), pod("r1", ring, 2)), HasSubstr("'ring' group has fewer runnable pods than expected: 2 are needed"));
  EXPECT_THAT(problem_of(lab.objects(), pod("one", "", 3, "")), HasSubstr("no scheduling gate"));
  EXPECT_THAT(problem_of(lab.objects(), pod("one", ", kueue.x-k8s.io/priority-class: unknown", 3)), HasSubstr("there is no WorkloadPriorityClass unknown"));
  EXPECT_THAT(problem_of(lab.objects(), "{apiVersion: v1, kind: Pod, metadata: {name: one}, spec: {containers: []}}"), HasSubstr("it has no label kueue.x-k8s.io/queue-name"));
  Json there = yaml(pod("one", "", 3));
  there.child("metadata").set("namespace", "lab");
  lab.set(there);
  EXPECT_THAT(problem_of(lab.objects(), pod("one", "", 3)), HasSubstr("it is there"));
}

TEST(WhatIf, QuotasOfTeamsBecomeQueuesOrAreRefusedWithTheNumbers) {
  Lab lab;
  lab.put("{kind: Node, metadata: {name: n, labels: {node.kubernetes.io/instance-type: t}}, status: {allocatable: {cpu: 10}}}");
  const auto quota = [](int cpu) { return fmt::format("{{apiVersion: fairlead.dev/v1alpha1, kind: ComputeQuota, metadata: {{name: red}}, spec: {{teamName: red, computeQuotaResources: [{{instanceType: t, vCpu: {}}}]}}}}", cpu); };
  const WhatIf it = ask(lab.objects(), {quota(4), "{apiVersion: batch/v1, kind: Job, metadata: {name: j, namespace: hyperpod-ns-red, labels: {kueue.x-k8s.io/queue-name: hyperpod-ns-red-localqueue}}, spec: {template: {spec: {containers: [{name: c, resources: {requests: {cpu: 3}}}]}}}}"});
  EXPECT_THAT(it.problems, IsEmpty());
  ASSERT_EQ(it.starts.size(), 1U);
  EXPECT_EQ(it.starts[0].queue, "hyperpod-ns-red-clusterqueue");
  const WhatIf refused = ask(lab.objects(), {quota(11)});
  ASSERT_EQ(refused.problems.size(), 1U);
  EXPECT_EQ(refused.problems[0].reason, "OverCapacity");
}

TEST(WhatIf, WithoutWeightsTheOrderIsThatOfSubmission) {
  // Both borrow; the one with less would go first by share, the older one without.
  Lab lab;
  lab.queue("a", "1"), lab.queue("b", "1"), lab.queue("c", "2");
  lab.work("b1", "b", "2", 0, "f0"), lab.work("b2", "b", "1"), lab.work("a1", "a", "2");
  lab.work("c1", "c", "1", 0, "f0");
  const WhatIf it = ask(lab.objects(), {"{apiVersion: fairlead.dev/v1alpha1, kind: SchedulerConfig, metadata: {name: p}, spec: {fairShare: Disabled}}"});
  EXPECT_TRUE(it.settled);
  // Whatever the two orders are, they are those of books that were told the policy.
  Books books = lab.books();
  books.set_fair(false);
  books.decide();
  for (const ObjectKey& key : books.workloads()) {
    const bool starts = std::any_of(it.starts.begin(), it.starts.end(), [&](const auto& one) { return one.workload == key; });
    if (starts) { EXPECT_EQ(books.standing(key)->place, Place::Running) << key.name; }
  }
}

TEST(WhatIf, WhatCannotBeMeantIsRefused) {
  const auto objects = worked_example().objects();
  EXPECT_THAT(problem_of(objects, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: x}}"), HasSubstr("Deployment x: what-if does not know what task governance makes of this kind; it takes Namespace, "));
  EXPECT_THAT(problem_of(objects, "{apiVersion: v2, kind: Job, metadata: {name: x}}"), HasSubstr("apiVersion v2"));
  EXPECT_THAT(problem_of(objects, "{apiVersion: batch/v1, kind: Job, metadata: {name: x}}"), HasSubstr("no label kueue.x-k8s.io/queue-name"));
  EXPECT_THAT(problem_of(objects, "", {"b1"}), HasSubstr("usage: \"b1\" is no KIND/NAME"));
  EXPECT_THAT(problem_of(objects, "", {"pod/b1"}), HasSubstr("what can be left out is one of"));
  EXPECT_THAT(problem_of(objects, "", {"workload/gone"}), HasSubstr("there is no Workload gone in namespace lab"));
  EXPECT_THAT(problem_of(objects, "", {"job/gone"}), HasSubstr("there is no workload of job/gone"));
  // One that cannot be read makes its queue inactive, which is told.
  const WhatIf it = ask(objects, {quota_of_b("-1")});
  ASSERT_EQ(it.problems.size(), 1U);
  EXPECT_EQ(it.problems[0].kind, "ClusterQueue");
  EXPECT_THAT(it.problems[0].message, HasSubstr("borrowingLimit"));
}

// The answer is what books decide that were told the changed objects from the start, where nothing is stopped by it.
TEST(WhatIfProperty, IsWhatFreshBooksDecide) {
  for (std::uint64_t seed = 0; seed < test_rounds<std::uint64_t>(300, 20'000); ++seed) {
    Lab lab = Lab::random(seed);
    std::mt19937_64 rng(seed + 7);
    const Json* queue = nullptr;
    const auto objects = lab.objects();
    for (const Json& object : objects)
      if (object["kind"].string() == "ClusterQueue" && (queue == nullptr || rng() % 2 == 0)) queue = &object;
    Json change = *queue;
    change.set("apiVersion", "kueue.x-k8s.io/v1beta2");
    change.child("spec").child("resourceGroups").items()[0].child("flavors").items()[0].child("resources").items()[0].set("nominalQuota", static_cast<std::int64_t>(rng() % 12));
    const auto answer = whatif({.objects = objects, .changes = {change}, .without = {}, .space = "lab", .now = noon});
    ASSERT_TRUE(answer) << seed;
    EXPECT_TRUE(answer->settled) << "seed " << seed;
    const auto again = whatif({.objects = objects, .changes = {change}, .without = {}, .space = "lab", .now = noon});
    EXPECT_EQ(kube::print_json(to_json(*answer)), kube::print_json(to_json(*again))) << "seed " << seed;
    if (!answer->stops.empty()) continue;
    Books before = books_of(objects);
    lab.set(change);
    const Books fresh = lab.books();
    // Neither is to have decided anything before that the change would have made otherwise, or to stop anybody.
    bool decided = false;
    for (const ObjectKey& key : before.workloads())
      decided = decided || before.standing(key)->place == Place::Stopping || fresh.standing(key)->place == Place::Stopping || (before.standing(key)->place == Place::Running && !before.standing(key)->spec->reserved.is);
    if (decided) continue;
    for (const ObjectKey& key : fresh.workloads()) {
      const bool was = before.standing(key)->place == Place::Running, is = fresh.standing(key)->place == Place::Running;
      const bool told = std::any_of(answer->starts.begin(), answer->starts.end(), [&, &of = key](const auto& one) { return one.workload == of; });
      if (before.standing(key)->spec->reserved.is) continue;  // those are the same in both
      EXPECT_EQ(told, is && !was) << "seed " << seed << " " << key.name << "\n" << lab.text();
    }
  }
}

}  // namespace
}  // namespace fairlead::governance
