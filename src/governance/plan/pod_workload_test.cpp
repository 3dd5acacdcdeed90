// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/pod_workload.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

namespace fairlead::governance {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using What = OwnerStep::What;

Json yaml(const std::string& text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed) << parsed.error().message << "\n" << text;
  return parsed->at(0);
}

// Pods with their Workload; steps are taken on them as an API would.
class PodPlans : public testing::Test {
 protected:
  PodPlans() {
    in_.now = *parse_time("2026-11-23T10:00:00Z");
    in_.flavors["h200"] = yaml("{metadata: {name: h200}, spec: {nodeLabels: {kind: h200}, tolerations: [{key: gpu, operator: Exists}]}}");
  }
  Json& add(const std::string& name, const std::string& cpu = "2") {
    const std::string group = in_.group.empty() ? "" : fmt::format(", {}: {}", kGroupLabel, in_.group);
    in_.pods.push_back(yaml(fmt::format("{{apiVersion: v1, kind: Pod, metadata: {{name: {0}, namespace: lab, uid: u-{0}, creationTimestamp: '2026-11-23T09:00:{3:02}Z', resourceVersion: '1', labels: {{kueue.x-k8s.io/queue-name: team-a{1}}}, annotations: {{{5}: '{4}'}}}}, "
                                        "spec: {{nodeSelector: {{zone: '1'}}, schedulingGates: [{{name: kueue.x-k8s.io/admission}}, {{name: other}}], containers: [{{name: c, resources: {{requests: {{cpu: {2}}}}}}}]}}, status: {{phase: Pending}}}}",
                                        name, group, cpu, in_.pods.size(), total_, in_.group.empty() ? "x" : kGroupCount)));
    return in_.pods.back();
  }
  void group(int total) { in_.group = "ring", total_ = total; }
  Json& pod(const std::string& name) {
    return *std::find_if(in_.pods.begin(), in_.pods.end(), [&](const Json& one) { return kube::name_of(one) == name; });
  }
  bool has(const std::string& name) const {
    return std::any_of(in_.pods.begin(), in_.pods.end(), [&](const Json& one) { return kube::name_of(one) == name; });
  }
  std::vector<std::string> run() {
    std::vector<std::string> out;
    gave_back_ = false;
    for (int round = 0; round < 60; ++round) {
      const OwnerPlan plan = plan_pods(in_);
      problem_ = plan.problem;
      if (!plan.step) return out;
      out.push_back(text(plan.step->what, kube::name_of(plan.step->object)));
      if (plan.step->gives_back) gave_back_ = true;
      EXPECT_EQ(plan.step->stops, plan.step->what == What::OwnerStatus || (plan.step->what == What::DeleteOwner && !gated(plan.step->object))) << out.back();
      take(*plan.step);
    }
    ADD_FAILURE() << "does not come to an end";
    return out;
  }
  void take(const OwnerStep& step) {
    Json object = step.object;
    object.child("metadata").set("resourceVersion", std::to_string(++version_));
    const std::string name = kube::name_of(object);
    switch (step.what) {
      case What::CreateWorkload: in_.workloads.push_back(object); break;
      case What::UpdateWorkload:
      case What::WorkloadStatus:
        in_.workloads.at(0) = object;
        if (kube::deleting(object) && !kube::has_finalizer(object, kInUse)) in_.workloads.clear();
        break;
      case What::DeleteWorkload: in_.workloads.at(0).child("metadata").set("deletionTimestamp", "2026-11-23T10:00:00Z"); break;
      case What::UpdateOwner:
      case What::OwnerStatus: pod(name) = object; break;
      case What::DeleteOwner: remove(name); break;
    }
    for (std::size_t i = in_.pods.size(); i-- > 0;)
      if (kube::deleting(in_.pods[i]) && !kube::has_finalizer(in_.pods[i], kManaged) && (gated(in_.pods[i]) || phase(in_.pods[i]) != "Running")) in_.pods.erase(in_.pods.begin() + static_cast<std::ptrdiff_t>(i));
  }
  static bool gated(const Json& pod) { return !uses_quota(pod) && phase(pod) == "Pending"; }
  static std::string phase(const Json& pod) { return pod["status"]["phase"].string(); }
  void remove(const std::string& name) { pod(name).child("metadata").set("deletionTimestamp", "2026-11-23T10:00:00Z"); }
  void set_phase(const std::string& name, const std::string& phase) { pod(name).child("status").set("phase", phase); }
  void all_run() {
    for (Json& one : in_.pods)
      if (uses_quota(one)) one.child("status").set("phase", "Running");
  }
  // A node is done with what it was to stop.
  void ended(const std::string& name) { in_.pods.erase(in_.pods.begin() + (&pod(name) - in_.pods.data())); }
  Json& workload() { return in_.workloads.at(0); }
  void admit() {
    Admission admission{.queue = "team-a", .pod_sets = {}};
    for (const Json& set : workload()["spec"]["podSets"].items())
      admission.pod_sets.push_back({.name = set["name"].string(), .flavors = {{"cpu", "h200"}}, .usage = {{"cpu", 2000}}, .count = static_cast<std::int32_t>(set["count"].integer()), .topology = {}});
    tell_admitted(workload(), admission, {}, in_.now);
  }
  void evict() { tell_evicted(workload(), "Preempted", "for another", VictimReason::InCohortReclamation, in_.now); }

