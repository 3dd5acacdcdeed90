// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/gang_workload.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "governance/plan/job_workload.h"
#include "governance/plan/run_time.h"

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
const GangKind& kind_named(const std::string& name) {
  return *std::find_if(gang_kinds().begin(), gang_kinds().end(), [&](const GangKind& one) { return one.resource.kind == name; });
}

struct KindRow {
  const char *kind, *spec, *podsets;  // podsets: name and count of each
  const char *active, *ended;         // status
  const char* ready;
};
const char* const pods = "{metadata: {labels: {app: x}}, spec: {nodeSelector: {zone: a}, containers: [{name: c, resources: {requests: {cpu: 1}}}]}}";

// An object with its Workload; steps are taken on them as an API would.
class GangPlans : public testing::TestWithParam<KindRow> {
 protected:
  GangPlans() : kind_(kind_named(GetParam().kind)) {
    in_.now = *parse_time("2026-11-22T10:00:00Z");
    in_.gang = yaml(fmt::format("{{apiVersion: {}, kind: {}, metadata: {{name: train, namespace: lab, uid: g1, resourceVersion: '1', labels: {{kueue.x-k8s.io/queue-name: team-a}}}}, spec: {}}}", kind_.resource.api_version(), kind_.resource.kind,
                                fmt::format(fmt::runtime(GetParam().spec), fmt::arg("pods", pods))));
    in_.flavors["h200"] = yaml("{metadata: {name: h200}, spec: {nodeLabels: {kind: h200}, tolerations: [{key: gpu, operator: Exists}]}}");
  }
  std::vector<What> run() {
    std::vector<What> out;
    for (int round = 0; round < 20; ++round) {
      const OwnerPlan plan = plan_gang(kind_, in_);
      problem_ = plan.problem;
      if (!plan.step) return out;
      out.push_back(plan.step->what);
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
      case What::UpdateOwner: in_.gang = object; break;
      default: ADD_FAILURE() << "its status is its controller's, and it is never deleted";
    }
  }
  void admit() {
    Admission admission{.queue = "team-a", .pod_sets = {}};
    for (const Json& set : in_.workloads.at(0)["spec"]["podSets"].items())
      admission.pod_sets.push_back({.name = set["name"].string(), .flavors = {{"cpu", "h200"}}, .usage = {{"cpu", 1000 * set["count"].integer()}}, .count = static_cast<std::int32_t>(set["count"].integer()),
                                    .topology = TopologyAssignment{.levels = {"kubernetes.io/hostname"}, .domains = {{{"h1"}, static_cast<std::int32_t>(set["count"].integer())}}}});
    tell_admitted(in_.workloads.at(0), admission, {}, in_.now);
  }
  bool suspended() const { return in_.gang.at(kind_.suspend.c_str()).boolean(); }
  std::string all() const { return kube::print_json(in_.gang["spec"]); }

  const GangKind& kind_;
  GangInput in_;
  std::string problem_;
  int version_ = 1;
};

TEST_P(GangPlans, WaitsRunsStopsAndEnds) {
  EXPECT_EQ(run(), (std::vector{What::UpdateOwner, What::CreateWorkload})) << "it was not suspended";
  ASSERT_EQ(in_.workloads.size(), 1u) << problem_;
  const Json before = in_.gang["spec"];
  EXPECT_TRUE(suspended());
  std::string sets;
  for (const Json& set : in_.workloads[0]["spec"]["podSets"].items()) sets += fmt::format("{}:{} ", set["name"].string(), set["count"].integer());
  EXPECT_EQ(sets, GetParam().podsets);
  EXPECT_EQ((*kube::controller_of(in_.workloads[0]))["kind"].string(), GetParam().kind);
  admit();
  EXPECT_EQ(run(), std::vector{What::UpdateOwner});
  EXPECT_FALSE(suspended());
  for (const char* word : {R"("kind":"h200")", R"("zone":"a")", R"("key":"gpu")", R"("kueue.x-k8s.io/podset":)", R"("kueue.x-k8s.io/topology")", R"("kueue.x-k8s.io/workload":)"}) EXPECT_THAT(all(), HasSubstr(word));
  in_.gang.set("status", yaml(GetParam().active));
  EXPECT_EQ(run(), std::vector<What>{});
  // Pre-empted: suspended, and once nothing of it is active its templates are as they were.
  tell_evicted(in_.workloads[0], "Preempted", "for another", VictimReason::InClusterQueue, in_.now);
  const auto steps = run();
  EXPECT_TRUE(suspended());
  in_.gang.set("status", Json::object());
  const auto more = run();
  EXPECT_EQ(in_.gang["spec"], before);
  EXPECT_EQ(steps.size() + more.size(), 3u) << "suspended, restored, given back";
  EXPECT_FALSE(holds_quota(in_.workloads[0]));
  // Again, to its end.
  admit();
  (void)run();
  in_.gang.set("status", yaml(GetParam().ended));
  EXPECT_EQ(run(), (std::vector{What::WorkloadStatus, What::UpdateWorkload}));
  EXPECT_TRUE(kube::condition_is_true(in_.workloads[0], "Finished"));
  EXPECT_EQ((*kube::find_condition(in_.workloads[0], "Finished"))["reason"].string(), "Succeeded");
}

