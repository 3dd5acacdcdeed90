// SPDX-License-Identifier: Apache-2.0
#include "slurm/control/active_check_controller.h"

#include <gmock/gmock.h>

#include "api/node_set.h"
#include "kube/fenced_api.h"
#include "kube/tiny_api.h"
#include "slurm/plan/check_jobs.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace resources = kube::resources;

constexpr const char* kNodes = R"({"answered":true,"nodes":[{"name":"worker-0","state":["IDLE"],"reason":""},{"name":"worker-1","state":["IDLE"],"reason":""}],"jobs":[)";

class ActiveChecks : public testing::Test {
 protected:
  ActiveChecks() { controller_.start(api_); }
  ~ActiveChecks() override { EXPECT_THAT(checked_.refusals(), IsEmpty()); }
  void make(const kube::Resource& resource, const std::string& yaml) {
    auto parsed = kube::parse_yaml(yaml);
    ASSERT_TRUE(parsed) << parsed.error().message;
    ASSERT_TRUE(api_.create(resource, parsed->at(0)));
  }
  void make_cluster() {
    make(resources::slurm_clusters, "{apiVersion: slurm.nebius.ai/v1, kind: SlurmCluster, metadata: {name: demo, namespace: lab, uid: c1}}");
    for (const char* pod : {"controller-0", "worker-0", "worker-1"}) make_pod(pod, "c1");
    make_pod("worker-7", "another cluster's");
  }
  void make_pod(const std::string& name, const std::string& owner) {
    make(resources::pods, "{metadata: {name: " + name + ", namespace: lab, uid: p-" + name + ", labels: {fairlead.dev/slurm-role: " + name.substr(0, name.rfind('-')) + "}, ownerReferences: [{kind: SlurmCluster, name: demo, uid: \"" + owner + "\", controller: true}]}, " +
                              "status: {conditions: [{type: Ready, status: 'True'}]}}");
  }
  void make_check(const std::string& spec) {
    make(api::kActiveChecks, "{apiVersion: slurm.nebius.ai/v1alpha1, kind: ActiveCheck, metadata: {name: gpu, namespace: lab, uid: u1, generation: 1, creationTimestamp: '2026-11-22T04:10:00Z'}, spec: {slurmClusterRefName: demo, checkType: slurmJob, " + spec + "}}");
  }
  std::string reason() {
    const Json* found = kube::find_condition(api_.all("activechecks").at(key_), "Scheduled");
    return found ? (*found)["reason"].string() : "absent";
  }
  std::vector<std::string> told() {
    std::vector<std::string> out;
    for (const auto& line : std::exchange(api_.commands, {})) out.push_back(line.substr(line.find("check-")));
    return out;
  }

  ManualClock clock_{*parse_time("2026-11-22T04:10:05Z")};
  const kube::ObjectKey key_{"lab", "gpu"};
  kube::TinyApi api_;
  kube::CheckedApi checked_{api_, kube::full_access(ActiveCheckController(api_, clock_))};
  ActiveCheckController controller_{checked_, clock_};
};