  PodsInput in_;
  std::string problem_;
  bool gave_back_ = false;
  int version_ = 1, total_ = 1;
};
using PodGroupPlans = PodPlans;

TEST_F(PodPlans, AGatedPodBecomesAWorkload) {
  in_.priority = {.value = 7, .ref = yaml("{group: kueue.x-k8s.io, kind: WorkloadPriorityClass, name: high}"), .problem = ""};
  add("train");
  EXPECT_THAT(run(), ElementsAre("update train", "create Workload"));
  EXPECT_EQ(pod("train")["metadata"]["labels"][kManaged].string(), "true");
  EXPECT_TRUE(kube::has_finalizer(pod("train"), kManaged));
  EXPECT_EQ(pod("train")["metadata"]["annotations"][kRoleHash].string().size(), 8U);
  EXPECT_EQ(kube::name_of(workload()), "pod-train-e11f3") << "as Kueue names it";
  EXPECT_EQ((*kube::controller_of(workload()))["uid"].string(), "u-train");
  EXPECT_TRUE(kube::has_finalizer(workload(), kInUse));
  EXPECT_EQ(workload()["spec"]["priority"].integer(), 7);
  EXPECT_EQ(workload()["spec"]["queueName"].string(), "team-a");
  EXPECT_EQ(workload()["spec"]["podSets"].items().at(0)["template"]["spec"]["containers"].items().size(), 1U);
  EXPECT_EQ(plan_pods(in_).problem, "");
}

TEST_F(PodPlans, WhatAPodSaysOfItsRunTimeIsSaidByItsWorkload) {
  add("train").child("metadata").child("annotations").set("fairlead.dev/run-time", "2h");
  run();
  EXPECT_EQ(workload()["metadata"]["annotations"]["fairlead.dev/run-time"].string(), "2h");
}

TEST_F(PodPlans, IsLetGoToTheNodesOfItsFlavor) {
  add("train");
  run();
  admit();
  EXPECT_THAT(run(), ElementsAre("update train"));
  const Json& spec = pod("train")["spec"];
  EXPECT_EQ(kube::print_json(spec["schedulingGates"]), R"([{"name":"other"}])") << "the gates of others stay";
  EXPECT_EQ(kube::print_json(spec["nodeSelector"]), R"({"zone":"1","kind":"h200"})");
  EXPECT_EQ(kube::print_json(spec["tolerations"]), R"([{"key":"gpu","operator":"Exists"}])");
  EXPECT_EQ(pod("train")["metadata"]["labels"][kPodSetLabel].string(), "main");
  EXPECT_THAT(run(), IsEmpty());
}

