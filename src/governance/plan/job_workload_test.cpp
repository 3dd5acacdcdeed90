// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/job_workload.h"

#include <gmock/gmock.h>

namespace fairlead::governance {
namespace {

using kube::Json;
using testing::HasSubstr;
using What = OwnerStep::What;

Json yaml(const std::string& text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed) << parsed.error().message << "\n" << text;
  return parsed->at(0);
}

// A Job with its Workload; steps are taken on them as an API would.
class JobPlans : public testing::Test {
 protected:
  JobPlans() {
    in_.now = *parse_time("2026-11-22T10:00:00Z");
    in_.job = yaml(R"({apiVersion: batch/v1, kind: Job, metadata: {name: train, namespace: lab, uid: j1, resourceVersion: "1", labels: {kueue.x-k8s.io/queue-name: team-a}}, spec: {parallelism: 3, completions: 6, suspend: true,
      template: {metadata: {labels: {app: x, controller-uid: j1, batch.kubernetes.io/controller-uid: j1}}, spec: {nodeSelector: {zone: "1"}, containers: [{name: c, resources: {requests: {cpu: 2}}}]}}}})");
    in_.flavors["h200"] = yaml("{metadata: {name: h200}, spec: {nodeLabels: {kind: h200}, tolerations: [{key: gpu, operator: Exists}]}}");
  }
  std::vector<What> run() {
    std::vector<What> out;
    for (int round = 0; round < 20; ++round) {
      const OwnerPlan plan = plan_job(in_);
      problem_ = plan.problem;
      if (!plan.step) return out;
      out.push_back(plan.step->what);
      if (plan.step->gives_back) gave_back_ = true;
      take(*plan.step);
    }
    ADD_FAILURE() << "does not come to an end";
    return out;
  }
  void take(const OwnerStep& step) {
    Json object = step.object;
    object.child("metadata").set("resourceVersion", std::to_string(++version_));
    switch (step.what) {
      case What::CreateWorkload: in_.workloads.push_back(object); break;
      case What::UpdateWorkload:
      case What::WorkloadStatus:
        in_.workloads.at(0) = object;
        if (kube::deleting(object) && !kube::has_finalizer(object, kInUse)) in_.workloads.clear();
        break;
      case What::DeleteWorkload: in_.workloads.at(0).child("metadata").set("deletionTimestamp", "2026-11-22T10:00:00Z"); break;
      case What::UpdateOwner:
      case What::OwnerStatus: in_.job = object; break;
      case What::DeleteOwner: ADD_FAILURE() << "a Job is never deleted";
    }
  }
  void admit(std::int32_t count = 3) {
    tell_admitted(in_.workloads.at(0), {.queue = "team-a", .pod_sets = {{.name = "main", .flavors = {{"cpu", "h200"}}, .usage = {{"cpu", 2000 * count}}, .count = count, .topology = {}}}}, {}, in_.now);
  }
  void takes(const std::string& annotations) { in_.job.child("metadata").set("annotations", yaml(annotations)); }
  const Json& pods() const { return in_.job["spec"]["template"]["spec"]; }

  JobInput in_;
  std::string problem_;
  bool gave_back_ = false;
  int version_ = 1;
};

TEST_F(JobPlans, AHeldJobBecomesAWorkload) {
  in_.priority = {.value = 7, .ref = yaml("{group: kueue.x-k8s.io, kind: WorkloadPriorityClass, name: high}"), .problem = ""};
  EXPECT_EQ(run(), std::vector{What::CreateWorkload});
  const Json& made = in_.workloads.at(0);
  EXPECT_EQ(kube::print_json(made["spec"]), R"({"queueName":"team-a","podSets":[{"name":"main","count":3,"template":{"metadata":{"labels":{"app":"x"}},"spec":{"nodeSelector":{"zone":"1"},)"
                                            R"("containers":[{"name":"c","resources":{"requests":{"cpu":2}}}]}}}],"priority":7,"priorityClassRef":{"group":"kueue.x-k8s.io","kind":"WorkloadPriorityClass","name":"high"}})");
  EXPECT_EQ(kube::name_of(made), "job-train-765fa") << "as Kueue names it";
  EXPECT_EQ((*kube::controller_of(made))["uid"].string(), "j1");
  EXPECT_TRUE(kube::has_finalizer(made, kInUse));
}

