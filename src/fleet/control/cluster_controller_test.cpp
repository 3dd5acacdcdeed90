// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/cluster_controller.h"

#include <gmock/gmock.h>

#include "api/instance_types.h"
#include "api/instance_volume.h"
#include "api/node_identity.h"
#include "fleet/control/cluster_test_site.h"

namespace fairlead::fleet {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Clusters, AreMachinesThatRunSlurm) {
  ClusterSite site;
  site.create("ml", site.spec(2));
  site.settle();
  EXPECT_EQ(site.phase("ml"), "InService");
  EXPECT_EQ(site.summary("ml"), "4/4");
  EXPECT_TRUE(site.all_run());
  EXPECT_EQ(site.numbers("gpu"), "1 2");
  EXPECT_EQ(site.api.all("machines").size(), 4u);
  const Json set = site.api.all("nodesets").at({"cluster-ml", "gpu"});
  EXPECT_EQ(set["spec"]["replicas"].integer(), 2);
  EXPECT_EQ(kube::print_json(set["spec"]["nodeSelector"]), R"({"fairlead.dev/cluster":"ml","sagemaker.amazonaws.com/instance-group-name":"gpu"})");
  EXPECT_EQ(kube::print_json(set["spec"]["slurmd"]["resources"]), R"({"cpu":"3","memory":"13104Mi","nvidia.com/gpu":"1"})");
  const Json slurm = site.api.all("slurmclusters").at({"cluster-ml", "ml"});
  EXPECT_TRUE(slurm["spec"]["extensions"]["mockGpus"].boolean()) << "what is declared is not there";
  EXPECT_THAT(kube::print_json(slurm["spec"]["partitionConfiguration"]), HasSubstr("PartitionName=train Nodes=gpu "));
  const Json machine = site.api.all("machines").begin()->second;
  EXPECT_THAT(kube::name_of(machine), StartsWith("hyperpod-i-"));
  site.reconcile();
  const auto before = site.picture();
  for (int i = 0; i < 5; ++i) site.reconcile();
  EXPECT_EQ(site.picture(), before) << "at rest nothing is written";
}

TEST(Clusters, TellWhatHappensToThem) {
  ClusterSite site;
  site.create("ml", site.spec(2));
  site.settle();
  const auto told = [&] {
    std::multiset<std::string> out;
    for (const auto& [key, event] : site.api.all("clusterevents")) out.insert(event["spec"]["kind"].string() + " " + event["spec"]["resourceType"].string());
    return out;
  };
  const auto first = told();
  EXPECT_EQ(first.count("ClusterStatus Cluster"), 2u) << "Creating, InService";
  EXPECT_EQ(first.count("ScalingStarted InstanceGroup"), 3u);
  EXPECT_EQ(first.count("ScalingCompleted InstanceGroup"), 3u);
  EXPECT_EQ(first.count("InstanceProvisioned Instance"), 4u);
  site.edit("ml", [&](Json& its) { site.group_of(its, "gpu").set("instanceCount", 3); });
  site.settle();
  EXPECT_EQ(told().size(), first.size() + 3) << "started, provisioned, completed";
  // One that a quota is against holds up nothing.
  site.refuses_events = Error{Code::Forbidden, "exceeded quota"};
  site.edit("ml", [&](Json& its) { site.group_of(its, "gpu").set("instanceCount", 4); });
  site.settle();
  EXPECT_EQ(site.summary("ml"), "6/6");
  EXPECT_EQ(told().size(), first.size() + 3);
  // Who does not answer is asked until he does.
  site.refuses_events = Error{Code::Unavailable, "not now"};
  site.edit("ml", [&](Json& its) { site.group_of(its, "gpu").set("instanceCount", 5); });
  for (int i = 0; i < 10; ++i) site.reconcile(), site.tick();
  site.refuses_events.reset();
  site.settle();
  EXPECT_EQ(site.summary("ml"), "7/7");
  EXPECT_EQ(told().size(), first.size() + 6);
}

TEST(Clusters, WhatHappensAgainIsToldAgain) {
  ClusterSite site;
  site.create("ml", site.spec(1));
  site.settle();
  const std::string name = node_of(site.instances("gpu")[0]);
  const auto turn = [&](const char* ready) {
    Json node = site.api.all("nodes").at({"", name});
    kube::set_condition(node, {"Ready", ready, "", ""}, site.clock.now());
    ASSERT_TRUE(site.api.put(resources::nodes, node));
    site.reconcile();
    site.clock.advance(std::chrono::seconds(7));
    site.reconcile();
  };
  for (int i = 0; i < 3; ++i) turn("Unknown"), turn("True");
  std::multiset<std::string> told;
  for (const auto& [key, event] : site.api.all("clusterevents")) told.insert(event["spec"]["kind"].string());
  EXPECT_EQ(told.count("InstanceNotReady"), 3u);
  EXPECT_EQ(told.count("InstanceReady"), 3u);
}

TEST(Clusters, EventsThatFindNoAnswerHoldNothingUpForEver) {
  ClusterSite site;
  site.refuses_events = Error{Code::Unavailable, "failed calling webhook"};
  Json with = site.spec(30);
  site.create("ml", with);
  for (int i = 0; i < 40; ++i) site.reconcile(), site.tick();
  EXPECT_EQ(site.phase("ml"), "InService");
  EXPECT_EQ(site.summary("ml"), "32/32");
}

TEST(Clusters, GoWithAllThatWasMade) {
  ClusterSite site;
  site.create("ml", site.spec(2));
  site.settle();
  site.busy = {"cluster-ml/gpu-0"};
  site.remove("ml");
  site.reconcile();
  EXPECT_EQ(site.phase("ml"), "Deleting");
  site.busy.clear();
  site.settle();
  EXPECT_TRUE(site.nothing_left()) << site.picture();
}

TEST(Clusters, GoInAnyState) {
  for (int rounds = 0; rounds < 25; ++rounds) {
    ClusterSite site;
    site.create("ml", site.spec(2));
    for (int i = 0; i < rounds; ++i) {
      site.reconcile();
      if (i % 2) site.tick();
    }
    site.remove("ml");
    site.settle();
    EXPECT_TRUE(site.nothing_left()) << "after " << rounds << " rounds: " << site.picture();
  }
}

TEST(Clusters, MoreNodesGetFurtherNumbers) {
  ClusterSite site;
  site.create("ml", site.spec(2));
  site.settle();
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "gpu").set("instanceCount", 4); });
  site.settle();
  EXPECT_EQ(site.numbers("gpu"), "1 2 3 4");
  EXPECT_EQ(site.summary("ml"), "6/6");
  EXPECT_EQ(site.phase("ml"), "InService");
}

// Slurm knows which worker idles: its machine goes.
TEST(Clusters, FewerNodesLeaveWhereNothingRuns) {
  ClusterSite site;
  site.create("ml", site.spec(3));
  site.settle();
  std::string with_job;
  for (const auto& [key, pod] : site.api.all("pods"))
    if (key.name == "gpu-2") with_job = pod["spec"]["nodeName"].string();
  site.busy = {"cluster-ml/gpu-2"};
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "gpu").set("instanceCount", 1); });
  site.settle();
  ASSERT_EQ(site.instances("gpu").size(), 1u);
  EXPECT_EQ(node_of(site.instances("gpu").front()), with_job);
  EXPECT_EQ(site.summary("ml"), "3/3");
  // And no number comes back.
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "gpu").set("instanceCount", 2); });
  site.settle();
  EXPECT_EQ(site.instances("gpu").back()["spec"]["number"].integer(), 4);
}

TEST(Clusters, ANodeThatIsNamedWaitsForItsJobAndGoes) {
  ClusterSite site;
  site.create("ml", site.spec(3));
  site.settle();
  const Json victim = site.instances("gpu")[1];
  std::string pod_there;
  for (const auto& [key, pod] : site.api.all("pods"))
    if (pod["spec"]["nodeName"].string() == node_of(victim)) pod_there = key.text();
  site.busy = {pod_there};
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "gpu").set("instanceCount", 2).set("retired", "2"); });
  site.settle();
  EXPECT_EQ(site.numbers("gpu"), "1 2 3") << "its job runs";
  EXPECT_EQ(site.instances("gpu")[1]["status"]["phase"].string(), "ShuttingDown");
  EXPECT_THAT(site.instances("gpu")[1]["status"]["message"].string(), HasSubstr("is to leave it first"));
  site.busy.clear();
  site.settle();
  EXPECT_EQ(site.numbers("gpu"), "1 3");
  EXPECT_EQ(site.summary("ml"), "4/4");
}