TEST_F(PodPlans, IsDeletedWhenItIsEvictedAndItsQuotaGoesAfterIt) {
  add("train");
  run(), admit(), run(), all_run();
  evict();
  EXPECT_THAT(run(), ElementsAre("write status of train", "delete train", "update train"));
  const Json* told = kube::find_condition(pod("train"), "TerminationTarget");
  ASSERT_NE(told, nullptr);
  EXPECT_EQ((*told)["reason"].string() + ": " + (*told)["message"].string(), "WorkloadEvicted: for another");
  EXPECT_TRUE(holds_quota(workload())) << "as long as it is there";
  ended("train");
  EXPECT_THAT(run(), ElementsAre("delete Workload", "update Workload"));
  EXPECT_TRUE(gave_back_);
}

TEST_F(PodPlans, OneThatHasNotStartedIsNotDeletedWhenItIsEvicted) {
  add("train");
  run(), admit(), evict();
  EXPECT_THAT(run(), ElementsAre("write status of Workload"));
  EXPECT_TRUE(gave_back_);
  EXPECT_TRUE(kube::condition_is_true(workload(), "Requeued"));
  admit();
  EXPECT_THAT(run(), ElementsAre("update train"));
}

TEST_F(PodPlans, ItsEndIsItsWorkloads) {
  add("train");
  run(), admit(), run(), all_run();
  set_phase("train", "Failed");
  pod("train").child("status").set("message", "out of memory");
  EXPECT_THAT(run(), ElementsAre("write status of Workload", "update Workload", "update train"));
  const Json* told = kube::find_condition(workload(), "Finished");
  ASSERT_NE(told, nullptr);
  EXPECT_EQ((*told)["reason"].string() + ": " + (*told)["message"].string(), "Failed: out of memory");
  EXPECT_FALSE(kube::has_finalizer(workload(), kInUse));
  EXPECT_FALSE(kube::has_finalizer(pod("train"), kManaged));
  EXPECT_THAT(run(), IsEmpty()) << "both stay";
}

TEST_F(PodPlans, ADeletedPodIsLetGoAtOnceAndItsWorkloadGoesWithIt) {
  add("train");
  run(), admit(), run(), all_run();
  remove("train");
  EXPECT_THAT(run(), ElementsAre("update train"));
  EXPECT_EQ(in_.workloads.size(), 1U);
  ended("train");
  EXPECT_THAT(run(), ElementsAre("delete Workload", "update Workload"));
  EXPECT_TRUE(gave_back_);
  EXPECT_THAT(in_.workloads, IsEmpty());
}

TEST_F(PodPlans, ADeletedWorkloadStopsAPodThatRunsAndQueuesOneThatWaitsAnew) {
  add("train");
  run();
  workload().child("metadata").set("deletionTimestamp", "2026-11-23T10:00:00Z");
  EXPECT_THAT(run(), ElementsAre("update Workload", "create Workload"));
  admit(), run(), all_run();
  workload().child("metadata").set("deletionTimestamp", "2026-11-23T10:00:00Z");
  EXPECT_THAT(run(), ElementsAre("write status of train", "delete train", "update train"));
  EXPECT_EQ((*kube::find_condition(pod("train"), "TerminationTarget"))["reason"].string(), "WorkloadDeleted");
  EXPECT_TRUE(kube::has_finalizer(workload(), kInUse));
}

TEST_F(PodPlans, AChangeBehindTheGateGoesToTheWorkload) {
  Json& train = add("train");
  run();
  pod("train").child("spec").child("nodeSelector").set("disk", "ssd");
  pod("train").child("metadata").child("labels").set(kQueueLabel, "team-b");
  EXPECT_THAT(run(), ElementsAre("update Workload"));
  EXPECT_EQ(workload()["spec"]["queueName"].string(), "team-b");
  EXPECT_EQ(workload()["spec"]["podSets"].items().at(0)["template"]["spec"]["nodeSelector"]["disk"].string(), "ssd");
  admit();
  train = pod("train");
  train.child("spec").child("nodeSelector").set("rack", "9");
  EXPECT_THAT(run(), ElementsAre("delete Workload", "update Workload", "create Workload")) << "what was admitted is not what it asks now";
}