TEST_F(JobPlans, WhatItSaysOfCheckpointsItsWorkloadSaysToo) {
  (void)run(), admit(), (void)run();
  takes("{fairlead.dev/checkpointed-at: '2026-11-22T09:00:00Z', fairlead.dev/checkpoint-every: 30m, other: x}");
  EXPECT_EQ(run(), std::vector{What::UpdateWorkload});
  EXPECT_EQ(kube::print_json(in_.workloads.at(0)["metadata"]["annotations"]), R"({"fairlead.dev/checkpoint-every":"30m","fairlead.dev/checkpointed-at":"2026-11-22T09:00:00Z"})");
  takes("{}");
  EXPECT_EQ(run(), std::vector<What>{}) << "what was said of the Workload itself stays";
}

TEST_F(JobPlans, AJobWhosePodsAreToBeNearOneAnotherSaysSoAndGetsItsTemplateBack) {
  in_.job.child("spec").child("template").child("metadata").set("annotations", yaml("{kueue.x-k8s.io/podset-required-topology: cloud/rack}"));
  const Json before = in_.job["spec"]["template"];
  (void)run();
  EXPECT_EQ(kube::print_json(in_.workloads.at(0)["spec"]["podSets"].items()[0]["topologyRequest"]), R"({"required":"cloud/rack","podIndexLabel":"batch.kubernetes.io/job-completion-index"})");
  tell_admitted(in_.workloads.at(0), {.queue = "team-a", .pod_sets = {{.name = "main", .flavors = {{"cpu", "h200"}}, .usage = {{"cpu", 6000}}, .count = 3, .topology = TopologyAssignment{.levels = {"kubernetes.io/hostname"}, .domains = {{{"h1"}, 3}}}}}}, {}, in_.now);
  EXPECT_EQ(run(), std::vector{What::UpdateOwner});
  EXPECT_EQ(kube::print_json(pods()["schedulingGates"]), R"([{"name":"kueue.x-k8s.io/topology"}])");
  EXPECT_EQ(in_.job["spec"]["template"]["metadata"]["annotations"]["kueue.x-k8s.io/workload"].string(), kube::name_of(in_.workloads.at(0)));
  tell_evicted(in_.workloads.at(0), "Preempted", "for another", VictimReason::InClusterQueue, in_.now);
  (void)run();
  EXPECT_EQ(in_.job["spec"]["template"], before);
  in_.workloads.clear();
  in_.job.child("spec").child("template").child("metadata").set("annotations", yaml("{kueue.x-k8s.io/podset-slice-required-topology: cloud/rack}"));
  (void)run();
  EXPECT_THAT(problem_, HasSubstr("spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-size]"));
}

TEST_F(JobPlans, WhatIsChangedWhileItsChecksAreAskedIsAskedForAnew) {
  (void)run();
  tell_admitted(in_.workloads.at(0), {.queue = "team-a", .pod_sets = {{.name = "main", .flavors = {{"cpu", "h200"}}, .usage = {{"cpu", 6000}}, .count = 3, .topology = {}}}}, {"budget"}, in_.now);
  ASSERT_FALSE(kube::condition_is_true(in_.workloads.at(0), "Admitted"));
  EXPECT_EQ(run(), std::vector<What>{}) << "it waits for the check";
  in_.job.child("spec").child("template").child("spec").child("nodeSelector").set("zone", "2");
  const auto steps = run();
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps[0], What::DeleteWorkload);
  EXPECT_EQ(pods()["nodeSelector"]["zone"].string(), "2") << "what its user has written stays";
}

TEST_F(JobPlans, OneThatRunsAlreadyIsHeldFirst) {
  in_.job.child("spec").set("suspend", false);
  EXPECT_EQ(run(), (std::vector{What::UpdateOwner, What::CreateWorkload}));
  EXPECT_TRUE(in_.job["spec"]["suspend"].boolean());
}