TEST(Clusters, AReplacedNodeKeepsItsNumberAndWorksUntilTheOtherIsThere) {
  ClusterSite site;
  site.create("ml", site.spec(2));
  site.settle();
  const Json old = site.instances("gpu")[0];
  site.ask(kube::name_of(old), "replace", "r1");
  for (int i = 0; i < 40; ++i) {
    site.reconcile();
    site.tick();
    int there = 0;
    for (const auto& [key, pod] : site.api.all("pods")) there += key.name.starts_with("gpu-") && kube::condition_is_true(pod, "Ready");
    EXPECT_GE(there, 1);
  }
  site.settle();
  EXPECT_EQ(site.numbers("gpu"), "1' 2");
  const Json now = site.instances("gpu")[0];
  EXPECT_NE(kube::name_of(now), kube::name_of(old));
  EXPECT_EQ(now["spec"]["nodeLogicalId"].string(), old["spec"]["nodeLogicalId"].string());
  EXPECT_EQ(site.api.all("machines").size(), 4u);
  EXPECT_EQ(site.summary("ml"), "4/4");
}

TEST(Clusters, ANodeWithAJobIsReplacedWhenTheJobHasEnded) {
  ClusterSite site;
  site.create("ml", site.spec(2));
  site.settle();
  site.busy = {"cluster-ml/gpu-0", "cluster-ml/gpu-1"};
  for (const Json& one : site.instances("gpu")) site.ask(kube::name_of(one), "replace", "r1");
  site.settle();
  EXPECT_EQ(site.numbers("gpu"), "1 1' 2 2'");
  site.busy.clear();
  site.settle();
  EXPECT_EQ(site.numbers("gpu"), "1' 2'");
  EXPECT_TRUE(site.all_run());
}

TEST(Clusters, ANodeIsRebootedOnceWhenItIsEmpty) {
  ClusterSite site;
  site.create("ml", site.spec(2));
  site.settle();
  const Json one = site.instances("gpu")[0];
  std::string pod_there;
  for (const auto& [key, pod] : site.api.all("pods"))
    if (pod["spec"]["nodeName"].string() == node_of(one)) pod_there = key.text();
  site.busy = {pod_there};
  site.ask(kube::name_of(one), "reboot", "b1");
  site.settle();
  EXPECT_EQ(site.reboots[node_of(one)], 0);
  EXPECT_THAT(site.instances("gpu")[0]["status"]["message"].string(), HasSubstr("is to be rebooted; "));
  site.busy.clear();
  site.settle();
  EXPECT_EQ(site.reboots[node_of(one)], 1);
  EXPECT_TRUE(site.all_run());
  EXPECT_EQ(site.numbers("gpu"), "1 2") << "it is the same";
  EXPECT_FALSE(site.api.all("nodes").at({"", node_of(one)})["spec"]["unschedulable"].boolean());
  site.ask(kube::name_of(one), "reboot", "b2");
  site.settle();
  EXPECT_EQ(site.reboots[node_of(one)], 2);
}

TEST(Clusters, AnInstanceThatSomebodyDeletedIsReplaced) {
  ClusterSite site;
  site.create("ml", site.spec(2));
  site.settle();
  const Json one = site.instances("gpu")[1];
  ASSERT_TRUE(site.api.remove(api::kInstances, kube::key_of(one)));
  site.settle();
  EXPECT_EQ(site.numbers("gpu"), "1 2'");
  EXPECT_TRUE(site.all_run());
}

TEST(Clusters, AGroupComesAndGoes) {
  ClusterSite site;
  site.create("ml", site.spec(1));
  site.settle();
  site.edit("ml", [&](Json& spec) { spec.child("instanceGroups").push(site.group("CPU", "ml.m5.xlarge", 2, "Compute", "cpu")); });
  site.settle();
  EXPECT_EQ(site.numbers("CPU"), "1 2");
  EXPECT_EQ(site.summary("ml"), "5/5");
  site.edit("ml", [&](Json& spec) { std::erase_if(spec.child("instanceGroups").items(), [](const Json& one) { return one["instanceGroupName"].string() == "CPU"; }); });
  site.settle();
  EXPECT_EQ(site.numbers("CPU"), "");
  EXPECT_EQ(site.summary("ml"), "3/3");
  EXPECT_EQ(site.api.all("nodesets").size(), 1u);
  site.edit("ml", [&](Json& spec) { spec.child("instanceGroups").push(site.group("CPU", "ml.m5.xlarge", 1, "Compute", "cpu")); });
  site.settle();
  EXPECT_EQ(site.numbers("CPU"), "3") << "no number comes back";
}

// ---- machines that are there

TEST(Clusters, TakeSpareMachinesOfTheTypeBeforeAnyIsMade) {
  ClusterSite site;
  site.spare("box-1", "ml.g5.xlarge", 8, 64, 1);
  site.spare("box-2", "ml.g5.xlarge", 8, 64, 0);  // it lies
  site.create("ml", site.spec(2));
  site.settle();
  EXPECT_TRUE(site.all_run());
  EXPECT_EQ(node_of(site.instances("gpu")[0]), "box-1");
  EXPECT_THAT(node_of(site.instances("gpu")[1]), StartsWith("hyperpod-i-"));
  site.remove("ml");
  site.settle();
  const Json back = site.api.all("nodes").at({"", "box-1"});
  EXPECT_FALSE(back["metadata"]["labels"].has(api::kInstanceLabel));
  EXPECT_FALSE(back["metadata"]["labels"].has(api::kClusterNameLabel));
  EXPECT_FALSE(back["spec"]["unschedulable"].boolean());
}

TEST(Clusters, AllOrNothingIsTakenBackWhereAMachineIsMissing) {
  ClusterSite site(false);
  site.spare("c", "ml.c5.large", 2, 4, 0);
  site.spare("l", "ml.t3.medium", 2, 4, 0);
  site.spare("g1", "ml.g5.xlarge", 4, 16, 1);
  site.spare("g2", "ml.g5.xlarge", 4, 16, 0);
  site.create("ml", site.spec(2, false));
  site.settle();
  EXPECT_EQ(site.phase("ml"), "Failed");
  EXPECT_THAT(site.status("ml")["message"].string(), HasSubstr("group gpu: no machine of type ml.g5.xlarge is free; g2: ml.g5.xlarge has 1 of nvidia.com/gpu; this machine has 0"));
  EXPECT_TRUE(site.instances().empty());
  EXPECT_EQ(site.status("ml")["instanceGroups"].items()[0]["status"].string(), "Failed");
  EXPECT_TRUE(site.api.all("slurmclusters").empty());
  EXPECT_TRUE(site.api.all("persistentvolumeclaims").empty());
  // What was told stays to be read, to the end.
  std::set<std::string> told;
  for (const auto& [key, event] : site.api.all("clusterevents"))
    if (event["spec"]["kind"].string() == "ClusterStatus") told.insert(event["spec"]["description"].string());
  EXPECT_THAT(told, testing::Contains("The cluster was RollingBack and is Failed"));
  EXPECT_FALSE(site.api.all("nodes").at({"", "g1"})["metadata"]["labels"].has(api::kInstanceLabel));
  site.remove("ml");
  site.settle();
  EXPECT_TRUE(site.nothing_left());
}

TEST(Clusters, AChangeThatCannotBeIsTakenBackAndWhatRanRunsOn) {
  ClusterSite site(false);
  site.spare("c", "ml.c5.large", 2, 4, 0);
  site.spare("l", "ml.t3.medium", 2, 4, 0);
  for (int i = 0; i < 3; ++i) site.spare(fmt::format("g{}", i), "ml.g5.xlarge", 4, 16, 1);
  site.create("ml", site.spec(2, false));
  site.settle();
  EXPECT_EQ(site.phase("ml"), "InService");
  const std::string before = site.numbers("gpu");
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "gpu").set("instanceCount", 5); });
  site.reconcile();
  EXPECT_EQ(site.phase("ml"), "Updating");
  site.settle();
  EXPECT_EQ(site.phase("ml"), "InService");
  EXPECT_THAT(site.status("ml")["message"].string(), HasSubstr("no machine of type ml.g5.xlarge"));
  EXPECT_EQ(site.numbers("gpu"), before);
  EXPECT_EQ(site.summary("ml"), "4/4");
  // The next change is a new one.
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "gpu").set("instanceCount", 3); });
  site.settle();
  EXPECT_EQ(site.phase("ml"), "InService");
  EXPECT_EQ(site.status("ml")["message"].string(), "");
  EXPECT_EQ(site.summary("ml"), "5/5");
}