TEST_F(PodPlans, TheOrderInWhichAnApiGivesMembersIsNoChange) {
  add("train").child("spec").set("tolerations", yaml("[{key: a, operator: Exists, effect: NoExecute}]"));
  run();
  workload().child("spec").child("podSets").items().at(0).child("template").child("spec").set("tolerations", yaml("[{effect: NoExecute, key: a, operator: Exists}]"));
  EXPECT_THAT(run(), IsEmpty());
  admit();
  EXPECT_THAT(run(), ElementsAre("update train"));
  EXPECT_TRUE(uses_quota(pod("train")));
}

TEST_F(PodPlans, WithoutAGateItIsToldAndLeftAlone) {
  add("train").child("spec").erase("schedulingGates");
  EXPECT_THAT(run(), IsEmpty());
  EXPECT_THAT(problem_, HasSubstr("schedulingGates: [{name: kueue.x-k8s.io/admission}]"));
  set_phase("train", "Running");
  pod("train").child("metadata").child("labels").set(kManaged, "true");
  EXPECT_THAT(run(), IsEmpty()) << "a label alone makes nobody stop";
}

TEST_F(PodPlans, WhoTakesItsGateAwayIsStopped) {
  add("train");
  run();
  pod("train").child("spec").erase("schedulingGates");
  set_phase("train", "Running");
  EXPECT_THAT(run(), ElementsAre("write status of train", "delete train", "update train"));
  EXPECT_EQ((*kube::find_condition(pod("train"), "TerminationTarget"))["reason"].string(), "NotAdmitted");
}

TEST_F(PodPlans, WithoutAQueueItIsNobodysBusiness) {
  add("train").child("metadata").erase("labels");
  EXPECT_THAT(run(), IsEmpty());
  EXPECT_EQ(problem_, "");
}

TEST_F(PodPlans, WhatCannotBeDoneIsTold) {
  add("train");
  in_.priority.problem = "there is no WorkloadPriorityClass x; there are: high, low";
  EXPECT_THAT(run(), ElementsAre("update train"));
  EXPECT_EQ(problem_, in_.priority.problem);
  in_.priority.problem.clear();
  run(), admit();
  const Json& flavor = in_.flavors["h200"];
  in_.flavors["h200"] = yaml("{spec: {nodeLabels: {zone: '2'}}}");
  EXPECT_THAT(run(), IsEmpty());
  EXPECT_THAT(problem_, HasSubstr("zone=2"));
  in_.flavors.clear();
  (void)flavor;
  EXPECT_THAT(run(), IsEmpty());
  EXPECT_THAT(problem_, HasSubstr("ResourceFlavor h200 of its admission is gone"));
}

// ---- groups
TEST_F(PodGroupPlans, WaitsUntilAllAreThere) {
  group(3);
  add("a"), add("b");
  EXPECT_THAT(run(), ElementsAre("update a", "update b"));
  EXPECT_EQ(problem_, "'ring' group has fewer runnable pods than expected: 3 are needed");
  add("c", "4");
  EXPECT_THAT(run(), ElementsAre("update c", "create Workload"));
  EXPECT_EQ(kube::name_of(workload()), "ring");
  EXPECT_TRUE(is_group_workload(workload()));
  EXPECT_EQ(kube::controller_of(workload()), nullptr);
  EXPECT_EQ(workload()["metadata"]["ownerReferences"].items().size(), 3U);
  const auto& sets = workload()["spec"]["podSets"].items();
  ASSERT_EQ(sets.size(), 2U);
  EXPECT_EQ(sets[0]["count"].integer() + sets[1]["count"].integer(), 3);
}