TEST_F(ActiveChecks, RunThroughTheHeadWithinWhatTheyDeclare) {
  make_cluster();
  make_check("suspend: true, slurmJobSpec: {sbatchScript: '#!/bin/sh', eachWorkerJobs: true}, failureReactions: {drainSlurmNode: {}}");
  std::string jobs;
  api_.answer = [&](const std::vector<std::string>& command) -> kube::ExecResult {
    if (command.at(1) == "check-look") return {.out = kNodes + jobs + "]}"};
    if (command.at(1) == "check-run") return {.out = R"({"jobs":[{"node":"worker-0","id":"7"},{"node":"worker-1","error":"Invalid gres"}]})"};
    return {};
  };
  ASSERT_TRUE(controller_.reconcile(key_));
  EXPECT_THAT(told(), ElementsAre("check-look u1", "check-run u1 1795320600 30 worker-0 worker-1"));
  EXPECT_EQ(reason(), "Running");
  jobs = R"({"id":"7","run":"1795320600","state":"FAILED","requested":["worker-0"],"nodes":["worker-0"],"exit":1,"signal":0})";
  // Nothing is written down before the reaction went through.
  const Json before = api_.all("activechecks").at(key_);
  api_.answer = [&](const std::vector<std::string>& command) -> kube::ExecResult { return command.at(1) == "check-look" ? kube::ExecResult{.out = kNodes + jobs + "]}"} : kube::ExecResult{.exit_code = 4, .err = "no answer"}; };
  EXPECT_FALSE(controller_.reconcile(key_));
  EXPECT_EQ(api_.all("activechecks").at(key_), before);
  (void)told();
  api_.answer = [&](const std::vector<std::string>& command) -> kube::ExecResult { return command.at(1) == "check-look" ? kube::ExecResult{.out = kNodes + jobs + "]}"} : kube::ExecResult{}; };
  ASSERT_TRUE(controller_.reconcile(key_));
  EXPECT_THAT(told(), ElementsAre("check-look u1", "check-drain worker-0 1 fairlead: check gpu: 1 of its last 1 results failed, the last one in job 7"));
  const Json& status = api_.all("activechecks").at(key_)["status"];
  EXPECT_EQ(status["slurmJobsStatus"]["lastRunStatus"].string(), "Failed");
  EXPECT_THAT(kube::print_json(status["slurmJobsStatus"]["lastRunErrorJobsAndReasons"]), HasSubstr("Invalid gres"));
}

TEST_F(ActiveChecks, ASlurmThatDoesNotAnswerIsAskedAgain) {
  make_cluster();
  make_check("slurmJobSpec: {sbatchScript: x, eachWorkerJobs: true}");
  api_.answer = [](const std::vector<std::string>&) -> kube::ExecResult { return {.exit_code = 4, .err = "Unable to contact slurm controller"}; };
  const auto next = controller_.reconcile(key_);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->again_after, std::chrono::seconds(10));
  EXPECT_EQ(reason(), "SlurmSilent");
  EXPECT_THAT(told(), ElementsAre("check-look u1"));
  api_.answer = [](const std::vector<std::string>&) -> kube::ExecResult { return {.exit_code = 2, .err = "usage: fairlead-slurm controller | ..."}; };
  (void)controller_.reconcile(key_);
  EXPECT_EQ(reason(), "OldHead") << "it does not know the command";
}

TEST_F(ActiveChecks, TakeTheirScriptFromAConfigMap) {
  make_cluster();
  make(resources::config_maps, "{metadata: {name: scripts, namespace: lab}, data: {one: x, two: y}}");
  make_check("slurmJobSpec: {sbatchScriptRefName: scripts}");
  ASSERT_TRUE(controller_.reconcile(key_));
  EXPECT_EQ(reason(), "NothingToRun");
  Json map = api_.all("configmaps").at({"lab", "scripts"});
  map.child("data").erase("two");
  ASSERT_TRUE(api_.put(resources::config_maps, map));
  api_.answer = [](const std::vector<std::string>& command) -> kube::ExecResult { return command.at(1) == "check-look" ? kube::ExecResult{.out = std::string(kNodes) + "]}"} : kube::ExecResult{.out = R"({"jobs":[{"node":"-","id":"7"}]})"}; };
  ASSERT_TRUE(controller_.reconcile(key_));
  EXPECT_THAT(told(), Contains("check-run u1 1795320600 30 -"));
}