TEST(Clusters, WhatIsContinuousUsesWhatThereIs) {
  ClusterSite site(false);
  site.spare("c", "ml.c5.large", 2, 4, 0);
  site.spare("l", "ml.t3.medium", 2, 4, 0);
  site.spare("g", "ml.g5.xlarge", 4, 16, 1);
  Json spec = site.spec(3);
  site.group_of(spec, "gpu").set("minInstanceCount", 2);
  site.create("ml", spec);
  site.settle();
  EXPECT_EQ(site.phase("ml"), "Creating") << "MinInstanceCount";
  EXPECT_EQ(site.summary("ml"), "3/5");
  site.spare("g2", "ml.g5.xlarge", 4, 16, 1);
  site.settle();
  EXPECT_EQ(site.phase("ml"), "InService");
  EXPECT_EQ(site.summary("ml"), "4/5");
  EXPECT_EQ(site.status("ml")["instanceGroups"].items()[2]["status"].string(), "Degraded");
  EXPECT_EQ(site.api.all("nodesets").at({"cluster-ml", "gpu"})["spec"]["replicas"].integer(), 2) << "Slurm is asked for what has a machine";
}

// Two groups that wait for each other's machines would wait for ever: who has not come to his least number in three hours gives back what he has.
TEST(Clusters, AGroupThatDoesNotComeToItsLeastNumberGoesBack) {
  ClusterSite site(false);
  site.spare("c", "ml.c5.large", 2, 4, 0);
  site.spare("l", "ml.t3.medium", 2, 4, 0);
  for (int i = 0; i < 3; ++i) site.spare(fmt::format("g{}", i), "ml.g5.xlarge", 4, 16, 1);
  Json spec = site.spec(2);
  site.group_of(spec, "gpu").set("minInstanceCount", 2);
  site.create("ml", spec);
  site.settle();
  ASSERT_EQ(site.summary("ml"), "4/4");
  site.edit("ml", [&](Json& now) { site.group_of(now, "gpu").set("instanceCount", 6).set("minInstanceCount", 5); });
  site.settle();
  EXPECT_EQ(site.summary("ml"), "5/8");
  site.clock.advance(std::chrono::seconds(10'500));
  site.settle();
  EXPECT_EQ(site.summary("ml"), "5/8");
  site.clock.advance(std::chrono::seconds(400));
  site.settle();
  EXPECT_EQ(site.summary("ml"), "4/4");
  Json asked = site.api.all("clusters").at({"", "ml"});
  const Json& group = site.group_of(asked.child("spec"), "gpu");
  EXPECT_EQ(group["instanceCount"].integer(), 2);
  EXPECT_EQ(group["minInstanceCount"].integer(), 2);
  const Json told = site.status("ml")["instanceGroups"].items()[2];
  EXPECT_EQ(told["status"].string(), "InService");
  EXPECT_THAT(told["message"].string(), HasSubstr("3 of 6 instances ran after 180 minutes, and 5 at least were asked for: it goes back to 2, of which 2 at least"));
  int events = 0;
  for (const auto& [key, event] : site.api.all("clusterevents"))
    if (event["spec"]["kind"].string() == "MinCountRolledBack") ++events;
  EXPECT_EQ(events, 1);
  // Asked for again it is tried again.
  site.edit("ml", [&](Json& now) { site.group_of(now, "gpu").set("instanceCount", 3).set("minInstanceCount", 3); });
  site.settle();
  EXPECT_EQ(site.summary("ml"), "5/5");
  EXPECT_FALSE(site.status("ml")["instanceGroups"].items()[2].has("message"));
}

// A Slurm without a controller is none: its group is waited for, however long that takes.
TEST(Clusters, ControllersAreNotGivenUp) {
  ClusterSite site(false);
  Json spec = site.spec(1);
  site.group_of(spec, "controllers").set("minInstanceCount", 1);
  site.create("ml", spec);
  site.settle();
  site.clock.advance(std::chrono::hours(4));
  site.settle();
  Json asked = site.api.all("clusters").at({"", "ml"});
  EXPECT_EQ(site.group_of(asked.child("spec"), "controllers")["instanceCount"].integer(), 1);
  EXPECT_EQ(site.phase("ml"), "Creating");
}

TEST(Clusters, TwoThatWantOneMachineDoNotBothGetIt) {
  ClusterSite site(false);
  for (const char* name : {"c1", "c2"}) site.spare(name, "ml.c5.large", 2, 4, 0);
  for (const char* name : {"l1", "l2"}) site.spare(name, "ml.t3.medium", 2, 4, 0);
  for (int i = 0; i < 3; ++i) site.spare(fmt::format("g{}", i), "ml.g5.xlarge", 4, 16, 1);
  site.create("a", site.spec(2));
  site.create("b", site.spec(2));
  site.settle();
  EXPECT_EQ(site.instances("gpu").size(), 4u);
  std::set<std::string> nodes;
  int placed = 0;
  for (const Json& one : site.instances())
    if (!node_of(one).empty()) nodes.insert(node_of(one)), ++placed;
  EXPECT_EQ(placed, 7);
  EXPECT_EQ(nodes.size(), 7u);
}

// A group that waits for a long job is not what cannot be carried out.
TEST(Clusters, AllOrNothingWaitsForJobsOfNodesThatLeaveHoweverLongTheyTake) {
  ClusterSite site;
  site.create("ml", site.spec(3, false));
  site.settle();
  ASSERT_EQ(site.phase("ml"), "InService");
  site.busy = {"cluster-ml/gpu-0", "cluster-ml/gpu-1", "cluster-ml/gpu-2"};
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "gpu").set("instanceCount", 1); });
  for (int i = 0; i < 500; ++i) site.reconcile(), site.tick();  // forty minutes
  EXPECT_EQ(site.phase("ml"), "Updating");
  EXPECT_EQ(site.numbers("gpu"), "1 2 3");
  site.busy.clear();
  site.settle();
  EXPECT_EQ(site.phase("ml"), "InService");
  EXPECT_EQ(site.instances("gpu").size(), 1u);
}

// A node that is gone already fails no change of something else, and no change is taken back for ever because of it.
TEST(Clusters, ANodeThatWasDeadBeforeIsNoReasonToTakeAChangeBack) {
  ClusterSite site(false);
  for (const char* name : {"c", "l"}) site.spare(name, *name == 'c' ? "ml.c5.large" : "ml.t3.medium", 2, 4, 0);
  site.spare("l2", "ml.t3.medium", 2, 4, 0);
  for (int i = 0; i < 3; ++i) site.spare(fmt::format("g{}", i), "ml.g5.xlarge", 4, 16, 1);
  site.create("ml", site.spec(3, false));
  site.settle();
  ASSERT_EQ(site.phase("ml"), "InService");
  const std::string dead = node_of(site.instances("gpu")[1]);
  for (const auto& [key, pod] : std::map(site.api.all("pods")))
    if (pod["spec"]["nodeName"].string() == dead) site.drop(resources::pods, key);
  site.drop(resources::nodes, {"", dead});
  site.settle();
  EXPECT_EQ(site.instances("gpu")[1]["status"]["phase"].string(), "Failure");
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "logins").set("instanceCount", 2); });
  site.settle();
  EXPECT_EQ(site.phase("ml"), "InService");
  EXPECT_EQ(site.status("ml")["message"].string(), "");
  EXPECT_EQ(site.instances("logins").size(), 2u);
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "gpu").set("instanceCount", 5); });  // there are no more machines
  site.settle();
  EXPECT_EQ(site.phase("ml"), "InService") << "taken back";
  EXPECT_THAT(site.status("ml")["message"].string(), HasSubstr("no machine of type ml.g5.xlarge"));
  site.spare("g9", "ml.g5.xlarge", 4, 16, 1);
  site.ask(kube::name_of(site.instances("gpu")[1]), "replace", "r");
  site.settle();
  EXPECT_EQ(site.summary("ml"), "6/6");
}

