// SPDX-License-Identifier: Apache-2.0
// Lifecycle scripts, in the small world of cluster_test_site.h.
#include <gmock/gmock.h>

#include "base/encoding.h"
#include "fleet/control/cluster_test_site.h"

namespace fairlead::fleet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using namespace std::chrono_literals;

struct Scripts : testing::Test {
  ClusterSite site;
  Scripts() { site.scripts->buckets["sagemaker-x"] = {{"on_create.sh", "#!/bin/sh\n"}, {"utils/lib.sh", "x"}, {"on_init.sh", "#!/bin/sh\n"}}; }
  Json spec(int workers, const std::string& on_create = "on_create.sh", const std::string& on_init = "", bool continuous = true) {
    Json out = site.spec(workers, continuous);
    Json& group = site.group_of(out, "gpu");
    group = ClusterSite::with_scripts(group, on_create, on_init);
    return out;
  }
  std::string message() { return site.instances("gpu").front()["status"]["message"].string(); }
  std::string phase() { return site.instances("gpu").front()["status"]["phase"].string(); }
  void rounds(int count) {
    for (int i = 0; i < count; ++i) site.reconcile(), site.tick();
  }
  int count_of(const std::string& stage) { return static_cast<int>(std::count_if(site.ran.begin(), site.ran.end(), [&](const std::string& one) { return one.starts_with(stage + " "); })); }
  void TearDown() override {
    const std::set<std::string> once(site.ran.begin(), site.ran.end());
    EXPECT_EQ(once.size(), site.ran.size()) << "a script ran twice on one machine";
  }
};

TEST_F(Scripts, RunBeforeSlurmAndOnceItIsThere) {
  site.create("ml", spec(2, "on_create.sh", "on_init.sh"));
  site.settle();
  EXPECT_EQ(site.phase("ml"), "InService");
  EXPECT_EQ(site.summary("ml"), "4/4");
  EXPECT_EQ(count_of("OnCreate"), 2);
  EXPECT_EQ(count_of("OnInitComplete"), 2);
  const Json record = site.instances("gpu")[0]["status"]["lifecycle"];
  EXPECT_EQ(record["onCreate"]["phase"].string(), "Succeeded");
  EXPECT_THAT(record["onInitComplete"]["sum"].string(), SizeIs(64));
  // At rest nothing is read, nothing written.
  EXPECT_THAT(needed_sources(api::read_cluster(site.api.all("clusters").at({"", "ml"})), site.instances(), {}), IsEmpty());
  const auto before = site.picture();
  for (int i = 0; i < 5; ++i) site.reconcile();
  EXPECT_EQ(site.picture(), before);
  site.remove("ml");
  site.settle();
  EXPECT_TRUE(site.nothing_left()) << site.picture();
}