TEST_P(GangPlans, ATemplateThatIsChangedWhileItRunsIsQueuedAnew) {
  (void)run(), admit(), (void)run();
  Json& part = kind_.order.empty() ? in_.gang.child("spec").child(kind_.parts.substr(5)).items().at(0) : in_.gang.child("spec").child(kind_.parts.substr(5)).child(kind_.order.back());
  part.set("replicas", 7);
  const auto steps = run();
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps[0], What::DeleteWorkload);
  EXPECT_TRUE(suspended());
}

// So that forecasts need not read objects of all kinds.
TEST_P(GangPlans, ItsWorkloadSaysHowLongItRuns) {
  in_.gang.child("metadata").child("annotations").set(kRunTime, "2h");
  const bool limited = !kind_.deadline.empty();
  if (limited) in_.gang.child("spec").child("runPolicy").set("activeDeadlineSeconds", 9000);
  (void)run();
  const auto says = [&](const char* name) { return in_.workloads.at(0)["metadata"]["annotations"][name].string(); };
  EXPECT_EQ(says(kRunTime), "2h");
  EXPECT_EQ(says(kTimeLimit), limited ? "9000s" : "");
  in_.gang.child("metadata").child("annotations").set(kRunTime, "3h");
  EXPECT_EQ(run(), std::vector{What::UpdateWorkload});
  admit();
  (void)run();
  in_.gang.child("metadata").child("annotations").set(kRunTime, "90m");
  if (limited) in_.gang.child("spec").child("runPolicy").set("activeDeadlineSeconds", 8000);
  EXPECT_EQ(run(), std::vector{What::UpdateWorkload});
  EXPECT_EQ(says(kRunTime), "90m");
  EXPECT_EQ(says(kTimeLimit), limited ? "8000s" : "");
}

TEST_P(GangPlans, TellsWhetherItsPodsAreReady) {
  (void)run(), admit(), (void)run();
  in_.tells_ready = true;
  (void)run();
  EXPECT_FALSE(kube::condition_is_true(in_.workloads[0], "PodsReady"));
  in_.gang.set("status", yaml(GetParam().ready));
  EXPECT_EQ(run(), std::vector{What::WorkloadStatus});
  EXPECT_TRUE(kube::condition_is_true(in_.workloads[0], "PodsReady"));
}