TEST_F(JobPlans, IsStartedOnItsFlavorsAndTakenBackFromThem) {
  run();
  const Json before = in_.job["spec"]["template"];
  admit();
  EXPECT_EQ(run(), std::vector{What::UpdateOwner});
  EXPECT_FALSE(in_.job["spec"]["suspend"].boolean());
  EXPECT_EQ(kube::print_json(pods()["nodeSelector"]), R"({"zone":"1","kind":"h200"})");
  EXPECT_EQ(kube::print_json(pods()["tolerations"]), R"([{"key":"gpu","operator":"Exists"}])");
  EXPECT_EQ(in_.job["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/podset"].string(), "main");
  in_.job.set("status", yaml("{active: 3, startTime: '2026-11-22T10:00:00Z'}"));
  EXPECT_TRUE(run().empty());

  tell_evicted(in_.workloads.at(0), "Preempted", "for another", VictimReason::InCohortReclamation, in_.now);
  EXPECT_EQ(run(), std::vector{What::UpdateOwner}) << "its pods are still going";
  EXPECT_TRUE(in_.job["spec"]["suspend"].boolean());
  in_.job.set("status", yaml("{terminating: 1, startTime: '2026-11-22T10:00:00Z'}"));
  EXPECT_TRUE(run().empty());
  EXPECT_TRUE(holds_quota(in_.workloads.at(0)));
  in_.job.set("status", yaml("{startTime: '2026-11-22T10:00:00Z'}"));
  EXPECT_EQ(run(), (std::vector{What::OwnerStatus, What::UpdateOwner, What::WorkloadStatus}));
  EXPECT_TRUE(gave_back_);
  EXPECT_EQ(in_.job["spec"]["template"], before);
  EXPECT_FALSE(holds_quota(in_.workloads.at(0)));
  EXPECT_TRUE(kube::condition_is_true(in_.workloads.at(0), "Requeued"));
  admit();
  EXPECT_EQ(run(), std::vector{What::UpdateOwner});
}

TEST_F(JobPlans, AFlavorThatIsGoneIsTold) {
  run();
  admit();
  in_.flavors.clear();
  EXPECT_TRUE(run().empty());
  EXPECT_THAT(problem_, HasSubstr("ResourceFlavor h200 of its admission is gone"));
  EXPECT_TRUE(in_.job["spec"]["suspend"].boolean());
}

TEST_F(JobPlans, WhoLetsItselfRunIsHeldAgain) {
  run();
  in_.job.child("spec").set("suspend", false);
  EXPECT_EQ(run(), std::vector{What::UpdateOwner});
  EXPECT_TRUE(in_.job["spec"]["suspend"].boolean());
}

TEST_F(JobPlans, AChangeWhileItWaitsGoesToTheWorkload) {
  run();
  in_.job.child("spec").set("parallelism", 2);
  in_.job.child("metadata").child("labels").set(kQueueLabel, "team-b");
  in_.priority.value = 3;
  EXPECT_EQ(run(), std::vector{What::UpdateWorkload});
  EXPECT_EQ(in_.workloads.at(0)["spec"]["podSets"].items().at(0)["count"].integer(), 2);
  EXPECT_EQ(in_.workloads.at(0)["spec"]["queueName"].string(), "team-b");
  EXPECT_EQ(in_.workloads.at(0)["spec"]["priority"].integer(), 3);
}

TEST_F(JobPlans, AChangeWhileItRunsQueuesItAnew) {
  run(), admit(), run();
  in_.job.child("spec").set("parallelism", 5);
  EXPECT_EQ(run(), (std::vector{What::DeleteWorkload, What::UpdateOwner, What::UpdateOwner, What::UpdateWorkload, What::CreateWorkload}));
  EXPECT_EQ(in_.workloads.at(0)["spec"]["podSets"].items().at(0)["count"].integer(), 5);
  EXPECT_EQ(kube::print_json(pods()["nodeSelector"]), R"({"zone":"1"})");
}