TEST(Clusters, FewerLoginNodesGoAlthoughSlurmWouldLeaveThem) {
  ClusterSite site;
  Json spec = site.spec(1);
  site.group_of(spec, "logins").set("instanceCount", 2);
  site.create("ml", spec);
  site.settle();
  EXPECT_EQ(site.summary("ml"), "4/4");
  site.edit("ml", [&](Json& its) { site.group_of(its, "logins").set("instanceCount", 1).set("retired", "1"); });  // the machine of one of them
  site.settle();
  EXPECT_EQ(site.numbers("logins"), "2");
  EXPECT_TRUE(site.all_run());
  EXPECT_TRUE(site.api.all("pods").contains({"cluster-ml", "login-0"}));
  EXPECT_FALSE(site.api.all("pods").contains({"cluster-ml", "login-1"}));
  site.edit("ml", [&](Json& its) { std::erase_if(its.child("instanceGroups").items(), [](const Json& one) { return one["instanceGroupName"].string() == "logins"; }); });
  site.settle();
  EXPECT_EQ(site.numbers("logins"), "");
  EXPECT_EQ(site.summary("ml"), "2/2");
}

// Where a partition goes, slurmctld ends its jobs: it stays until its last worker has gone.
TEST(Clusters, APartitionGoesAfterItsLastWorker) {
  ClusterSite site;
  Json spec = site.spec(1);
  spec.child("instanceGroups").push(site.group("cpu", "ml.m5.large", 1, "Compute", "cpu"));
  site.create("ml", spec);
  site.settle();
  site.busy = {"cluster-ml/cpu-0"};
  site.edit("ml", [&](Json& its) { std::erase_if(its.child("instanceGroups").items(), [](const Json& one) { return one["instanceGroupName"].string() == "cpu"; }); });
  const auto lines = [&] { return kube::print_json(site.api.all("slurmclusters").at({"cluster-ml", "ml"})["spec"]["partitionConfiguration"]["rawConfig"]); };
  for (int i = 0; i < 20; ++i) {
    site.reconcile();
    site.tick();
    if (i == 0) continue;
    EXPECT_THAT(lines(), HasSubstr("PartitionName=cpu Nodes=cpu MaxTime=INFINITE State=DRAIN"));
  }
  site.busy.clear();
  site.settle();
  EXPECT_THAT(lines(), testing::Not(HasSubstr("PartitionName=cpu")));
  site.edit("ml", [&](Json& its) { site.group_of(its, "gpu").child("slurmConfig").set("partitionNames", Json::array({Json("other")})); });
  site.settle();
  EXPECT_THAT(site.status("ml")["message"].string(), HasSubstr("its partition does not change (it is train)"));
  EXPECT_THAT(lines(), HasSubstr("PartitionName=train"));
}

TEST(Clusters, AClusterInUseIsNeverTakenBackAsAWhole) {
  ClusterSite site(false);
  for (const char* name : {"c", "l"}) site.spare(name, *name == 'c' ? "ml.c5.large" : "ml.t3.medium", 2, 4, 0);
  site.spare("g1", "ml.g5.xlarge", 4, 16, 1);
  site.create("ml", site.spec(2));
  site.settle();
  EXPECT_EQ(site.phase("ml"), "InService");
  site.edit("ml", [&](Json& spec) { spec.erase("nodeProvisioningMode"); });
  site.settle();
  EXPECT_EQ(site.phase("ml"), "InService");
  EXPECT_THAT(site.status("ml")["message"].string(), HasSubstr("a cluster that is Continuous stays so"));
  EXPECT_EQ(site.instances().size(), 4u);
  EXPECT_FALSE(site.api.all("slurmclusters").empty());
}

TEST(Clusters, TwoOfOneTitleKeepTheirMachinesApart) {
  ClusterSite site;
  Json spec = site.spec(1);
  spec.set("clusterName", "ML");
  site.create("ml-1", spec);
  site.create("ml-2", spec);
  site.settle();
  EXPECT_EQ(site.summary("ml-1"), "3/3");
  EXPECT_EQ(site.summary("ml-2"), "3/3");
  for (const auto& [key, pod] : site.api.all("pods")) {
    const Json node = site.api.all("nodes").at({"", pod["spec"]["nodeName"].string()});
    EXPECT_EQ("cluster-" + node["metadata"]["labels"][api::kClusterLabel].string(), key.space);
  }
}

TEST(Clusters, OtherPodsOfSlurmLeaveAMachineToo) {
  ClusterSite site;
  site.create("ml", site.spec(2));
  site.settle();
  const Json one = site.instances("gpu")[0];
  ASSERT_TRUE(site.api.create(resources::pods, Json::object({{"metadata", Json::object({{"name", "exporter-x"}, {"namespace", "cluster-ml"}, {"labels", Json::object({{api::kSlurmClusterLabel, "ml"}, {api::kSlurmRoleLabel, "exporter"}})}})}, {"spec", Json::object({{"nodeName", node_of(one)}})}, {"status", Json::object({{"phase", "Running"}})}})));
  site.ask(kube::name_of(one), "replace", "r");
  site.settle();
  EXPECT_EQ(site.numbers("gpu"), "1' 2");
}

// A pod that has ended and is being deleted: whoever runs it takes the object away, and cannot without its machine.
TEST(Clusters, AMachineStaysUntilItsPodsAreGoneAsObjectsToo) {
  Json pod = Json::object({{"metadata", Json::object({{"name", "gpu-0"}, {"labels", Json::object({{api::kSlurmRoleLabel, "worker"}})}})}, {"status", Json::object({{"phase", "Running"}})}});
  EXPECT_TRUE(holds_machine(pod));
  pod.child("status").set("phase", "Failed");
  EXPECT_FALSE(holds_machine(pod));
  pod.child("metadata").set("deletionTimestamp", "2026-11-26T12:00:00Z");
  EXPECT_TRUE(holds_machine(pod));
}

TEST(Clusters, OfAMachineThatAPersonCordonedTheCordonStaysWhenItIsGivenBack) {
  ClusterSite site(false);
  for (const char* name : {"c", "l"}) site.spare(name, *name == 'c' ? "ml.c5.large" : "ml.t3.medium", 2, 4, 0);
  for (const char* name : {"g1", "g2"}) site.spare(name, "ml.g5.xlarge", 4, 16, 1);
  site.create("ml", site.spec(2));
  site.settle();
  Json node = site.api.all("nodes").at({"", "g1"});
  node.child("spec").set("unschedulable", true);
  ASSERT_TRUE(site.api.update(resources::nodes, node));
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "gpu").set("instanceCount", 1).set("retired", std::to_string(site.instances("gpu")[0]["status"]["node"].string() == "g1" ? 1 : 2)); });
  site.settle();
  EXPECT_FALSE(site.api.all("nodes").at({"", "g1"})["metadata"]["labels"].has(api::kInstanceLabel));
  EXPECT_TRUE(site.api.all("nodes").at({"", "g1"})["spec"]["unschedulable"].boolean());
}

// What does not end is ended after five minutes: who deletes a cluster does not wait for a dead machine.
TEST(Clusters, DeletionDoesNotWaitForAPodThatDoesNotEnd) {
  ClusterSite site;
  site.create("ml", site.spec(1));
  site.settle();
  site.stuck = true;
  site.remove("ml");
  const Instant began = site.clock.now();
  while (site.clock.now() < began + std::chrono::seconds(295)) site.reconcile(), site.tick();
  EXPECT_FALSE(site.api.all("machines").empty());
  site.settle();
  EXPECT_TRUE(site.nothing_left()) << site.picture();
}

TEST(Clusters, ListsOfPeopleStayBesideOurs) {
  ClusterSite site;
  site.create("ml", site.spec(1));
  site.settle();
  Json slurm = site.api.all("slurmclusters").at({"cluster-ml", "ml"});
  slurm.child("spec").child("volumeSources").push(Json::object({{"name", "data"}, {"hostPath", Json::object({{"path", "/data"}})}}));
  slurm.child("spec").child("partitionConfiguration").child("rawConfig").push(Json("PartitionName=night Nodes=gpu MaxTime=8:00:00"));
  ASSERT_TRUE(site.api.update(resources::slurm_clusters, slurm));
  site.edit("ml", [&](Json& spec) { spec.child("instanceGroups").push(site.group("cpu", "ml.m5.large", 1, "Compute", "cpu")); });
  site.settle();
  const std::string now = kube::print_json(site.api.all("slurmclusters").at({"cluster-ml", "ml"})["spec"]);
  for (const char* text : {R"("name":"data")", "PartitionName=night", "PartitionName=cpu", "PartitionName=train"}) EXPECT_THAT(now, HasSubstr(text));
}