struct Row {
  const char *name, *spec;
  bool cluster;
  const char* reason;
};
class ActiveChecksWait : public ActiveChecks, public testing::WithParamInterface<Row> {};
TEST_P(ActiveChecksWait, AndSayForWhat) {
  if (GetParam().cluster) make_cluster();
  make_check(GetParam().spec);
  ASSERT_TRUE(controller_.reconcile(key_));
  EXPECT_EQ(reason(), GetParam().reason);
  EXPECT_THAT(told(), IsEmpty());
  const int writes = api_.status_writes;
  ASSERT_TRUE(controller_.reconcile(key_));
  EXPECT_EQ(api_.status_writes, writes) << "told once";
}
INSTANTIATE_TEST_SUITE_P(Rows, ActiveChecksWait,
                         testing::Values(Row{"suspended", "suspend: true, runAfterCreation: false, slurmJobSpec: {sbatchScript: x}", true, "Suspended"}, Row{"no_cluster", "suspend: false, slurmJobSpec: {sbatchScript: x}", false, "NoCluster"},
                                         Row{"no_script", "suspend: false", true, "NothingToRun"}, Row{"no_such_map", "slurmJobSpec: {sbatchScriptRefName: nowhere}", true, "NothingToRun"},
                                         Row{"not_yet", "suspend: false, runAfterCreation: false, schedule: '@daily', slurmJobSpec: {sbatchScript: x}", true, "Waiting"}),
                         [](const auto& row) { return row.param.name; });

// As Kubernetes would: the Job has failed, and so has its pod.
void end_job(kube::TinyApi& api, Json job, int exit) {
  job.set("status", Json::object({{"conditions", Json::array({Json::object({{"type", exit ? "Failed" : "Complete"}, {"status", "True"}, {"reason", exit ? "BackoffLimitExceeded" : ""}})})}}));
  Json pod = Json::object({{"metadata", Json::object({{"name", "pod-of-" + kube::name_of(job)}, {"namespace", "lab"}, {"labels", job["spec"]["template"]["metadata"]["labels"]}, {"ownerReferences", Json::array({kube::owner_reference(job)})}})}});
  pod.set("status", Json::object({{"containerStatuses", Json::array({Json::object({{"name", "check"}, {"state", Json::object({{"terminated", Json::object({{"exitCode", exit}, {"reason", "Error"}})}})}})})}}));
  EXPECT_TRUE(api.put(kJobs, job));
  EXPECT_TRUE(api.put(resources::pods, pod));
}

constexpr const char* kPodCheck = "{apiVersion: slurm.nebius.ai/v1alpha1, kind: ActiveCheck, metadata: {name: gpu, namespace: lab, uid: u1, generation: 1, creationTimestamp: '2026-11-22T04:10:00Z'}, spec: {slurmClusterRefName: demo, "
                                  "k8sJobSpec: {jobContainer: {image: x, command: [y]}}, ";

TEST_F(ActiveChecks, OfPodsRunAsJobsAtTheirWorkers) {
  make_cluster();
  for (const char* name : {"worker-0", "worker-1"}) {
    Json pod = api_.all("pods").at({"lab", name});
    pod.set("spec", Json::object({{"nodeName", std::string("on-") + name}}));
    ASSERT_TRUE(api_.put(resources::pods, pod));
  }
  make(api::kActiveChecks, std::string(kPodCheck) + "extensions: {eachWorker: true}, failureReactions: {drainSlurmNode: {}}}}");
  api_.answer = [](const std::vector<std::string>& command) -> kube::ExecResult { return command.at(1) == "check-look" ? kube::ExecResult{.out = std::string(kNodes) + "]}"} : kube::ExecResult{}; };
  const Json before = api_.all("activechecks").at(key_);
  ASSERT_TRUE(controller_.reconcile(key_));
  EXPECT_EQ(api_.all("jobs").size(), 2U);
  EXPECT_EQ(reason(), "Running");
  // The write of the status did not arrive: the same Jobs, and none twice.
  ASSERT_TRUE(api_.put(api::kActiveChecks, before));
  ASSERT_TRUE(controller_.reconcile(key_));
  EXPECT_EQ(api_.all("jobs").size(), 2U);
  for (const auto& [key, job] : std::map(api_.all("jobs"))) end_job(api_, job, job["spec"]["template"]["spec"]["nodeName"].string() == "on-worker-1" ? 2 : 0);
  (void)told();
  ASSERT_TRUE(controller_.reconcile(key_));
  EXPECT_THAT(told(), ElementsAre("check-look u1", testing::MatchesRegex("check-drain worker-1 1 fairlead: check gpu: 1 of its last 1 results failed, the last one in job gpu-1795320600-[0-9a-f]+")));
  EXPECT_EQ(api_.all("activechecks").at(key_)["status"]["k8sJobsStatus"]["lastJobStatus"].string(), "Failed");
}