TEST_P(GangPlans, WhatIsOddIsToldOrLeftAlone) {
  const std::string field = kind_.parts.substr(5);
  const Json good = in_.gang;
  for (const char* odd : {"7", "[]", "{}", "[7]", "{Master: 7, Worker: 7, Launcher: []}", "[{name: 7}]", "[{name: a, template: 7}]", "[{name: a, template: {spec: 7, metadata: 7}}]"}) {
    in_.gang = good;
    in_.gang.child("spec").set(field, yaml(odd));
    in_.workloads.clear();
    (void)run();
    EXPECT_TRUE(in_.workloads.empty()) << odd;
  }
  for (const std::int64_t replicas : {std::int64_t{-1}, std::int64_t{3'000'000'000}}) {
    in_.gang = good;
    (kind_.order.empty() ? in_.gang.child("spec").child(field).items().at(0) : in_.gang.child("spec").child(field).child(kind_.order.back())).set("replicas", replicas);
    (void)run();
    EXPECT_THAT(problem_, HasSubstr(kind_.order.empty() ? "replicas: a number of pods is expected" : kind_.parts + "[Worker].replicas: a number of pods is expected"));
  }
  if (!kind_.order.empty()) {  // its pods would run beside the quota
    in_.gang = good;
    in_.workloads.clear();
    const Json worker = good["spec"][field]["Worker"];
    in_.gang.child("spec").child(field).set("Evaluator", worker);
    (void)run();
    EXPECT_EQ(problem_, fmt::format("{}[Evaluator]: {} and Worker can be queued, and no other", kind_.parts, kind_.order.front()));
    EXPECT_TRUE(in_.workloads.empty());
    EXPECT_TRUE(suspended());
  }
  in_.gang = good;
  in_.gang.child("metadata").erase("labels");
  EXPECT_EQ(run(), std::vector<What>{}) << "not ours";
  if (!kind_.order.empty()) return;
  in_.gang = good;
  const Json one = in_.gang["spec"][field].items().at(0);
  in_.gang.child("spec").child(field).push(one);
  (void)run();
  EXPECT_THAT(problem_, HasSubstr("there are two of this name"));
  for (int i = 0; i < 10'000; ++i) in_.gang.child("spec").child(field).push(Json(one).set("name", fmt::format("p{}", i)));
  (void)run();
  EXPECT_THAT(problem_, HasSubstr("at most 18 can be queued together"));
}

INSTANTIATE_TEST_SUITE_P(Rows, GangPlans, testing::Values(
    KindRow{"JobSet", "{{replicatedJobs: [{{name: driver, replicas: 1, template: {{spec: {{template: {pods}}}}}}}, {{name: workers, replicas: 2, template: {{spec: {{parallelism: 4, completions: 3, template: {pods}}}}}}}]}}", "driver:1 workers:6 ",
            "{replicatedJobsStatus: [{name: workers, active: 2}]}", "{conditions: [{type: Completed, status: 'True', message: all done}]}", "{replicatedJobsStatus: [{name: driver, ready: 1}, {name: workers, ready: 2}]}"},
    KindRow{"HyperPodPyTorchJob", "{{nprocPerNode: auto, runPolicy: {{cleanPodPolicy: None}}, replicaSpecs: [{{name: pod, replicas: 4, spares: 1, template: {pods}}}]}}", "pod:5 ", "{}", "{conditions: [{type: Completed, status: 'True'}]}",
            "{conditions: [{type: Running, status: 'True'}]}"},
    KindRow{"PyTorchJob", "{{runPolicy: {{}}, pytorchReplicaSpecs: {{Worker: {{replicas: 3, template: {pods}}}, Master: {{template: {pods}}}}}}}", "master:1 worker:3 ", "{replicaStatuses: {Worker: {active: 3}}}",
            "{conditions: [{type: Succeeded, status: 'True'}]}", "{conditions: [{type: Running, status: 'True'}]}"},
    KindRow{"MPIJob", "{{runPolicy: {{}}, mpiReplicaSpecs: {{Launcher: {{replicas: 1, template: {pods}}}, Worker: {{replicas: 2, template: {pods}}}}}}}", "launcher:1 worker:2 ", "{replicaStatuses: {Launcher: {active: 1}}}",
            "{conditions: [{type: Succeeded, status: 'True'}]}", "{conditions: [{type: Running, status: 'True'}]}"}),
    [](const auto& row) { return std::string(row.param.kind); });

TEST(Gangs, AJobOfAJobSetIsQueuedWithIt) {
  JobInput in;
  in.job = yaml("{apiVersion: batch/v1, kind: Job, metadata: {name: a, namespace: lab, uid: j, labels: {kueue.x-k8s.io/queue-name: q}, ownerReferences: [{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, name: s, uid: u, controller: true}]}, "
                "spec: {suspend: false, template: {spec: {containers: [{name: c}]}}}}");
  EXPECT_FALSE(plan_job(in).step);
  in.job.child("metadata").erase("ownerReferences");
  EXPECT_TRUE(plan_job(in).step);
}

TEST(Gangs, WhatHasEndedOfAJobSetIsGivenBack) {
  const GangKind& kind = kind_named("JobSet");
  GangInput in;
  in.gang = yaml(fmt::format("{{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {{name: s, namespace: lab, uid: u, labels: {{kueue.x-k8s.io/queue-name: q}}}}, spec: {{suspend: true, replicatedJobs: [{{name: w, replicas: 3, template: {{spec: {{parallelism: 2, template: {}}}}}}}]}}}}", pods));
  in.workloads.push_back(plan_gang(kind, in).step->object);
  tell_admitted(in.workloads[0], {.queue = "q", .pod_sets = {{.name = "w", .flavors = {}, .usage = {{"cpu", 6000}}, .count = 6, .topology = {}}}}, {}, in.now);
  in.gang = plan_gang(kind, in).step->object;
  in.gang.set("status", yaml("{replicatedJobsStatus: [{name: w, succeeded: 2, active: 1}]}"));
  EXPECT_EQ(kube::print_json(plan_gang(kind, in).step->object["status"]["reclaimablePods"]), R"([{"name":"w","count":4}])");
}

}  // namespace
}  // namespace fairlead::governance