TEST(Clusters, PartitionsOfPeopleStayUnlessTheyAreToBeOverwritten) {
  api::Cluster cluster;
  cluster.name = cluster.title = "ml", cluster.space = "cluster-ml", cluster.slurm_name = "ml";
  const Json wanted = slurm_cluster_of(cluster, {}, {});
  EXPECT_EQ(wanted["metadata"]["annotations"][api::node_identity::pods_note].string(), "true") << "its pods are instances";
  Json there = shaped(wanted, wanted, 4);
  there.child("spec").child("partitionConfiguration").child("rawConfig").push(Json("PartitionName=night Nodes=ALL MaxTime=8:00:00"));
  const auto lines = [&](api::SlurmConfigStrategy strategy) { return kube::print_json(shaped(there, wanted, 4, strategy)["spec"]["partitionConfiguration"]["rawConfig"]); };
  EXPECT_THAT(lines(api::SlurmConfigStrategy::Merge), HasSubstr("PartitionName=night"));
  EXPECT_THAT(lines(api::SlurmConfigStrategy::Managed), HasSubstr("PartitionName=night")) << "what runs goes on: an update is refused";
  EXPECT_THAT(lines(api::SlurmConfigStrategy::Overwrite), Not(HasSubstr("PartitionName=night")));
  EXPECT_THAT(lines(api::SlurmConfigStrategy::Overwrite), HasSubstr("PartitionName=dev"));
  EXPECT_EQ(api::lines_of_people(there), std::vector<std::string>{"PartitionName=night Nodes=ALL MaxTime=8:00:00"});
}

TEST(Clusters, SlurmIsToldOfMoreNodesThanItsDefault) {
  api::Cluster cluster;
  cluster.name = cluster.title = "big", cluster.space = "cluster-big", cluster.slurm_name = "big";
  const Json wanted = slurm_cluster_of(cluster, {}, {});
  EXPECT_TRUE(shaped(wanted, wanted, 512)["spec"]["customSlurmConfig"].is_null());
  Json there = shaped(wanted, wanted, 513);
  EXPECT_EQ(there["spec"]["customSlurmConfig"].string(), "MaxNodeCount=1024\n");
  there.child("spec").set("customSlurmConfig", "MinJobAge=60\nMaxNodeCount=1024\nMaxJobCount=5");
  EXPECT_EQ(shaped(there, wanted, 800)["spec"]["customSlurmConfig"].string(), "MinJobAge=60\nMaxNodeCount=1024\nMaxJobCount=5");
  EXPECT_EQ(shaped(there, wanted, 6000)["spec"]["customSlurmConfig"].string(), "MinJobAge=60\nMaxNodeCount=8192\nMaxJobCount=5");
}

// ---- orchestrated by Kubernetes

TEST(KubernetesClusters, AreNodesWithLabelsAndTaints) {
  ClusterSite site;
  site.create("k", kubernetes_spec(2));
  site.settle();
  EXPECT_EQ(site.phase("k"), "InService");
  EXPECT_EQ(site.summary("k"), "2/2");
  EXPECT_TRUE(site.api.all("slurmclusters").empty());
  const Json node = site.api.all("nodes").at({"", node_of(site.instances()[0])});
  EXPECT_EQ(node["metadata"]["labels"]["Team"].string(), "vision");
  EXPECT_EQ(node["metadata"]["labels"][api::kHealthLabel].string(), "Schedulable");
  EXPECT_EQ(node["spec"]["taints"].items().size(), 1u);
  const auto before = site.picture();
  for (int i = 0; i < 5; ++i) site.reconcile();
  EXPECT_EQ(site.picture(), before);
  site.remove("k");
  site.settle();
  EXPECT_TRUE(site.nothing_left());
}

void set_pods(ClusterSite& site, const char* name, const char* pods, const char* kubelet) {
  Json node = site.api.all("nodes").at({"", name});
  node.child("status").child("allocatable").set("pods", pods);
  node.child("status").set("nodeInfo", Json::object({{"kubeletVersion", kubelet}}));
  ASSERT_TRUE(site.api.put(resources::nodes, node));
}

TEST(KubernetesClusters, AMachineThatIsMadeDeclaresAsManyPodsAsItsType) {
  ClusterSite site;
  site.create("k", kubernetes_spec(1));
  site.settle();
  EXPECT_EQ(site.api.all("machines").begin()->second["spec"]["local"]["resources"]["pods"].string(), "14");
  EXPECT_EQ(site.api.all("nodes").at({"", node_of(site.instances()[0])})["metadata"]["annotations"][api::kMaxPodsNote].string(), "14");
  site.create("ml", site.spec(1));
  site.settle();
  for (const auto& [key, machine] : site.api.all("machines"))
    if (machine["metadata"]["labels"][api::kClusterLabel].string() == "ml") {
      EXPECT_FALSE(machine["spec"]["local"]["resources"].has("pods")) << "Slurm's nodes hold what they did";
    }
}

TEST(KubernetesClusters, AKubeletThatTakesTooManyPodsIsNotTaken) {
  ClusterSite site(false);
  site.spare("g", "ml.g5.xlarge", 4, 16, 1);
  set_pods(site, "g", "110", "v1.33.1");
  site.create("k", kubernetes_spec(1));
  site.settle();
  EXPECT_THAT(site.instances()[0]["status"]["message"].string(), HasSubstr("g: ml.g5.xlarge holds 14 pods at most; this machine's kubelet takes 110: set maxPods: 14 in its KubeletConfiguration"));
  set_pods(site, "g", "14", "v1.33.1");
  site.settle();
  EXPECT_EQ(site.summary("k"), "1/1");
  // What runs is kept, and told.
  set_pods(site, "g", "110", "v1.33.1");
  site.settle();
  EXPECT_EQ(site.summary("k"), "1/1");
  EXPECT_THAT(site.instances()[0]["status"]["message"].string(), HasSubstr("this machine's kubelet takes 110"));
}

TEST(KubernetesClusters, AnAgentIsToldHowManyPodsAndIsInUseOnceItTakesNoMore) {
  ClusterSite site(false);
  site.spare("g", "ml.g5.xlarge", 4, 16, 1);
  set_pods(site, "g", "110", "v1.30.0-fairlead.0.9");
  site.create("k", kubernetes_spec(1));
  site.settle();
  EXPECT_EQ(site.api.all("nodes").at({"", "g"})["metadata"]["annotations"][api::kMaxPodsNote].string(), "14");
  EXPECT_EQ(site.summary("k"), "0/1");
  EXPECT_THAT(site.instances()[0]["status"]["message"].string(), HasSubstr("its agent is to take 14 pods at most"));
  set_pods(site, "g", "14", "v1.30.0-fairlead.0.9");
  site.settle();
  EXPECT_EQ(site.summary("k"), "1/1");
  EXPECT_TRUE(site.instances()[0]["status"]["message"].is_null());
  site.remove("k");
  site.settle();
  EXPECT_FALSE(site.api.all("nodes").at({"", "g"})["metadata"]["annotations"].has(api::kMaxPodsNote)) << "it is the cluster's limit, not the machine's";
}

// ---- volumes of instances

Json volume_spec(int count, int gib) {
  Json out = kubernetes_spec(count);
  out.child("instanceGroups").items()[0].set("instanceStorageConfigs", Json::array({Json::object({{"ebsVolumeConfig", Json::object({{"volumeSizeInGB", gib}})}})}));
  return out;
}
api::VolumeOrder order_on(ClusterSite& site, const std::string& node) {
  const auto order = api::parse_volume_order(site.api.all("nodes").at({"", node})["metadata"]["annotations"][api::kVolumeNote].string());
  return order ? *order : api::VolumeOrder();
}
void answer_volume(ClusterSite& site, const std::string& node, const api::VolumeState& state) {
  Json object = site.api.all("nodes").at({"", node});
  object.child("metadata").child("annotations").set(api::kVolumeStateNote, api::print_volume_state(state));
  ASSERT_TRUE(site.api.put(resources::nodes, object));
}

