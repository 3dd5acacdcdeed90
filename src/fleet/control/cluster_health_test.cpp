// SPDX-License-Identifier: Apache-2.0
// What labels of a node's health ask for, in the small world of cluster_test_site.h.
#include <gmock/gmock.h>

#include "fleet/control/cluster_test_site.h"

namespace fairlead::fleet {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

struct NodeRecovery : testing::Test {
  ClusterSite site;
  Json first() { return site.instances("gpu").front(); }
  std::string node() { return first()["status"]["node"].string(); }
  std::string label(const std::string& of) { return site.api.all("nodes").at({"", of})["metadata"]["labels"][api::kHealthLabel].string(); }
  void set(const std::string& of, const std::string& value) {
    Json object = site.api.all("nodes").at({"", of});
    object.child("metadata").child("labels").set(api::kHealthLabel, value);
    ASSERT_TRUE(site.api.update(resources::nodes, object));
  }
  bool noted() {
    for (const auto& [key, object] : site.api.all("nodes"))
      if (object["metadata"]["annotations"].has("fairlead.dev/recovery")) return true;
    return false;
  }
};

TEST(RecoveryWords, AreReadAsPeopleTypeThem) {
  for (const char* word : {"UnschedulablePendingReboot", "unschedulablependingreboot", "Unschedulable-Pending-Reboot"}) EXPECT_EQ(recovery_of(word), RecoveryAsked::Reboot) << word;
  for (const char* word : {"UnschedulablePendingReplacement", "UnschedulablePendingReplace", "unschedulable_pending_replacement"}) EXPECT_EQ(recovery_of(word), RecoveryAsked::Replace) << word;
  for (const char* word : {"", "Schedulable", "Unschedulable", "UnschedulablePending", "PendingReboot", "UnschedulablePendingReboots"}) EXPECT_EQ(recovery_of(word), RecoveryAsked::None) << word;
}

TEST_F(NodeRecovery, ALabelRebootsOnceForEachTimeThatItIsSet) {
  site.create("ml", site.spec(2));
  site.settle();
  const std::string on = node(), id = kube::name_of(first());
  set(on, "UnschedulablePendingReboot");
  site.settle();
  EXPECT_EQ(site.reboots[on], 1);
  EXPECT_EQ(label(on), "Schedulable");
  EXPECT_FALSE(noted());
  EXPECT_EQ(kube::name_of(first()), id);
  EXPECT_THAT(first()["spec"]["reboot"]["by"].string(), HasSubstr("label sagemaker.amazonaws.com/node-health-status=UnschedulablePendingReboot of Node " + on));
  set(on, "unschedulablePendingreboot");
  site.settle();
  EXPECT_EQ(site.reboots[on], 2) << "also with a word that is near enough";
  EXPECT_THAT(first()["spec"]["reboot"]["by"].string(), HasSubstr("node-health-status=unschedulablePendingreboot of Node " + on + " (taken for UnschedulablePendingReboot)"));
  EXPECT_EQ(label(on), "Schedulable");
  EXPECT_EQ(site.summary("ml"), "4/4");
}

TEST_F(NodeRecovery, ALabelReplacesWhenTheJobHasEnded) {
  site.create("ml", site.spec(1));
  site.settle();
  site.busy.insert("cluster-ml/gpu-0");
  const std::string on = node();
  set(on, "UnschedulablePendingReplacement");
  for (int i = 0; i < 40; ++i) site.reconcile(), site.tick();
  EXPECT_TRUE(site.api.all("nodes").contains({"", on})) << "its job runs";
  site.busy.clear();
  site.settle();
  EXPECT_EQ(site.numbers("gpu"), "1'");
  EXPECT_FALSE(site.api.all("nodes").contains({"", on}));
  EXPECT_EQ(site.summary("ml"), "3/3");
}

// The Slurm operator's word: `scontrol update nodename=gpu-0 state=fail reason="Action:..."`.
struct SlurmReason : NodeRecovery {
  Json slurm() { return site.api.all("slurmclusters").begin()->second; }
  std::string pod_uid() {
    for (const auto& [key, pod] : site.api.all("pods"))
      if (pod["spec"]["nodeName"].string() == node() && pod["metadata"]["labels"][api::kSlurmRoleLabel].string() == "worker") return worker = kube::name_of(pod), kube::uid_of(pod);
    return "";
  }
  void say(const char* action, const char* id, bool exact = true) {
    const std::string uid = pod_uid();
    const Json on = site.api.all("nodes").at({"", node()});
    Json object = slurm();
    object.child("status").set("nodeActions", Json::object({{worker, Json::object({{"action", action}, {"id", id}, {"uid", uid}, {"node", kube::uid_of(on)}, {"boot", on["status"]["nodeInfo"]["bootID"]}, {"reason", std::string("Action:") + action}, {"by", "root"}, {"exact", exact}})}}));
    ASSERT_TRUE(site.api.update_status(resources::slurm_clusters, object));
  }
  std::string worker;
};

TEST_F(SlurmReason, RebootsOnce) {
  site.create("ml", site.spec(2));
  site.settle();
  const std::string on = node(), id = kube::name_of(first());
  say("Reboot", "r1", false);
  site.settle();
  EXPECT_EQ(site.reboots[on], 1);
  EXPECT_EQ(label(on), "Schedulable");
  EXPECT_FALSE(noted());
  EXPECT_EQ(kube::name_of(first()), id);
  EXPECT_EQ(first()["spec"]["reboot"]["by"].string(), "reason \"Action:Reboot\" in Slurm, by root (taken for Action:Reboot)");
  // Slurm still says it, of the worker that was there before.
  for (int i = 0; i < 20; ++i) site.reconcile(), site.tick();
  EXPECT_EQ(site.reboots[on], 1);
  say("Reboot", "r2");
  site.settle();
  EXPECT_EQ(site.reboots[on], 2);
  EXPECT_EQ(site.summary("ml"), "4/4");
}

TEST_F(SlurmReason, ReplacesWhenTheJobHasEnded) {
  site.create("ml", site.spec(1));
  site.settle();
  site.busy.insert("cluster-ml/gpu-0");
  const std::string on = node();
  say("Replace", "r1");
  for (int i = 0; i < 40; ++i) site.reconcile(), site.tick();
  EXPECT_TRUE(site.api.all("nodes").contains({"", on})) << "its job runs";
  site.busy.clear();
  site.settle();
  EXPECT_EQ(site.numbers("gpu"), "1'");
  EXPECT_FALSE(site.api.all("nodes").contains({"", on}));
}

TEST_F(SlurmReason, OfAnotherPodOrWithoutRecoveryIsLeftAlone) {
  Json spec = site.spec(2);
  spec.set("nodeRecovery", "None");
  site.create("ml", spec);
  site.settle();
  const std::string on = node();
  say("Reboot", "r1");
  for (int i = 0; i < 20; ++i) site.reconcile(), site.tick();
  EXPECT_EQ(site.reboots[on], 0);
  EXPECT_THAT(first()["status"]["message"].string(), HasSubstr("nodeRecovery None"));
}

TEST_F(SlurmReason, TakenBackBeforeItWasBegunNothingIsDone) {
  site.create("ml", site.spec(2));
  site.settle();
  const std::string on = node();
  say("Reboot", "r1");
  while (!noted()) site.reconcile();
  Json object = slurm();
  object.child("status").erase("nodeActions");
  ASSERT_TRUE(site.api.update_status(resources::slurm_clusters, object));
  site.settle();
  EXPECT_EQ(site.reboots[on], 0);
  EXPECT_EQ(label(on), "Schedulable");
  EXPECT_FALSE(noted());
}

// A host that was taken as a spare machine has no label of the cluster on its Machine: its Node has, and the word that it has rebooted stands in the Machine alone.
TEST_F(NodeRecovery, AClusterHearsOfTheMachineOfAHostThatItTook) {
  const Json node = Json::object({{"metadata", Json::object({{"name", "host-7"}, {"labels", Json::object({{api::kInstanceLabel, "i-1"}})}})}});
  ASSERT_TRUE(site.api.create(kube::resources::nodes, node));
  ASSERT_TRUE(site.api.create(api::kInstances, Json::object({{"metadata", Json::object({{"name", "i-1"}})}, {"spec", Json::object({{"cluster", "ml"}})}})));
  const Json machine = Json::object({{"metadata", Json::object({{"name", "host-7"}})}, {"spec", Json::object({{"host", Json::object()}})}});
  std::vector<kube::ObjectKey> told;
  for (const auto& source : site.controller->sources())
    if (source.resource.plural == kube::resources::machines.plural) told = source.keys({.before = machine, .after = machine});
  EXPECT_EQ(told, (std::vector<kube::ObjectKey>{{"", "ml"}}));
}

TEST_F(NodeRecovery, NoneLeavesTheLabelAndSaysSo) {
  Json spec = site.spec(1);
  spec.set("nodeRecovery", "None");
  site.create("ml", spec);
  site.settle();
  const std::string on = node();
  set(on, "UnschedulablePendingReboot");
  site.settle();
  EXPECT_THAT(site.reboots, IsEmpty());
  EXPECT_EQ(label(on), "UnschedulablePendingReboot");
  EXPECT_THAT(first()["status"]["message"].string(), HasSubstr("nodeRecovery None leaves it so"));
  site.edit("ml", [](Json& now) { now.set("nodeRecovery", "Automatic"); });
  site.settle();
  EXPECT_EQ(site.reboots[on], 1);
}

TEST_F(NodeRecovery, AControllerOfSlurmIsRebootedButNotReplaced) {
  site.create("ml", site.spec(1));
  site.settle();
  const std::string on = site.instances("controllers").front()["status"]["node"].string();
  set(on, "UnschedulablePendingReplacement");
  site.settle();
  EXPECT_EQ(site.numbers("controllers"), "1");
  EXPECT_THAT(site.instances("controllers").front()["status"]["message"].string(), HasSubstr("a Slurm controller is not replaced"));
  set(on, "UnschedulablePendingReboot");
  site.settle();
  EXPECT_EQ(site.reboots[on], 1);
  EXPECT_EQ(site.instances("controllers").front()["status"]["message"].string(), "");
}

TEST_F(NodeRecovery, OneThatIsTakenBackInTimeDoesNothing) {
  site.create("ml", site.spec(1));
  site.settle();
  const std::string on = node();
  set(on, "UnschedulablePendingReboot");
  site.reconcile();  // noted, and no more
  ASSERT_TRUE(noted());
  set(on, "Schedulable");
  site.settle();
  EXPECT_THAT(site.reboots, IsEmpty());
  EXPECT_FALSE(noted());
}

TEST_F(NodeRecovery, ASpareMachineThatWasReplacedCarriesNoHealthOfBefore) {
  ClusterSite without(false);
  without.spare("c", "ml.c5.large", 2, 4, 0);
  without.spare("l", "ml.t3.medium", 2, 4, 0);
  without.spare("g1", "ml.g5.xlarge", 4, 16, 1);
  without.spare("g2", "ml.g5.xlarge", 4, 16, 1);
  without.create("ml", without.spec(1));
  without.settle();
  const std::string on = without.instances("gpu").front()["status"]["node"].string();
  Json object = without.api.all("nodes").at({"", on});
  object.child("metadata").child("labels").set(api::kHealthLabel, "UnschedulablePendingReplacement");
  ASSERT_TRUE(without.api.update(resources::nodes, object));
  without.settle();
  EXPECT_NE(without.instances("gpu").front()["status"]["node"].string(), on);
  const Json& left = without.api.all("nodes").at({"", on})["metadata"];
  EXPECT_FALSE(left["labels"].has(api::kHealthLabel));
  EXPECT_FALSE(left["annotations"].has("fairlead.dev/recovery"));
  EXPECT_TRUE(left["labels"].has("fairlead.dev/replaced"));
}

}  // namespace
}  // namespace fairlead::fleet