TEST_F(JobPlans, PodsThatHaveEndedAreReclaimable) {
  run(), admit(), run();
  in_.job.set("status", yaml("{active: 2, succeeded: 4}"));
  EXPECT_EQ(run(), std::vector{What::WorkloadStatus});
  EXPECT_EQ(kube::print_json(in_.workloads.at(0)["status"]["reclaimablePods"]), R"([{"name":"main","count":1}])");
  in_.job.child("spec").set("completionMode", "Indexed");
  in_.job.set("status", yaml("{active: 2, succeeded: 4, completedIndexes: '0-2,4,x,9,3-1,-2', failedIndexes: '4-5,2-2,4000000000-9000000000'}"));
  EXPECT_EQ(run(), std::vector{What::WorkloadStatus});
  EXPECT_EQ(kube::print_json(in_.workloads.at(0)["status"]["reclaimablePods"]), R"([{"name":"main","count":2}])");
}

// ---- partial admission

TEST_F(JobPlans, FewerPodsThanAskedForRunAndTheNumberComesBack) {
  takes("{kueue.x-k8s.io/job-min-parallelism: '1'}");
  EXPECT_EQ(run(), std::vector{What::CreateWorkload});
  EXPECT_EQ(in_.workloads.at(0)["spec"]["podSets"].items().at(0)["minCount"].integer(), 1);
  admit(2);
  EXPECT_EQ(run(), std::vector{What::UpdateOwner});
  EXPECT_EQ(in_.job["spec"]["parallelism"].integer(), 2);
  EXPECT_EQ(in_.job["spec"]["completions"].integer(), 6) << "it takes longer";
  in_.job.set("status", yaml("{active: 2, startTime: '2026-11-22T10:00:00Z'}"));
  EXPECT_TRUE(run().empty()) << "the smaller number is no change by a user";

  in_.job.set("status", yaml("{active: 1, succeeded: 5, startTime: '2026-11-22T10:00:00Z'}"));
  EXPECT_EQ(run(), std::vector{What::WorkloadStatus});
  EXPECT_EQ(kube::print_json(in_.workloads.at(0)["status"]["reclaimablePods"]), R"([{"name":"main","count":2}])") << "of three asked for, one is left";

  tell_evicted(in_.workloads.at(0), "Preempted", "for another", VictimReason::InCohortReclamation, in_.now);
  EXPECT_EQ(run(), std::vector{What::UpdateOwner});
  in_.job.set("status", yaml("{succeeded: 5, startTime: '2026-11-22T10:00:00Z'}"));
  EXPECT_EQ(run(), (std::vector{What::OwnerStatus, What::UpdateOwner, What::WorkloadStatus}));
  EXPECT_EQ(in_.job["spec"]["parallelism"].integer(), 3);
  EXPECT_TRUE(run().empty());
  admit(3);
  EXPECT_EQ(run(), std::vector{What::UpdateOwner});
  EXPECT_EQ(in_.job["spec"]["parallelism"].integer(), 3);
}

TEST_F(JobPlans, WhoScalesOneThatRunsWithFewerQueuesItAnew) {
  takes("{kueue.x-k8s.io/job-min-parallelism: '1'}");
  run(), admit(1), run();
  in_.job.child("spec").set("parallelism", 2);
  EXPECT_EQ(run(), (std::vector{What::DeleteWorkload, What::UpdateOwner, What::UpdateOwner, What::UpdateWorkload, What::CreateWorkload}));
  EXPECT_EQ(in_.job["spec"]["parallelism"].integer(), 2) << "as its user said";
  EXPECT_EQ(in_.workloads.at(0)["spec"]["podSets"].items().at(0)["count"].integer(), 2);
}

TEST_F(JobPlans, CompletionsGoWithTheNumberOfPodsWhereAskedTo) {
  takes("{kueue.x-k8s.io/job-min-parallelism: '1', kueue.x-k8s.io/job-completions-equal-parallelism: 'true'}");
  in_.job.child("spec").set("completions", 3).set("completionMode", "Indexed");
  run(), admit(2);
  EXPECT_EQ(run(), std::vector{What::UpdateOwner});
  EXPECT_EQ(in_.job["spec"]["completions"].integer(), 2);
  tell_evicted(in_.workloads.at(0), "Preempted", "for another", VictimReason::InCohortReclamation, in_.now);
  run();
  EXPECT_EQ(in_.job["spec"]["parallelism"].integer(), 3);
  EXPECT_EQ(in_.job["spec"]["completions"].integer(), 3);
}