TEST_F(PodGroupPlans, AllAreLetGoAndAllEnd) {
  group(2);
  add("a"), add("b");
  run(), admit();
  EXPECT_THAT(run(), ElementsAre("update a", "update b"));
  all_run();
  set_phase("a", "Succeeded");
  EXPECT_THAT(run(), ElementsAre("write status of Workload"));
  EXPECT_EQ(workload()["status"]["reclaimablePods"].items().at(0)["count"].integer(), 1);
  remove("a");
  EXPECT_THAT(run(), IsEmpty()) << "it is remembered that it has succeeded";
  set_phase("b", "Succeeded");
  EXPECT_THAT(run(), ElementsAre("write status of Workload", "update a", "update b", "update Workload"));
  EXPECT_EQ((*kube::find_condition(workload(), "Finished"))["message"].string(), "Pods succeeded: 2/2.");
  EXPECT_FALSE(has("a"));
  add("late");
  EXPECT_THAT(run(), IsEmpty());
  EXPECT_THAT(problem_, HasSubstr("group ring has finished"));
}

TEST_F(PodGroupPlans, AFailedPodIsReplaced) {
  group(2);
  add("a"), add("b");
  run(), admit(), run(), all_run();
  set_phase("a", "Failed");
  EXPECT_THAT(run(), ElementsAre("update a", "write status of Workload"));
  EXPECT_TRUE(kube::condition_is_true(workload(), "WaitingForReplacementPods"));
  EXPECT_TRUE(holds_quota(workload()));
  add("c");
  EXPECT_THAT(run(), ElementsAre("update c", "update Workload", "update c", "write status of Workload")) << "adopted, an owner, let go";
  EXPECT_TRUE(uses_quota(pod("c")));
  EXPECT_FALSE(kube::condition_is_true(workload(), "WaitingForReplacementPods"));
  add("d");
  EXPECT_THAT(run(), ElementsAre("update d", "update Workload", "delete d", "update d")) << "one too many";
  EXPECT_FALSE(has("d"));
  EXPECT_TRUE(has("b") && has("c"));
}

TEST_F(PodGroupPlans, AReplacementWaitsUntilTheOtherIsGone) {
  group(2);
  add("a"), add("b");
  run(), admit(), run(), all_run();
  remove("a");
  run();
  add("c"), add("d");
  EXPECT_THAT(run(), ElementsAre("update c", "update d", "update Workload", "delete d", "update d")) << "one of them is too many, now already";
  EXPECT_TRUE(has("c") && !uses_quota(pod("c")));
  ended("a");
  EXPECT_THAT(run(), ElementsAre("update c"));
  EXPECT_TRUE(uses_quota(pod("c")));
}

TEST_F(PodGroupPlans, AWorkloadThatAPersonMadeIsNotDeletedForLackOfPods) {
  group(2);
  in_.workloads.push_back(yaml("{metadata: {name: ring, namespace: lab, uid: w, annotations: {kueue.x-k8s.io/is-group-workload: 'true'}}, spec: {podSets: []}}"));
  EXPECT_THAT(run(), IsEmpty());
}

TEST_F(PodGroupPlans, OneThatMayNotBeRetriedEndsWithItsLastPod) {
  group(2);
  add("a").child("metadata").child("annotations").set(kRetriable, "false");
  add("b");
  run(), admit(), run(), all_run();
  set_phase("a", "Failed");
  run();
  EXPECT_FALSE(kube::condition_is_true(workload(), "Finished"));
  set_phase("b", "Succeeded");
  run();
  ASSERT_TRUE(kube::condition_is_true(workload(), "Finished"));
  EXPECT_EQ((*kube::find_condition(workload(), "Finished"))["reason"].string(), "Failed");
  EXPECT_THAT((*kube::find_condition(workload(), "Finished"))["message"].string(), HasSubstr("1/2"));
}

TEST_F(PodGroupPlans, IsStoppedAsAWhole) {
  group(2);
  add("a"), add("b");
  run(), admit(), run(), all_run();
  evict();
  EXPECT_THAT(run(), ElementsAre("write status of a", "delete a", "update a", "write status of b", "delete b", "update b"));
  EXPECT_TRUE(holds_quota(workload()));
  ended("a");
  EXPECT_THAT(run(), IsEmpty());
  EXPECT_TRUE(holds_quota(workload())) << "the other one is there still";
  ended("b");
  EXPECT_THAT(run(), ElementsAre("delete Workload", "update Workload"));
  EXPECT_TRUE(gave_back_);
}