TEST(KubernetesClusters, AMachineIsClosedUntilItsVolumeIsThere) {
  ClusterSite site;
  site.create("k", volume_spec(1, 100));
  site.settle();
  Json one = site.instances()[0];
  const std::string node = node_of(one), id = kube::name_of(one);
  EXPECT_EQ(site.summary("k"), "0/1");
  EXPECT_EQ(one["status"]["message"].string(), "its volume of 100 GiB is made");
  EXPECT_EQ(order_on(site, node), (api::VolumeOrder{.instance = id, .gib = 100, .released = false}));
  EXPECT_TRUE(site.api.all("nodes").at({"", node})["spec"]["unschedulable"].boolean()) << "what came before it would write into its place";
  answer_volume(site, node, {.instance = "", .gib = 0, .of = "i-0123456789abcdef0", .failed = "of another order"});
  site.settle();
  EXPECT_EQ(site.instances()[0]["status"]["message"].string(), "its volume of 100 GiB is made");
  answer_volume(site, node, {.instance = "", .gib = 0, .of = id, .failed = "make the volume: no room"});
  site.settle();
  EXPECT_EQ(site.instances()[0]["status"]["message"].string(), "its volume of 100 GiB: make the volume: no room");
  answer_volume(site, node, {.instance = id, .gib = 100, .of = id, .failed = ""});
  site.settle();
  EXPECT_EQ(site.summary("k"), "1/1");
  EXPECT_TRUE(site.instances()[0]["status"]["message"].is_null());
  EXPECT_FALSE(site.api.all("nodes").at({"", node})["spec"]["unschedulable"].boolean());
  const auto before = site.picture();
  for (int i = 0; i < 5; ++i) site.reconcile();
  EXPECT_EQ(site.picture(), before);
  // It grows under what runs, and never shrinks.
  site.edit("k", [](Json& spec) { spec = volume_spec(1, 200); });
  site.settle();
  EXPECT_EQ(order_on(site, node).gib, 200);
  EXPECT_EQ(site.summary("k"), "1/1");
  EXPECT_EQ(site.instances()[0]["status"]["message"].string(), "its volume of 200 GiB is made");
  EXPECT_FALSE(site.api.all("nodes").at({"", node})["spec"]["unschedulable"].boolean());
  site.edit("k", [](Json& spec) { spec = volume_spec(1, 50); });
  site.settle();
  EXPECT_EQ(order_on(site, node).gib, 200);
  // A reboot orders nothing anew; a replacement has a volume of its own.
  site.ask(id, "reboot", "b");
  site.settle();
  EXPECT_EQ(order_on(site, node).instance, id);
  site.ask(id, "replace", "r");
  site.settle();
  one = site.instances().back();
  EXPECT_NE(kube::name_of(one), id);
  EXPECT_EQ(order_on(site, node_of(one)), (api::VolumeOrder{.instance = kube::name_of(one), .gib = 50, .released = false}));
}

TEST(KubernetesClusters, OneWithAKeyIsOfAPool) {
  ClusterSite site;
  const auto keyed = [](int gib) {
    Json out = volume_spec(1, gib);
    out.child("instanceGroups").items()[0].child("instanceStorageConfigs").items()[0].child("ebsVolumeConfig").set("volumeKmsKeyId", "alias/mine");
    return out;
  };
  site.create("k", keyed(10));
  site.settle();
  const std::string node = node_of(site.instances()[0]), id = kube::name_of(site.instances()[0]);
  EXPECT_EQ(order_on(site, node), (api::VolumeOrder{.instance = id, .gib = 10, .released = false, .pool = true}));
  Json told = site.api.all("nodes").at({"", node});
  told.child("metadata").child("annotations").set(api::kVolumeTroubleNote, "key mine is disabled");
  ASSERT_TRUE(site.api.put(resources::nodes, told));
  site.settle();
  EXPECT_EQ(site.instances()[0]["status"]["message"].string(), "its volume of 10 GiB: key mine is disabled");
  // An agent of before knows of no pools, and says that it is there.
  answer_volume(site, node, {.instance = id, .gib = 10, .of = id, .failed = ""});
  site.settle();
  EXPECT_EQ(site.summary("k"), "0/1");
  EXPECT_THAT(site.instances()[0]["status"]["message"].string(), HasSubstr("which no key encrypts: bring its agent to this version"));
  answer_volume(site, node, {.instance = id, .gib = 10, .of = id, .failed = "", .pool = true});
  site.settle();
  EXPECT_EQ(site.summary("k"), "1/1");
  EXPECT_TRUE(site.instances()[0]["status"]["message"].is_null()) << "what is there is in use, whatever became of its key";
  // What was begun stays as it is.
  site.edit("k", [](Json& spec) { spec = volume_spec(1, 20); });
  site.settle();
  EXPECT_EQ(order_on(site, node), (api::VolumeOrder{.instance = id, .gib = 20, .released = false, .pool = true}));
}

TEST(KubernetesClusters, ASpareMachineIsToldWhenItsVolumeMayGo) {
  ClusterSite site(false);
  site.spare("kubelet", "ml.g5.xlarge", 4, 16, 1);
  set_pods(site, "kubelet", "14", "v1.33.1");
  site.create("k", volume_spec(1, 10));
  site.settle();
  EXPECT_THAT(site.instances()[0]["status"]["message"].string(), HasSubstr("no machine of type ml.g5.xlarge is free that makes volumes (instanceStorageConfigs): hosts that joined do, nodes with a kubelet do not (kubelet)"));
  site.spare("host", "ml.g5.xlarge", 4, 16, 1);
  set_pods(site, "host", "14", "v1.30.0-fairlead.0.9");
  site.settle();
  const std::string id = kube::name_of(site.instances()[0]);
  ASSERT_EQ(node_of(site.instances()[0]), "host");
  answer_volume(site, "host", {.instance = id, .gib = 10, .of = id, .failed = ""});
  site.settle();
  EXPECT_EQ(site.summary("k"), "1/1");
  site.remove("k");
  site.settle();
  EXPECT_EQ(order_on(site, "host"), (api::VolumeOrder{.instance = id, .gib = 0, .released = true}));
  EXPECT_FALSE(site.api.all("nodes").at({"", "host"})["spec"]["unschedulable"].boolean());
}

TEST(KubernetesClusters, AMachineWithAnothersVolumeIsGivenToNobody) {
  ClusterSite site(false);
  site.spare("host", "ml.g5.xlarge", 4, 16, 1);
  set_pods(site, "host", "14", "v1.30.0-fairlead.0.9");
  site.create("k", volume_spec(1, 10));
  site.settle();
  const std::string id = kube::name_of(site.instances()[0]);
  answer_volume(site, "host", {.instance = id, .gib = 10, .of = id, .failed = ""});
  site.settle();
  ASSERT_EQ(site.summary("k"), "1/1");
  site.remove("k");
  site.settle();
  ASSERT_TRUE(order_on(site, "host").released);
  // It was busy, and is so still.
  answer_volume(site, "host", {.instance = id, .gib = 10, .of = id, .failed = "unmount the volume: /opt/sagemaker is in use: what runs there is to end first"});
  for (const auto& spec : {kubernetes_spec(1), volume_spec(1, 10)}) {
    site.create("next", spec);
    site.settle();
    EXPECT_EQ(node_of(site.instances()[0]), "");
    EXPECT_THAT(site.instances()[0]["status"]["message"].string(), HasSubstr("host: the volume of instance " + id + " is still on it: unmount the volume: /opt/sagemaker is in use"));
    site.remove("next");
    site.settle();
  }
  EXPECT_EQ(order_on(site, "host"), (api::VolumeOrder{.instance = id, .gib = 0, .released = true})) << "nobody takes the order away";
  // That it has not answered is no answer.
  answer_volume(site, "host", {});
  site.create("next", kubernetes_spec(1));
  site.settle();
  EXPECT_EQ(node_of(site.instances()[0]), "");
  answer_volume(site, "host", {.instance = "", .gib = 0, .of = id, .failed = ""});
  site.settle();
  EXPECT_EQ(node_of(site.instances()[0]), "host");
  EXPECT_EQ(site.summary("next"), "1/1");
}