TEST_F(ActiveChecks, OfPodsWithoutWorkersNeedNoSlurm) {
  make(resources::slurm_clusters, "{metadata: {name: demo, namespace: lab, uid: c1}}");
  make(api::kActiveChecks, std::string(kPodCheck) + "}}");
  ASSERT_TRUE(controller_.reconcile(key_));
  ASSERT_EQ(api_.all("jobs").size(), 1U);
  end_job(api_, api_.all("jobs").begin()->second, 0);
  ASSERT_TRUE(controller_.reconcile(key_));
  EXPECT_EQ(api_.all("activechecks").at(key_)["status"]["k8sJobsStatus"]["lastJobStatus"].string(), "Complete");
  EXPECT_THAT(told(), IsEmpty());
}

TEST_F(ActiveChecks, AJobOfSomebodyElseIsNoResult) {
  make(resources::slurm_clusters, "{metadata: {name: demo, namespace: lab, uid: c1}}");
  make(api::kActiveChecks, std::string(kPodCheck) + "}}");
  const Json object = api_.all("activechecks").at(key_);
  const std::string name = check_job_name(read_check(object), "1795320600", "-");
  make(kJobs, "{metadata: {name: " + name + ", namespace: lab}}");
  ASSERT_TRUE(controller_.reconcile(key_));
  ASSERT_TRUE(controller_.reconcile(key_));
  const Json now = api_.all("activechecks").at(key_);
  EXPECT_EQ(now["status"]["k8sJobsStatus"]["lastJobStatus"].string(), "Error");
  EXPECT_THAT((*kube::find_condition(now, "Passed"))["message"].string(), HasSubstr("of somebody else is there"));
}

TEST_F(ActiveChecks, NoHeadIsSaidAndGoneChecksAreNothing) {
  make(resources::slurm_clusters, "{metadata: {name: demo, namespace: lab, uid: c1}}");
  make_check("slurmJobSpec: {sbatchScript: x}");
  ASSERT_TRUE(controller_.reconcile(key_));
  EXPECT_EQ(reason(), "NoHead");
  ASSERT_TRUE(controller_.reconcile({"lab", "gone"}));
}