TEST_F(PodGroupPlans, IsNotStoppedForWhatItHasTooMuchOrOtherwise) {
  group(2);
  add("a"), add("b");
  run(), admit(), run(), all_run();
  add("big", "64");
  EXPECT_THAT(run(), ElementsAre("update big", "update Workload"));
  EXPECT_THAT(problem_, HasSubstr("pod big asks for something else"));
  pod("big").child("metadata").child("annotations").set(kRoleHash, pod("a")["metadata"]["annotations"][kRoleHash]);
  set_phase("a", "Failed");
  run();
  EXPECT_THAT(problem_, HasSubstr("pod big has the role")) << "an annotation is no licence to use more";
  EXPECT_FALSE(uses_quota(pod("big")));
}

TEST_F(PodGroupPlans, WhatContradictsItselfIsTold) {
  group(2);
  add("a"), add("b");
  pod("b").child("metadata").child("annotations").set(kGroupCount, "3");
  EXPECT_THAT(run(), IsEmpty());
  EXPECT_THAT(problem_, HasSubstr("pods a and b of group ring differ in kueue.x-k8s.io/pod-group-total-count: 2 and 3"));
  pod("b").child("metadata").child("annotations").set(kGroupCount, "-1");
  EXPECT_THAT(plan_pods(in_).problem, HasSubstr("of pod b: the number of pods of group ring is expected, there is \"-1\""));
  pod("b").child("metadata").child("annotations").set(kGroupCount, "2");
  pod("b").child("metadata").child("labels").set(kQueueLabel, "team-b");
  EXPECT_THAT(plan_pods(in_).problem, HasSubstr("different queues: team-a and team-b"));
  pod("b").child("metadata").child("labels").set(kQueueLabel, "team-a");
  in_.workloads.push_back(yaml("{metadata: {name: ring, namespace: lab, uid: w}, spec: {podSets: []}}"));
  EXPECT_THAT(run(), IsEmpty());
  EXPECT_THAT(problem_, HasSubstr("there is a Workload ring that is not of this group"));
}

TEST_F(PodGroupPlans, FastAdmissionDoesNotWaitForTheOthers) {
  group(3);
  add("a").child("metadata").child("annotations").set(kGroupFast, "true");
  EXPECT_THAT(run(), ElementsAre("update a", "create Workload"));
  EXPECT_EQ(workload()["spec"]["podSets"].items().at(0)["count"].integer(), 3);
  admit();
  EXPECT_THAT(run(), ElementsAre("update a"));
  add("b"), add("c");
  run();
  EXPECT_TRUE(uses_quota(pod("b")) && uses_quota(pod("c")));
}

TEST_F(PodGroupPlans, WhoIsDeletedWhileItWaitsIsMissedAndTheGroupKeepsItsPlace) {
  group(2);
  add("a"), add("b");
  run();
  remove("a");
  EXPECT_THAT(run(), ElementsAre("update a", "write status of Workload"));
  EXPECT_FALSE(has("a"));
  EXPECT_EQ(workload()["spec"]["podSets"].items().at(0)["count"].integer(), 2);
  add("c");
  run();
  EXPECT_FALSE(kube::condition_is_true(workload(), "WaitingForReplacementPods"));
  remove("b"), remove("c");
  run();
  EXPECT_THAT(in_.pods, IsEmpty());
  EXPECT_THAT(in_.workloads, IsEmpty()) << "nobody is left of it";
}

TEST_F(PodGroupPlans, AnOddFormIsLeftAlone) {
  group(1);
  add("a").child("spec").set("schedulingGates", "x");
  EXPECT_THAT(run(), IsEmpty());
  in_.pods.front() = Json("x");
  EXPECT_THAT(run(), IsEmpty());
}

}  // namespace
}  // namespace fairlead::governance
