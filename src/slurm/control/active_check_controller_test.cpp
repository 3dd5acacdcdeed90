// SPDX-License-Identifier: Apache-2.0
#include "slurm/control/active_check_controller.h"

#include <gmock/gmock.h>

#include "api/node_set.h"
#include "kube/fenced_api.h"
#include "kube/tiny_api.h"

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

TEST_F(ActiveChecks, OfPodsAreNotRun) {
  make_cluster();
  make(api::kActiveChecks, "{metadata: {name: gpu, namespace: lab, uid: u1}, spec: {slurmClusterRefName: demo, k8sJobSpec: {jobContainer: {image: x}}}}");
  ASSERT_TRUE(controller_.reconcile(key_));
  EXPECT_EQ(reason(), "NotInEffect");
  EXPECT_THAT(told(), IsEmpty());
}

TEST_F(ActiveChecks, NoHeadIsSaidAndGoneChecksAreNothing) {
  make(resources::slurm_clusters, "{metadata: {name: demo, namespace: lab, uid: c1}}");
  make_check("slurmJobSpec: {sbatchScript: x}");
  ASSERT_TRUE(controller_.reconcile(key_));
  EXPECT_EQ(reason(), "NoHead");
  ASSERT_TRUE(controller_.reconcile({"lab", "gone"}));
}

}  // namespace
}  // namespace fairlead::slurm