TEST_F(JobPlans, WhatCannotBeOfPartialAdmissionIsTold) {
  for (const auto& [annotations, words] : {std::pair("{kueue.x-k8s.io/job-min-parallelism: '3'}", "\"3\" is given, and a number from 1 to 2, less than the 3 pods that run at once, is expected"),
                                           std::pair("{kueue.x-k8s.io/job-min-parallelism: '0'}", "a number from 1 to 2"),
                                           std::pair("{kueue.x-k8s.io/job-min-parallelism: some}", "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: \"some\" is given"),
                                           std::pair("{kueue.x-k8s.io/job-completions-equal-parallelism: 'yes'}", "true or false is expected"),
                                           std::pair("{kueue.x-k8s.io/job-completions-equal-parallelism: 'true'}", "completionMode Indexed")}) {
    takes(annotations);
    EXPECT_TRUE(run().empty());
    EXPECT_THAT(problem_, HasSubstr(words));
  }
  in_.job.child("spec").set("completionMode", "Indexed");
  EXPECT_TRUE(run().empty());
  EXPECT_THAT(problem_, HasSubstr("are to be equal, and they are 6 and 3"));
  in_.job.child("spec").set("parallelism", 1);
  takes("{kueue.x-k8s.io/job-min-parallelism: '1'}");
  EXPECT_TRUE(run().empty());
  EXPECT_THAT(problem_, HasSubstr("of 1 pods there are no fewer"));
  EXPECT_TRUE(in_.workloads.empty());
}

TEST_F(JobPlans, TheEndOfAJobIsItsWorkloads) {
  run(), admit(), run();
  in_.job.set("status", yaml("{succeeded: 6, conditions: [{type: Complete, status: 'True', message: Reached expected number of succeeded pods}]}"));
  EXPECT_EQ(run(), (std::vector{What::WorkloadStatus, What::UpdateWorkload}));
  const Json* told = kube::find_condition(in_.workloads.at(0), "Finished");
  ASSERT_NE(told, nullptr);
  EXPECT_EQ((*told)["reason"].string() + ": " + (*told)["message"].string(), "Succeeded: Reached expected number of succeeded pods");
  EXPECT_FALSE(kube::has_finalizer(in_.workloads.at(0), kInUse));
}

TEST_F(JobPlans, AJobThatIsGoneTakesItsWorkloadWithIt) {
  run(), admit(), run();
  in_.job = Json();
  EXPECT_EQ(run(), (std::vector{What::DeleteWorkload, What::UpdateWorkload}));
  EXPECT_TRUE(in_.workloads.empty());
}

TEST_F(JobPlans, ADeletedWorkloadStopsItsJobBeforeItGoes) {
  run(), admit(), run();
  in_.job.set("status", yaml("{active: 3}"));
  in_.workloads.at(0).child("metadata").set("deletionTimestamp", "2026-11-22T10:00:00Z");
  EXPECT_EQ(run(), std::vector{What::UpdateOwner});
  EXPECT_EQ(in_.workloads.size(), 1U);
  in_.job.set("status", Json::object());
  EXPECT_EQ(run(), (std::vector{What::UpdateOwner, What::UpdateWorkload, What::CreateWorkload}));
}

TEST_F(JobPlans, AnUnknownPriorityClassIsToldWithTheList) {
  in_.priority.problem = "there is no WorkloadPriorityClass x; there are: high, low";
  EXPECT_TRUE(run().empty());
  EXPECT_EQ(problem_, in_.priority.problem);
  EXPECT_TRUE(in_.workloads.empty());
}

TEST_F(JobPlans, WithoutAQueueItIsNobodysBusiness) {
  in_.job.child("metadata").erase("labels");
  in_.job.child("spec").set("suspend", false);
  EXPECT_TRUE(run().empty());
}

}  // namespace
}  // namespace fairlead::governance