TEST(KubernetesClusters, AVolumeOfAnInstanceThatIsGoneIsReleasedWhereItsNodeComesAnew) {
  ClusterSite site(false);
  constexpr const char* gone = "i-0123456789abcdef0";
  site.spare("host", "ml.g5.xlarge", 4, 16, 1);
  set_pods(site, "host", "14", "v1.30.0-fairlead.0.9");
  answer_volume(site, "host", {.instance = gone, .gib = 10, .of = "", .failed = ""});
  site.create("k", kubernetes_spec(1));
  site.settle();
  EXPECT_EQ(node_of(site.instances()[0]), "");
  EXPECT_EQ(order_on(site, "host"), (api::VolumeOrder{.instance = gone, .gib = 0, .released = true}));
  answer_volume(site, "host", {.instance = "", .gib = 0, .of = gone, .failed = ""});
  site.settle();
  EXPECT_EQ(site.summary("k"), "1/1");
  // Of one that is there nothing is deleted, wherever its volume turns up.
  const std::string alive = kube::name_of(site.instances()[0]);
  site.spare("other", "ml.g5.xlarge", 4, 16, 1);
  set_pods(site, "other", "14", "v1.30.0-fairlead.0.9");
  answer_volume(site, "other", {.instance = alive, .gib = 10, .of = "", .failed = ""});
  site.edit("k", [](Json& spec) { spec = kubernetes_spec(2); });
  site.settle();
  EXPECT_EQ(order_on(site, "other"), api::VolumeOrder());
  EXPECT_EQ(site.summary("k"), "1/2");
  // Nor is a machine taken whose agent could not look.
  answer_volume(site, "other", {.instance = "", .gib = 0, .of = "", .failed = "read the folder: Input/output error"});
  site.settle();
  EXPECT_EQ(site.summary("k"), "1/2");
  answer_volume(site, "other", {});
  site.settle();
  EXPECT_EQ(site.summary("k"), "2/2");
}

TEST(KubernetesClusters, AnInstanceThatLeavesReleasesItsVolumeOnANodeThatCameAnew) {
  ClusterSite site(false);
  site.spare("host", "ml.g5.xlarge", 4, 16, 1);
  set_pods(site, "host", "14", "v1.30.0-fairlead.0.9");
  site.create("k", volume_spec(1, 10));
  site.settle();
  const std::string id = kube::name_of(site.instances()[0]);
  answer_volume(site, "host", {.instance = id, .gib = 10, .of = id, .failed = ""});
  site.settle();
  ASSERT_EQ(site.summary("k"), "1/1");
  site.remove("k");
  Json node = site.api.all("nodes").at({"", "host"});
  node.child("metadata").child("annotations").erase(api::kVolumeNote);
  for (const char* const label : {api::kInstanceLabel, api::kClusterLabel}) node.child("metadata").child("labels").erase(label);
  ASSERT_TRUE(site.api.put(resources::nodes, node));
  site.settle();
  EXPECT_TRUE(site.instances().empty());
  EXPECT_EQ(order_on(site, "host"), (api::VolumeOrder{.instance = id, .gib = 0, .released = true}));
}

// It came to light after the machine was chosen.
void waits_for_anothers_volume(ClusterSite& site, const Json& spec) {
  constexpr const char* before = "i-0123456789abcdef0";
  site.create("k", spec);
  for (int i = 0; i < 50 && node_of(site.instances().empty() ? Json() : site.instances().back()) != "host"; ++i) site.reconcile();
  const auto mine = [&] {
    for (const Json& one : site.instances())
      if (node_of(one) == "host") return one;
    return Json();
  };
  ASSERT_FALSE(mine().is_null());
  answer_volume(site, "host", {.instance = before, .gib = 10, .of = "", .failed = ""});
  site.settle();
  EXPECT_EQ(order_on(site, "host"), (api::VolumeOrder{.instance = before, .gib = 0, .released = true}));
  EXPECT_THAT(mine()["status"]["message"].string(), HasSubstr("the volume of instance i-0123456789abcdef0 is to go from its machine first"));
  EXPECT_NE(mine()["status"]["phase"].string(), "Running");
  EXPECT_FALSE(site.api.all("nodes").at({"", "host"})["metadata"]["labels"].has(api::kGroupNameLabel) && !site.api.all("nodes").at({"", "host"})["spec"]["unschedulable"].boolean());
  answer_volume(site, "host", {.instance = before, .gib = 0, .of = before, .failed = "delete the volume: it is in use"});
  site.settle();
  EXPECT_NE(mine()["status"]["phase"].string(), "Running");
  answer_volume(site, "host", {.instance = "", .gib = 0, .of = before, .failed = ""});
  site.settle();
  EXPECT_EQ(mine()["status"]["phase"].string(), "Running");
  EXPECT_TRUE(mine()["status"]["message"].is_null());
}
TEST(KubernetesClusters, AGroupWithoutAVolumeWaitsUntilAnothersIsGone) {
  ClusterSite site(false);
  site.spare("host", "ml.g5.xlarge", 4, 16, 1);
  set_pods(site, "host", "14", "v1.30.0-fairlead.0.9");
  waits_for_anothers_volume(site, kubernetes_spec(1));
}
TEST(KubernetesClusters, AGroupWithAVolumeHasAnothersReleasedBeforeItsOwnIsMade) {
  constexpr const char* before = "i-0123456789abcdef0";
  ClusterSite site(false);
  site.spare("host", "ml.g5.xlarge", 4, 16, 1);
  set_pods(site, "host", "14", "v1.30.0-fairlead.0.9");
  site.create("k", volume_spec(1, 10));
  site.settle();
  const std::string id = kube::name_of(site.instances()[0]);
  ASSERT_EQ(order_on(site, "host"), (api::VolumeOrder{.instance = id, .gib = 10, .released = false}));
  answer_volume(site, "host", {.instance = before, .gib = 10, .of = id, .failed = "the volume of instance i-0123456789abcdef0 is there"});
  site.settle();
  EXPECT_EQ(order_on(site, "host"), (api::VolumeOrder{.instance = before, .gib = 0, .released = true}));
  EXPECT_NE(site.instances()[0]["status"]["phase"].string(), "Running");
  answer_volume(site, "host", {.instance = "", .gib = 0, .of = before, .failed = ""});
  site.settle();
  EXPECT_EQ(order_on(site, "host"), (api::VolumeOrder{.instance = id, .gib = 10, .released = false}));
  answer_volume(site, "host", {.instance = id, .gib = 10, .of = id, .failed = ""});
  site.settle();
  EXPECT_EQ(site.instances()[0]["status"]["phase"].string(), "Running");
}
TEST(Clusters, SlurmWaitsUntilAnothersVolumeIsGone) {
  ClusterSite site(false);
  site.spare("c", "ml.c5.large", 2, 4, 0);
  site.spare("l", "ml.t3.medium", 2, 4, 0);
  site.spare("host", "ml.g5.xlarge", 4, 16, 1);
  set_pods(site, "host", "110", "v1.30.0-fairlead.0.9");
  waits_for_anothers_volume(site, site.spec(1));
}

TEST(KubernetesClusters, LabelsFollowTheGroupAndOthersStay) {
  ClusterSite site(false);
  site.spare("g", "ml.g5.xlarge", 4, 16, 1);
  site.create("k", kubernetes_spec(1));
  site.settle();
  Json node = site.api.all("nodes").at({"", "g"});
  node.child("metadata").child("labels").set("mine", "x").set(api::kHealthLabel, "Unschedulable");
  node.child("spec").child("taints").push(Json::object({{"key", "mine"}, {"effect", "PreferNoSchedule"}}));
  ASSERT_TRUE(site.api.update(resources::nodes, node));
  site.edit("k", [&](Json& spec) { spec.child("instanceGroups").items()[0].set("kubernetesConfig", Json::object({{"labels", Json::object({{"tier", "gold"}})}})); });
  site.settle();
  node = site.api.all("nodes").at({"", "g"});
  EXPECT_FALSE(node["metadata"]["labels"].has("Team"));
  EXPECT_EQ(node["metadata"]["labels"]["tier"].string(), "gold");
  EXPECT_EQ(node["metadata"]["labels"]["mine"].string(), "x");
  EXPECT_EQ(node["metadata"]["labels"][api::kHealthLabel].string(), "Unschedulable") << "who watches health says so";
  EXPECT_EQ(kube::print_json(node["spec"]["taints"]), R"([{"key":"mine","effect":"PreferNoSchedule"}])");
  site.remove("k");
  site.settle();
  node = site.api.all("nodes").at({"", "g"});
  for (const char* const label : {"tier", api::kHealthLabel, api::kInstanceLabel, api::kClusterLabel}) EXPECT_FALSE(node["metadata"]["labels"].has(label)) << label;
  EXPECT_EQ(node["metadata"]["labels"]["mine"].string(), "x");
  EXPECT_FALSE(node["metadata"]["annotations"].has("fairlead.dev/instance-labels"));
}