TEST_F(Scripts, FindTheClusterAndThemselves) {
  site.create("ml", spec(1));
  site.script = [](const Json&) { return -1; };
  rounds(12);
  EXPECT_EQ(phase(), "Pending");
  EXPECT_THAT(message(), HasSubstr("on_create.sh: Running (kubectl logs -n cluster-ml "));
  const std::string id = kube::name_of(site.instances("gpu")[0]);
  const Json pod = site.api.all("pods").at({"cluster-ml", id + "-on-create"});
  EXPECT_EQ(pod["spec"]["nodeName"].string(), node_of(site.instances("gpu")[0]));
  const auto group = kube::parse_json(site.api.all("configmaps").at({"cluster-ml", "lifecycle-group-gpu-0"})["data"]["lifecycle-group-gpu-0.json"].string());
  ASSERT_TRUE(group);
  EXPECT_EQ(group->items()[0]["InstanceName"].string(), "gpu-1");
  EXPECT_EQ(group->items()[0]["InstanceId"].string(), id);
  EXPECT_THAT(group->items()[0]["CustomerIpAddress"].string(), HasSubstr("10.0.0."));
  const Json& data = site.api.all("configmaps").at({"cluster-ml", "lifecycle-cluster"})["data"];
  EXPECT_THAT(data["provisioning_parameters.json"].string(), HasSubstr(R"("controller_group":"controllers","login_group":"logins","worker_groups":[{"instance_group_name":"gpu","partition_name":"train"}])"));
  // The head has an address, and is told none of itself.
  EXPECT_THAT(data["cluster.json"].string(), AllOf(HasSubstr(R"("PrimaryControllerIp":"10.0.0.)"), HasSubstr(R"("ClusterType":"Slurm")")));
  EXPECT_THAT(data["controller.json"].string(), HasSubstr(R"("PrimaryControllerIp":"")"));
  // Meanwhile Slurm has none of it, and the root that it shares was asked for.
  EXPECT_EQ(site.api.all("nodesets").at({"cluster-ml", "gpu"})["spec"]["replicas"].integer(), 0);
  EXPECT_EQ(site.api.all("slurmclusters").begin()->second["spec"]["populateJail"]["k8sNodeFilterName"].string(), "machines");
}

TEST_F(Scripts, AFailureIsToldAndAnotherMachineTriesItLaterAndLater) {
  site.script = [](const Json&) { return 3; };
  site.create("ml", spec(1));
  rounds(12);
  EXPECT_EQ(phase(), "Failure");
  EXPECT_THAT(message(), AllOf(HasSubstr("on_create.sh: it ended with 3:\nno route"), HasSubstr("another machine tries it at 2026-11-26T12:")));
  EXPECT_EQ(site.phase("ml"), "InService") << "the groups without a script serve";
  const std::string first = kube::name_of(site.instances("gpu")[0]);
  for (int i = 0; i < 6; ++i) site.reconcile();  // no time passes
  EXPECT_EQ(kube::name_of(site.instances("gpu")[0]), first);
  EXPECT_EQ(count_of("OnCreate"), 1);
  site.clock.advance(61s);
  rounds(12);
  EXPECT_EQ(site.numbers("gpu"), "1'");
  EXPECT_EQ(count_of("OnCreate"), 2);
  EXPECT_FALSE(site.api.all("nodes").contains({"", "hyperpod-" + first})) << "the half made machine is gone";
  site.clock.advance(61s);
  rounds(2);
  EXPECT_EQ(count_of("OnCreate"), 2) << "the second time after two minutes";
  site.script = [](const Json&) { return 0; };
  site.clock.advance(61s);
  site.settle();
  EXPECT_EQ(site.numbers("gpu"), "1''");
  EXPECT_EQ(site.summary("ml"), "3/3");
}

TEST_F(Scripts, AllOrNothingIsTakenBackWhenOneFails) {
  site.script = [](const Json&) { return 3; };
  site.create("ml", spec(1, "on_create.sh", "", false));
  site.settle();
  EXPECT_EQ(site.phase("ml"), "Failed");
  EXPECT_THAT(site.status("ml")["message"].string(), HasSubstr("of group gpu: on_create.sh: it ended with 3"));
  EXPECT_TRUE(site.instances().empty());
  EXPECT_TRUE(site.api.all("machines").empty());
  // A change to a cluster that serves.
  site.script = [](const Json&) { return 0; };
  site.create("two", spec(1, "on_create.sh", "", false));
  site.settle();
  ASSERT_EQ(site.phase("two"), "InService") << kube::print_json(site.status("two"));
  site.script = [](const Json&) { return 3; };
  site.edit("two", [&](Json& its) { site.group_of(its, "gpu").set("instanceCount", 3); });
  site.settle();
  EXPECT_EQ(site.phase("two"), "InService");
  EXPECT_EQ(site.summary("two"), "3/3");
  EXPECT_THAT(site.status("two")["message"].string(), HasSubstr("it ended with 3"));
}

TEST_F(Scripts, FilesThatAreNotThereAreWaitedFor) {
  site.scripts->buckets.clear();
  site.create("ml", spec(1));
  rounds(12);
  EXPECT_EQ(phase(), "Failure");
  EXPECT_EQ(message(), "s3://sagemaker-x/base: there is no such folder");
  site.scripts->buckets["sagemaker-x"] = {{"on_creat.sh", "#!/bin/sh\n"}};
  rounds(4);
  EXPECT_EQ(message(), "there is no file on_create.sh below s3://sagemaker-x/base");
  site.scripts->error = {Code::Unavailable, "it does not answer"};
  site.scripts->buckets.clear();
  rounds(4);
  EXPECT_EQ(phase(), "Pending") << "who may answer again has not failed";
  site.scripts->buckets["sagemaker-x"] = {{"on_create.sh", "#!/bin/sh\n"}};
  site.settle();
  EXPECT_EQ(site.summary("ml"), "3/3");
  EXPECT_EQ(site.numbers("gpu"), "1") << "no machine was wasted on it";
}

TEST_F(Scripts, NeverRunAgainOnARebootAndAnewOnAnotherMachine) {
  site.create("ml", spec(2, "on_create.sh", "on_init.sh"));
  site.settle();
  const std::string node = node_of(site.instances("gpu")[0]);
  site.ask(kube::name_of(site.instances("gpu")[0]), "reboot", "b");
  site.settle();
  EXPECT_EQ(site.reboots[node], 1);
  EXPECT_EQ(count_of("OnCreate"), 2);
  EXPECT_EQ(count_of("OnInitComplete"), 2);
  site.ask(kube::name_of(site.instances("gpu")[0]), "replace", "r");
  site.settle();
  EXPECT_EQ(site.numbers("gpu"), "1' 2");
  EXPECT_EQ(count_of("OnCreate"), 3);
  EXPECT_EQ(count_of("OnInitComplete"), 3);
  EXPECT_EQ(site.summary("ml"), "4/4");
}

TEST_F(Scripts, OfAGroupThatServesRunOnFurtherMachinesOnly) {
  site.create("ml", site.spec(1));
  site.settle();
  EXPECT_FALSE(site.api.all("slurmclusters").begin()->second["spec"].has("populateJail"));
  site.edit("ml", [&](Json& its) {
    Json& group = site.group_of(its, "gpu");
    group = ClusterSite::with_scripts(group, "on_create.sh", "on_init.sh");
    group.set("instanceCount", 2);
  });
  site.settle();
  EXPECT_EQ(site.summary("ml"), "4/4");
  EXPECT_EQ(count_of("OnCreate"), 1);
  EXPECT_THAT(site.ran.front(), HasSubstr(kube::name_of(site.instances("gpu")[1])));
  EXPECT_EQ(site.numbers("gpu"), "1 2");
}

TEST_F(Scripts, AClusterGoesWhileOneHangs) {
  site.script = [](const Json&) { return -1; };
  site.create("ml", spec(2));
  rounds(12);
  ASSERT_THAT(message(), HasSubstr("on_create.sh: Running"));
  site.remove("ml");
  site.settle();
  EXPECT_TRUE(site.nothing_left()) << site.picture();
}

TEST_F(Scripts, ANodeIsTakenAwayWhileOneHangs) {
  site.script = [](const Json&) { return -1; };
  site.create("ml", spec(2));
  rounds(12);
  site.edit("ml", [&](Json& its) { site.group_of(its, "gpu").set("instanceCount", 1).set("retired", "1"); });
  rounds(10);
  EXPECT_EQ(site.numbers("gpu"), "2");
  EXPECT_EQ(site.api.all("machines").size(), 3u);
}

// It wrote more than it may: run again it would again, so it has failed, and says so.
TEST_F(Scripts, OneThatFillsItsDiskHasFailed) {
  site.script = [&](const Json&) { return -1; };
  site.create("ml", spec(1));
  rounds(12);
  Json pod = site.api.all("pods").at({"cluster-ml", kube::name_of(site.instances("gpu")[0]) + "-on-create"});
  pod.set("status", Json::object({{"phase", "Failed"}, {"reason", "Evicted"}, {"message", "Usage of EmptyDir volume \"tmp\" exceeds the limit \"10Gi\"."}}));
  ASSERT_TRUE(site.api.put(resources::pods, pod));
  site.reconcile();
  site.reconcile();
  EXPECT_THAT(message(), HasSubstr("exceeds the limit"));
  EXPECT_EQ(site.instances("gpu")[0]["status"]["phase"].string(), "Failure");
}

TEST_F(Scripts, OneWhosePodIsLostRunsAgain) {
  bool first = true;
  site.script = [&](const Json&) { return first ? -1 : 0; };
  site.create("ml", spec(1));
  rounds(12);
  const kube::ObjectKey key{"cluster-ml", kube::name_of(site.instances("gpu")[0]) + "-on-create"};
  Json pod = site.api.all("pods").at(key);
  pod.set("status", Json::object({{"phase", "Failed"}, {"reason", "Evicted"}, {"message", "The node had condition: [DiskPressure]."}}));
  ASSERT_TRUE(site.api.put(resources::pods, pod));
  site.reconcile();
  EXPECT_THAT(message(), HasSubstr("DiskPressure].; it is run again"));
  site.reconcile();
  EXPECT_FALSE(site.api.all("pods").contains(key)) << "when it is counted";
  first = false;
  site.settle();
  EXPECT_EQ(site.summary("ml"), "3/3");
}

TEST_F(Scripts, NodesOfKubernetesAreClosedUntilTheyHaveRun) {
  site.script = [](const Json&) { return -1; };
  Json group = Json::object({{"instanceGroupName", "workers"}, {"instanceType", "ml.g5.xlarge"}, {"instanceCount", 1}, {"kubernetesConfig", Json::object({{"labels", Json::object({{"Team", "vision"}})}})}});
  site.create("k", Json::object({{"nodeProvisioningMode", "Continuous"}, {"orchestrator", Json::object({{"eks", Json::object({{"clusterArn", "arn"}})}})}, {"instanceGroups", Json::array({ClusterSite::with_scripts(group, "on_create.sh", "on_init.sh")})}}));
  rounds(14);
  const auto node = [&] { return site.api.all("nodes").at({"", node_of(site.instances()[0])}); };
  EXPECT_TRUE(node()["spec"]["unschedulable"].boolean());
  EXPECT_FALSE(node()["metadata"]["labels"].has("Team"));
  const Json pod = site.api.all("pods").at({"cluster-k", kube::name_of(site.instances()[0]) + "-on-create"});
  EXPECT_TRUE(pod["spec"]["hostNetwork"].boolean());
  EXPECT_FALSE(pod["spec"].has("hostPID")) << "a machine of ours has the root of this machine: it is not the script's";
  site.script = [](const Json&) { return 0; };
  site.settle();
  EXPECT_EQ(site.summary("k"), "1/1");
  EXPECT_FALSE(node()["spec"]["unschedulable"].boolean());
  EXPECT_EQ(node()["metadata"]["labels"]["Team"].string(), "vision");
  EXPECT_EQ(site.ran.size(), 2u);
  site.remove("k");
  site.settle();
  EXPECT_TRUE(site.nothing_left()) << site.picture();
}

TEST_F(Scripts, OnASpareMachineHaveItsOwnRoot) {
  ClusterSite other(false);
  other.scripts = site.scripts;
  other.restart();
  other.script = [](const Json&) { return -1; };
  other.spare("g", "ml.g5.xlarge", 4, 16, 1);
  Json group = Json::object({{"instanceGroupName", "workers"}, {"instanceType", "ml.g5.xlarge"}, {"instanceCount", 1}});
  other.create("k", Json::object({{"nodeProvisioningMode", "Continuous"}, {"orchestrator", Json::object({{"eks", Json::object({{"clusterArn", "arn"}})}})}, {"instanceGroups", Json::array({ClusterSite::with_scripts(group, "on_create.sh")})}}));
  for (int i = 0; i < 14; ++i) other.reconcile(), other.tick();
  const Json pod = other.api.all("pods").at({"cluster-k", kube::name_of(other.instances()[0]) + "-on-create"});
  EXPECT_TRUE(pod["spec"]["hostPID"].boolean());
  EXPECT_THAT(kube::print_json(pod["spec"]["containers"]), HasSubstr(R"({"name":"FAIRLEAD_SCRIPT_ROOT","value":"/host"})"));
  other.remove("k");
  other.settle();
  EXPECT_FALSE(other.api.all("nodes").at({"", "g"})["spec"]["unschedulable"].boolean());
}

TEST_F(Scripts, AReplacedNodeWorksUntilTheOtherIsPrepared) {
  site.create("ml", spec(1));
  site.settle();
  const std::string old = kube::name_of(site.instances("gpu")[0]);
  site.script = [](const Json&) { return -1; };
  site.ask(old, "replace", "r");
  rounds(20);
  EXPECT_EQ(site.numbers("gpu"), "1 1'");
  EXPECT_EQ(site.instances("gpu")[0]["status"]["phase"].string(), "Running") << "another machine is there, and not ready for work";
  site.script = [](const Json&) { return 0; };
  site.settle();
  EXPECT_EQ(site.numbers("gpu"), "1'");
}

TEST_F(Scripts, AReplacementThatFailsIsTriedAgainAlsoWhereAllOrNothingIs) {
  site.create("ml", spec(1, "on_create.sh", "", false));
  site.settle();
  ASSERT_EQ(site.phase("ml"), "InService");
  site.script = [](const Json&) { return 3; };
  site.ask(kube::name_of(site.instances("gpu")[0]), "replace", "r");
  rounds(15);
  EXPECT_EQ(site.phase("ml"), "InService");
  EXPECT_EQ(site.instances("gpu")[0]["status"]["phase"].string(), "Running");
  site.script = [](const Json&) { return 0; };
  site.clock.advance(121s);
  site.settle();
  EXPECT_EQ(site.summary("ml"), "3/3");
  EXPECT_EQ(site.instances("gpu").size(), 1u);
}

TEST_F(Scripts, OneAtWorkIsNoReasonToTakeAChangeBack) {
  site.script = [](const Json&) { return -1; };
  site.create("ml", spec(1, "on_create.sh", "", false));
  rounds(12);
  site.clock.advance(50min);
  rounds(5);
  EXPECT_EQ(site.phase("ml"), "Creating");
  site.script = [](const Json&) { return 0; };
  site.settle();
  EXPECT_EQ(site.phase("ml"), "InService");
}

TEST_F(Scripts, RunByWhatTheirGroupHadWhenTheyBegan) {
  site.script = [](const Json&) { return -1; };
  site.create("ml", spec(1));
  rounds(12);
  ASSERT_THAT(message(), HasSubstr("on_create.sh: Running"));
  site.edit("ml", [&](Json& its) { site.group_of(its, "gpu").erase("lifeCycleConfig"); });
  rounds(10);
  EXPECT_THAT(message(), HasSubstr("on_create.sh: Running")) << "Slurm must not come under it";
  site.script = [](const Json&) { return 0; };
  site.settle();
  EXPECT_EQ(site.summary("ml"), "3/3");
}

TEST_F(Scripts, ATakenAwayConfigurationEndsNoMachineThatRuns) {
  site.script = [](const Json& pod) { return kube::name_of(pod).ends_with("complete") ? 3 : 0; };
  site.create("ml", spec(1, "", "on_init.sh"));
  rounds(14);
  ASSERT_EQ(phase(), "Failure");
  site.edit("ml", [&](Json& its) { site.group_of(its, "gpu").erase("lifeCycleConfig"); });
  site.clock.advance(61s);
  site.settle();
  EXPECT_EQ(site.numbers("gpu"), "1'") << "once more, by what it began with, without a script now";
  EXPECT_EQ(site.summary("ml"), "3/3");
  site.clock.advance(1h);
  site.settle();
  EXPECT_EQ(site.numbers("gpu"), "1'");
}

TEST_F(Scripts, APodOfSomebodyElseIsNoScript) {
  site.script = [](const Json&) { return -1; };
  site.create("ml", spec(1));
  for (int i = 0; i < 20 && (site.instances("gpu").empty() || node_of(site.instances("gpu")[0]).empty()); ++i) site.reconcile();
  const Json instance = site.instances("gpu")[0];
  const std::string name = kube::name_of(instance) + "-on-create";
  Json pod = Json::object({{"metadata", Json::object({{"name", name}, {"namespace", "cluster-ml"}, {"labels", Json::object({{api::kLifecycleLabel, kube::name_of(instance)}})}})}, {"spec", Json::object({{"nodeName", node_of(instance)}})},
                           {"status", *kube::parse_json(R"({"phase": "Succeeded", "containerStatuses": [{"name": "lifecycle", "state": {"terminated": {"exitCode": 0}}}]})")}});
  ASSERT_TRUE(site.api.create(resources::pods, pod));
  rounds(10);
  EXPECT_EQ(phase(), "Pending");
  EXPECT_EQ(message(), "on_create.sh waits: pod cluster-ml/" + name + " is not its own; delete it");
  EXPECT_FALSE(is_script(pod));
  ASSERT_TRUE(site.api.remove(resources::pods, {"cluster-ml", name}));
  site.script = [](const Json&) { return 0; };
  site.settle();
  EXPECT_EQ(site.summary("ml"), "3/3");
}

TEST_F(Scripts, NoneComesUnderSlurmThatIsThere) {
  site.script = [](const Json& pod) { return kube::name_of(pod).ends_with("complete") ? -1 : 0; };
  site.create("ml", spec(1, "", "on_init.sh"));
  rounds(14);
  ASSERT_THAT(message(), HasSubstr("on_init.sh: Running"));
  site.edit("ml", [&](Json& its) {
    Json& group = site.group_of(its, "gpu");
    group = ClusterSite::with_scripts(group, "on_create.sh", "on_init.sh");
  });
  rounds(6);
  EXPECT_EQ(count_of("OnCreate"), 0);
  EXPECT_EQ(site.api.all("nodesets").at({"cluster-ml", "gpu"})["spec"]["replicas"].integer(), 1);
  site.script = [](const Json&) { return 0; };
  site.settle();
  EXPECT_EQ(site.summary("ml"), "3/3");
  EXPECT_EQ(count_of("OnCreate"), 0);
}

TEST_F(Scripts, AMendedGroupIsFollowedWhileNothingCameOfTheOldOne) {
  site.create("ml", spec(1, "on_create.sh", "on_init.sh"));
  site.script = [](const Json& pod) { return kube::name_of(pod).ends_with("complete") ? -1 : 0; };
  rounds(12);
  site.scripts->buckets["sagemaker-y"] = std::exchange(site.scripts->buckets["sagemaker-x"], {});
  site.scripts->buckets.erase("sagemaker-x");
  // Its pod is lost, and what it ran by is gone.
  const kube::ObjectKey key{"cluster-ml", kube::name_of(site.instances("gpu")[0]) + "-on-init-complete"};
  if (site.api.all("pods").contains(key)) (void)site.api.remove(resources::pods, key);
  rounds(3);
  EXPECT_EQ(phase(), "Failure");
  site.edit("ml", [&](Json& its) {
    Json& group = site.group_of(its, "gpu");
    group = ClusterSite::with_scripts(group, "on_create.sh", "on_init.sh", "sagemaker-y");
  });
  site.script = [](const Json&) { return 0; };
  site.settle();
  EXPECT_EQ(site.summary("ml"), "3/3");
  EXPECT_EQ(count_of("OnCreate"), 1);
  EXPECT_EQ(site.numbers("gpu"), "1");
}

TEST_F(Scripts, APodOfItsNameElsewhereIsNotInTheWay) {
  Json group = Json::object({{"instanceGroupName", "workers"}, {"instanceType", "ml.g5.xlarge"}, {"instanceCount", 1}});
  site.create("k", Json::object({{"nodeProvisioningMode", "Continuous"}, {"orchestrator", Json::object({{"eks", Json::object({{"clusterArn", "arn"}})}})}, {"instanceGroups", Json::array({ClusterSite::with_scripts(group, "on_create.sh")})}}));
  for (int i = 0; i < 20 && (site.instances().empty() || node_of(site.instances()[0]).empty()); ++i) site.reconcile();
  const Json instance = site.instances()[0];
  ASSERT_TRUE(site.api.create(resources::namespaces, Json::object({{"metadata", Json::object({{"name", "a-tenant"}})}})));
  ASSERT_TRUE(site.api.create(resources::pods, Json::object({{"metadata", Json::object({{"name", kube::name_of(instance) + "-on-create"}, {"namespace", "a-tenant"}, {"labels", Json::object({{api::kLifecycleLabel, kube::name_of(instance)}})}})}, {"spec", Json::object({{"nodeName", node_of(instance)}})}, {"status", Json::object({{"phase", "Running"}})}})));
  rounds(20);
  EXPECT_EQ(site.summary("k"), "1/1");
}

TEST_F(Scripts, ARebootWaitsForOne) {
  Json with = spec(1);
  Json& head = site.group_of(with, "controllers");
  head = ClusterSite::with_scripts(head, "on_create.sh");
  site.script = [](const Json&) { return -1; };
  site.create("ml", with);
  rounds(12);
  const Json instance = site.instances("controllers")[0];
  site.ask(kube::name_of(instance), "reboot", "b");
  rounds(8);
  EXPECT_EQ(site.reboots[node_of(instance)], 0);
  site.script = [](const Json&) { return 0; };
  site.settle();
  EXPECT_EQ(site.reboots[node_of(instance)], 1);
  EXPECT_EQ(site.summary("ml"), "3/3");
}

TEST_F(Scripts, AMachineWithAHalfMadeRootIsSetAside) {
  ClusterSite other(false);
  other.scripts = site.scripts;
  other.restart();
  other.script = [](const Json&) { return 3; };
  other.spare("g", "ml.g5.xlarge", 4, 16, 1);
  Json group = Json::object({{"instanceGroupName", "workers"}, {"instanceType", "ml.g5.xlarge"}, {"instanceCount", 1}});
  other.create("k", Json::object({{"nodeProvisioningMode", "Continuous"}, {"orchestrator", Json::object({{"eks", Json::object({{"clusterArn", "arn"}})}})}, {"instanceGroups", Json::array({ClusterSite::with_scripts(group, "on_create.sh")})}}));
  other.settle();
  EXPECT_THAT(other.instances()[0]["status"]["message"].string(), HasSubstr("of 1 somebody is to take away the label fairlead.dev/replaced"));
  EXPECT_EQ(other.ran.size(), 1u);
}

TEST(ScriptConfigs, HoldGroupsOfAnySize) {
  Json spec = Json::object({{"instanceGroups", Json::array({Json::object({{"instanceGroupName", std::string(63, 'n')}, {"instanceType", "ml.g5.xlarge"}, {"instanceCount", 6758}, {"issued", 6758 + 4000}, {"retired", "1-4000"}})})}, {"orchestrator", Json::object({{"eks", Json::object()}})}});
  const api::Cluster cluster = api::read_cluster(Json::object({{"metadata", Json::object({{"name", "c"}, {"uid", "u"}})}, {"spec", spec}}));
  ASSERT_TRUE(cluster.problems.empty()) << cluster.problems.front();
  std::vector<ScriptNode> nodes;
  for (int number = 4001; number <= 6758 + 4000; ++number) nodes.push_back({cluster.groups[0].name, fmt::format("i-{:017x}", number), "fd00:1234:5678:9abc:def0:1234:5678:9abc", "fd00:1234:5678:9abc:def0:1234:5678:9abc", number});
  const auto configs = script_configs(cluster, Json::object(), nodes, {});
  EXPECT_EQ(configs.size(), 1u + 5u) << "one of the cluster; of its 2,000s the first, and those in which a number is in use";
  std::size_t entries = 0;
  for (const Json& one : configs) {
    EXPECT_LT(kube::print_json(one).size(), 1u << 20);
    for (const auto& [key, text] : one["data"].members())
      if (const auto list = kube::parse_json(text.string()); list && list->is_array()) entries += list->items().size();
  }
  EXPECT_EQ(entries, 6758u);
}

TEST(ScriptConfigs, TellNodesOfTheirKubernetes) {
  const auto config = [](Json orchestrator, const KubernetesFacts& facts) {
    const api::Cluster cluster = api::read_cluster(Json::object({{"metadata", Json::object({{"name", "c"}, {"uid", "u"}})}, {"spec", Json::object({{"instanceGroups", Json::array()}, {"orchestrator", std::move(orchestrator)}})}}));
    return *kube::parse_json(script_configs(cluster, Json::object(), {}, facts)[0]["data"]["cluster.json"].string());
  };
  const KubernetesFacts facts{.name = "fairlead", .endpoint = "https://10.77.1.1:6443", .authority = "PEM", .service_range = "10.79.0.0/16"};
  const Json eks = Json::object({{"eks", Json::object()}});
  EXPECT_EQ(config(eks, facts)["KubernetesConfig"], *kube::parse_json(R"({"EksClusterName": "fairlead", "EksClusterEndpoint": "https://10.77.1.1:6443", "EksClusterCertificateAuthority": "UEVN", "EksServiceIpv4Cidr": "10.79.0.0/16"})"));
  EXPECT_EQ(config(eks, {.name = "fairlead"})["KubernetesConfig"], *kube::parse_json(R"({"EksClusterName": "fairlead"})")) << "what is not known is not told";
  EXPECT_FALSE(config(Json::object({{"slurm", Json::object()}}), facts).has("KubernetesConfig"));
}

TEST(ScriptBundles, HoldWhatTheyWereMadeOf) {
  ScriptFiles files{{"a.sh", "#!/bin/sh\n"}, {"empty", ""}, {"deep/large", std::string(2'000'000, 'x')}};
  const ScriptBundle one = bundle_scripts(files);
  EXPECT_EQ(one.sum, bundle_scripts(files).sum);
  ASSERT_GE(one.secrets.size(), 4u);
  std::map<std::string, std::string> parts;
  for (const Json& secret : one.secrets) {
    EXPECT_LT(kube::print_json(secret).size(), 1u << 20) << "the API takes no more";
    EXPECT_TRUE(secret["immutable"].boolean());
    for (const auto& [key, value] : secret["data"].members()) EXPECT_TRUE(parts.emplace(key, *parse_base64(value.string())).second) << key;
  }
  EXPECT_THAT(parts.at("manifest"), AllOf(HasSubstr(fmt::format("{} 10 part-00000 a.sh\n", hex(sha256("#!/bin/sh\n")))), HasSubstr(" 0 - empty\n"), HasSubstr(" 2000000 part-00001,part-00002,part-00003,part-00004 deep/large\n")));
  EXPECT_EQ(parts.at("part-00001") + parts.at("part-00002") + parts.at("part-00003") + parts.at("part-00004"), files["deep/large"]);
  files["a.sh"] += "\n";
  const ScriptBundle other = bundle_scripts(files);
  EXPECT_NE(other.sum, one.sum);
  EXPECT_NE(other.names.front(), one.names.front());
}

TEST(ScriptEnds, AreReadFromThePod) {
  const auto pod = [](const char* status) { return Json::object({{"status", *kube::parse_json(status)}}); };
  EXPECT_EQ(end_of_script(pod(R"({"phase": "Pending"})")).kind, ScriptEnd::Kind::Waiting);
  EXPECT_EQ(end_of_script(pod(R"({"phase": "Running", "containerStatuses": [{"name": "lifecycle", "state": {"running": {}}}]})")).kind, ScriptEnd::Kind::Going);
  EXPECT_EQ(end_of_script(pod(R"({"phase": "Running", "containerStatuses": [{"name": "lifecycle", "state": {"terminated": {"exitCode": 0}}}]})")).kind, ScriptEnd::Kind::Succeeded);
  const ScriptEnd failed = end_of_script(pod(R"({"phase": "Failed", "containerStatuses": [{"name": "lifecycle", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]})"));
  EXPECT_EQ(failed.kind, ScriptEnd::Kind::Failed);
  EXPECT_EQ(failed.message, "ended with 137, OOMKilled");
  EXPECT_EQ(end_of_script(pod(R"({"phase": "Failed", "containerStatuses": [{"name": "lifecycle", "state": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}}]})")).kind, ScriptEnd::Kind::Lost);
  EXPECT_EQ(end_of_script(pod(R"({"phase": "Failed", "reason": "Evicted", "containerStatuses": [{"name": "lifecycle", "state": {"terminated": {"exitCode": 143, "message": "it was ended from outside"}}}]})")).kind, ScriptEnd::Kind::Lost);
  EXPECT_EQ(end_of_script(pod(R"({"phase": "Failed", "containerStatuses": [{"name": "lifecycle", "state": {"terminated": {"exitCode": 143, "message": "it was ended from outside:\nhalf done"}}}]})")).kind, ScriptEnd::Kind::Lost);
  EXPECT_EQ(end_of_script(pod(R"({"phase": "Failed", "containerStatuses": [{"name": "lifecycle", "state": {"terminated": {"exitCode": 143, "message": "it ended with 143"}}}]})")).kind, ScriptEnd::Kind::Failed);
  EXPECT_EQ(end_of_script(pod(R"({"phase": "Failed", "reason": "OutOfcpu"})")).kind, ScriptEnd::Kind::Lost);
}

}  // namespace
}  // namespace fairlead::fleet