// docs/design/022: what is asked of the machine, and when.
class ActiveChecksReboot : public ActiveChecks {
 protected:
  static constexpr const char* kReason = "fairlead: check gpu: 1 of its last 1 results failed, the last one in job 7; then its machine is rebooted";
  void SetUp() override {
    make_cluster();
    Json pod = api_.all("pods").at({"lab", "worker-1"});
    pod.set("spec", Json::object({{"nodeName", "m1"}}));
    ASSERT_TRUE(api_.put(resources::pods, pod));
    make(resources::nodes, "{metadata: {name: m1}, status: {conditions: [{type: Ready, status: 'True'}], nodeInfo: {bootID: b0}}}");
    make_check("suspend: true, slurmJobSpec: {sbatchScript: x, eachWorkerJobs: true}, failureReactions: {drainSlurmNode: {}}, extensions: {reboot: {}}");
    Json check = api_.all("activechecks").at(key_);
    check.child("status").set("checks", Json::object({{"first", true}, {"reboots", Json::object({{"worker-1", Json::object({{"stage", "New"}})}})}}));
    ASSERT_TRUE(api_.put(api::kActiveChecks, check));
    api_.answer = [](const std::vector<std::string>& command) -> kube::ExecResult {
      if (command.at(1) != "check-look") return {};
      return {.out = std::string(R"({"answered":true,"nodes":[{"name":"worker-0","state":["IDLE"],"reason":""},{"name":"worker-1","state":["IDLE","DRAIN"],"reason":")") + kReason + R"("}],"jobs":[],"empty":["worker-1"],"trials":[]})"};
    };
  }
  void make_machine() { make(resources::machines, "{apiVersion: fairlead.dev/v1alpha1, kind: Machine, metadata: {name: m1}, spec: {local: {cpu: 2}}}"); }
  void rounds(int count) {
    for (int i = 0; i < count; ++i) ASSERT_TRUE(controller_.reconcile(key_));
  }
  std::string told_of_reboots() {
    const Json* found = kube::find_condition(api_.all("activechecks").at(key_), "Rebooting");
    return found ? (*found)["message"].string() : "absent";
  }
};

TEST_F(ActiveChecksReboot, AsksItsMachineOnceAndSaysWhoAsks) {
  make_machine();
  rounds(3);
  const Json asked = api_.all("machines").at({"", "m1"})["spec"]["reboot"];
  EXPECT_EQ(asked["by"].string(), "ActiveCheck lab/gpu for worker-1");
  EXPECT_EQ(asked["why"].string(), kReason);
  EXPECT_EQ(asked["id"].string().size(), 16U);
  const std::string version = kube::version_of(api_.all("machines").at({"", "m1"}));
  rounds(5);
  EXPECT_EQ(kube::version_of(api_.all("machines").at({"", "m1"})), version) << "asked once";
  ASSERT_EQ(api_.all("events").size(), 1U);
  EXPECT_EQ(api_.all("events").begin()->second["message"].string(), "machine m1 of worker-1 is asked to reboot (request " + asked["id"].string() + ")");
}

TEST_F(ActiveChecksReboot, LeavesAMachineThatOthersUse) {
  make_machine();
  make(resources::pods, "{metadata: {name: theirs, namespace: other}, spec: {nodeName: m1}, status: {phase: Running}}");
  make(resources::pods, "{metadata: {name: over, namespace: other}, spec: {nodeName: m1}, status: {phase: Succeeded}}");
  make(resources::pods, "{metadata: {name: proxy, namespace: other, ownerReferences: [{kind: DaemonSet, name: p, uid: u, controller: true}]}, spec: {nodeName: m1}, status: {phase: Running}}");
  rounds(4);
  EXPECT_TRUE(api_.all("machines").at({"", "m1"})["spec"]["reboot"].is_null());
  EXPECT_EQ(told_of_reboots(), "worker-1: is not rebooted yet: other pods run on machine m1: other/theirs");
}

TEST_F(ActiveChecksReboot, LeavesANodeThatIsNoneOfOurMachines) {
  rounds(4);
  EXPECT_THAT(told_of_reboots(), HasSubstr("node m1 is not a machine that Fairlead brought up"));
}

// What somebody else has asked for is not overwritten.
TEST_F(ActiveChecksReboot, WaitsForARequestOfSomebodyElse) {
  make_machine();
  Json machine = api_.all("machines").at({"", "m1"});
  machine.child("spec").set("reboot", Json::object({{"id", "ada's"}}));
  ASSERT_TRUE(api_.put(resources::machines, machine));
  rounds(4);
  EXPECT_EQ(api_.all("machines").at({"", "m1"})["spec"]["reboot"]["id"].string(), "ada's");
  EXPECT_THAT(told_of_reboots(), HasSubstr("asked to reboot by somebody else"));
}

class ActiveChecksTrial : public ActiveChecksReboot {
 protected:
  static constexpr const char* kThen = "fairlead: check gpu: was not tried after the reboot of m1";
  void SetUp() override {
    ActiveChecksReboot::SetUp();
    Json check = api_.all("activechecks").at(key_);
    check.child("status").child("checks").set("reboots", Json::object({{"worker-1", Json::object({{"stage", "Try"}, {"reason", kReason}, {"id", "0123456789abcdef"}, {"machine", "m1"}, {"run", "9000000001"}, {"tried", "2026-11-22T04:10:00Z"}})}}));
    ASSERT_TRUE(api_.put(api::kActiveChecks, check));
    slurm("IDLE", "", R"({"id":"8","run":"9000000001","state":"RUNNING","requested":["worker-1"],"nodes":["worker-1"],"exit":0,"signal":0})", R"({"node":"worker-1","reservation":"fairlead-check-0123456789abcdef"})");
  }
  void slurm(const std::string& state, const std::string& why, const std::string& jobs, const std::string& trials) {
    api_.answer = [=](const std::vector<std::string>& command) -> kube::ExecResult {
      if (command.at(1) != "check-look") return {};
      return {.out = R"({"answered":true,"nodes":[{"name":"worker-1","state":["IDLE",")" + state + R"("],"reason":")" + why + R"("}],"jobs":[)" + jobs + R"(],"empty":[],"trials":[)" + trials + "]}"};
    };
  }
  void deleted() {
    Json check = api_.all("activechecks").at(key_);
    check.child("metadata").set("deletionTimestamp", "2026-11-22T04:10:06Z");
    ASSERT_TRUE(api_.put(api::kActiveChecks, check));
  }
  bool held() { return api_.all("activechecks").contains(key_) && kube::has_finalizer(api_.all("activechecks").at(key_), kTrialFinalizer); }
};

// docs/design/022: who deletes a check in the middle of its try leaves no reservation behind, and the worker drained.
TEST_F(ActiveChecksTrial, DeletedInTheMiddleIsPutInOrderFirst) {
  rounds(1);
  EXPECT_TRUE(held());
  EXPECT_THAT(told(), IsEmpty()) << "nothing is reserved before it is held";
  deleted();
  rounds(3);
  EXPECT_THAT(told(), ElementsAre("check-look u1 worker-1", "check-look u1 worker-1", "check-cancel u1 8", std::string("check-settle worker-1 fairlead-check-0123456789abcdef ") + kReason + " " + kThen, testing::_, testing::_,
                                  testing::_))
      << "repeated until it is seen to be so";
  EXPECT_TRUE(held());
  slurm("DRAIN", std::string(kThen), "", "");
  rounds(2);
  EXPECT_FALSE(held());
}

TEST_F(ActiveChecksTrial, DeletedWhileNobodyAnswersIsHeldAndWithoutAClusterItIsNot) {
  rounds(1);
  deleted();
  api_.answer = [](const std::vector<std::string>&) -> kube::ExecResult { return {.exit_code = 4, .err = "no answer"}; };
  rounds(2);
  EXPECT_TRUE(held());
  ASSERT_TRUE(api_.remove(resources::slurm_clusters, {"lab", "demo"}));
  rounds(1);
  EXPECT_FALSE(held());
}

TEST_F(ActiveChecksTrial, IsLetGoOfWhenTheTryIsOver) {
  rounds(1);
  slurm("DRAIN", "ada has it", "", "");
  rounds(4);
  EXPECT_FALSE(held());
  EXPECT_TRUE(api_.all("activechecks").contains(key_));
}

TEST(ActiveChecksOfOneNamespace, HaveNoRightToMachines) {
  ManualClock clock{*parse_time("2026-11-22T04:10:05Z")};
  kube::TinyApi api;
  const auto access = kube::full_access(ActiveCheckController(api, clock, "lab"));
  EXPECT_FALSE(access.allows("get", resources::machines, "", "", "m1"));
  EXPECT_FALSE(access.allows("update", resources::machines, "", "", "m1"));
}

}  // namespace
}  // namespace fairlead::slurm