TEST(KubernetesClusters, PodsAreEvictedBeforeTheirMachineGoes) {
  ClusterSite site;
  site.create("k", kubernetes_spec(2));
  site.settle();
  const Json one = site.instances()[0];
  run_pod(site, "web", node_of(one));
  run_pod(site, "agent", node_of(one), true);
  run_pod(site, "other", node_of(site.instances()[1]));
  site.budgeted = {"team/web"};
  site.ask(kube::name_of(one), "replace", "r");
  site.settle();
  EXPECT_TRUE(site.api.all("pods").contains({"team", "web"}));
  EXPECT_EQ(site.numbers("workers"), "1 1' 2") << "its budget lets it not go";
  EXPECT_THAT(site.instances()[0]["status"]["message"].string(), HasSubstr("pod team/web is to leave it first"));
  site.budgeted.clear();
  site.settle();
  EXPECT_FALSE(site.api.all("pods").contains({"team", "web"}));
  EXPECT_TRUE(site.api.all("pods").contains({"team", "other"}));
  EXPECT_EQ(site.numbers("workers"), "1' 2");
}

TEST(KubernetesClusters, ARebootEvictsToo) {
  ClusterSite site;
  site.create("k", kubernetes_spec(1));
  site.settle();
  const Json one = site.instances()[0];
  run_pod(site, "web", node_of(one));
  ASSERT_TRUE(site.api.all("pods").contains({"team", "web"}));
  site.ask(kube::name_of(one), "reboot", "b");
  site.settle();
  EXPECT_EQ(site.reboots[node_of(one)], 1);
  EXPECT_FALSE(site.api.all("pods").contains({"team", "web"}));
  EXPECT_FALSE(site.api.all("nodes").at({"", node_of(one)})["spec"]["unschedulable"].boolean());
  EXPECT_TRUE(site.all_run());
}

// ---- wrong input

TEST(Clusters, AMistakeChangesNothing) {
  ClusterSite site;
  site.create("ml", site.spec(1));
  site.settle();
  const auto machines = site.api.all("machines");
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "gpu").set("instanceType", "ml.nonsense"); });
  site.settle();
  EXPECT_EQ(site.phase("ml"), "InService");
  EXPECT_THAT(site.status("ml")["message"].string(), HasSubstr("\"ml.nonsense\" is no type of the API"));
  EXPECT_EQ(site.api.all("machines"), machines);
  EXPECT_FALSE(kube::condition_is_true(site.api.all("clusters").at({"", "ml"}), "SpecValid"));
  site.create("bad", Json::object({{"instanceGroups", Json::array({site.group("w", "ml.c5.large", 1, "Compute", "x")})}}));
  site.settle();
  EXPECT_EQ(site.phase("bad"), "Failed");
  EXPECT_THAT(site.status("bad")["message"].string(), HasSubstr("0 groups with nodeType Controller"));
}

TEST(Clusters, ANamespaceOfSomebodyElseIsNotTakenOver) {
  ClusterSite site;
  ASSERT_TRUE(site.api.create(resources::namespaces, Json::object({{"metadata", Json::object({{"name", "cluster-ml"}})}})));
  site.create("ml", site.spec(1));
  site.settle();
  EXPECT_EQ(site.phase("ml"), "Failed");
  EXPECT_THAT(site.status("ml")["message"].string(), HasSubstr("namespace cluster-ml is there and belongs to something else"));
  EXPECT_TRUE(site.api.all("machines").empty());
  site.remove("ml");
  site.settle();
  EXPECT_TRUE(site.api.all("namespaces").contains({"", "cluster-ml"}));
  EXPECT_TRUE(site.api.all("clusters").empty());
}

// ---- people

TEST(Clusters, WhatAPersonSetBesideOurFieldsStays) {
  ClusterSite site;
  site.create("ml", site.spec(1));
  site.settle();
  Json slurm = site.api.all("slurmclusters").at({"cluster-ml", "ml"});
  slurm.child("spec").set("slurmConfig", Json::object({{"minJobAge", 300}}));
  slurm.child("spec").child("slurmNodes").child("login").set("sshRootPublicKeys", Json::array({Json("ssh-ed25519 AAAA ada")}));
  ASSERT_TRUE(site.api.update(resources::slurm_clusters, slurm));
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "logins").set("instanceCount", 2); });
  site.settle();
  const Json now = site.api.all("slurmclusters").at({"cluster-ml", "ml"});
  EXPECT_EQ(now["spec"]["slurmConfig"]["minJobAge"].integer(), 300);
  EXPECT_EQ(now["spec"]["slurmNodes"]["login"]["sshRootPublicKeys"].items().size(), 1u);
  EXPECT_EQ(now["spec"]["slurmNodes"]["login"]["size"].integer(), 2);
}

TEST(Clusters, ACordonOfAPersonStays) {
  ClusterSite site;
  site.create("ml", site.spec(2));
  site.settle();
  Json node = site.api.all("nodes").at({"", node_of(site.instances("gpu")[0])});
  node.child("spec").set("unschedulable", true);
  ASSERT_TRUE(site.api.update(resources::nodes, node));
  site.settle();
  EXPECT_TRUE(site.api.all("nodes").at({"", node_of(site.instances("gpu")[0])})["spec"]["unschedulable"].boolean());
}

// A node that does not answer may run what was started on it: five minutes are waited, whoever asks.
TEST(Clusters, ASilentMachineIsGivenUpAfterFiveMinutes) {
  ClusterSite site(false);
  site.spare("c", "ml.c5.large", 2, 4, 0);
  site.spare("l", "ml.t3.medium", 2, 4, 0);
  for (const char* name : {"g1", "g2"}) site.spare(name, "ml.g5.xlarge", 4, 16, 1);
  site.create("ml", site.spec(1));
  site.settle();
  const Json one = site.instances("gpu")[0];
  Json node = site.api.all("nodes").at({"", node_of(one)});
  kube::set_condition(node, {"Ready", "Unknown", "NodeStatusUnknown", "no word from it"}, site.clock.now());
  ASSERT_TRUE(site.api.put(resources::nodes, node));
  site.busy = {"cluster-ml/gpu-0"};
  const Instant began = site.clock.now();
  site.ask(kube::name_of(one), "replace", "r");
  while (site.clock.now() < began + std::chrono::seconds(250)) {
    site.reconcile();
    site.tick();
    EXPECT_EQ(site.api.all("nodes").at({"", node_of(one)})["metadata"]["labels"][api::kInstanceLabel].string(), kube::name_of(one));
  }
  for (int i = 0; i < 40; ++i) site.reconcile(), site.tick();
  const Json back = site.api.all("nodes").at({"", node_of(one)});
  EXPECT_FALSE(back["metadata"]["labels"].has(api::kInstanceLabel));
  EXPECT_TRUE(back["metadata"]["labels"].has("fairlead.dev/replaced")) << "it is no spare";
  EXPECT_EQ(site.numbers("gpu"), "1'");
}

TEST(Clusters, HowLongANodeHasBeenSilent) {
  Json node = Json::object();
  EXPECT_FALSE(silent_since(node)) << "nobody knows";
  const Instant then = *parse_time("2026-11-26T12:00:00Z");
  kube::set_condition(node, {"Ready", "Unknown", "NodeStatusUnknown", ""}, then);
  EXPECT_EQ(silent_since(node), then);
  kube::set_condition(node, {"Ready", "True", "KubeletReady", ""}, then + std::chrono::seconds(400));
  EXPECT_FALSE(silent_since(node));
  kube::set_condition(node, {"Ready", "False", "KubeletNotReady", ""}, then + std::chrono::seconds(401));
  EXPECT_EQ(silent_since(node), then + std::chrono::seconds(401)) << "it counts anew";
}

}  // namespace
}  // namespace fairlead::fleet
