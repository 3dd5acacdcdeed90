// SPDX-License-Identifier: Apache-2.0
// UpdateClusterSoftware, in the small world of cluster_test_site.h.
#include <gmock/gmock.h>

#include "fleet/control/cluster_test_site.h"

namespace fairlead::fleet {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using namespace std::chrono_literals;

struct SoftwareUpdates : testing::Test {
  ClusterSite site;
  SoftwareUpdates() { site.scripts->buckets["sagemaker-x"] = {{"on_create.sh", "#!/bin/sh\n"}, {"on_init.sh", "#!/bin/sh\n"}}; }
  Json scripted(int workers, bool continuous = true) {
    Json out = site.spec(workers, continuous);
    Json& group = site.group_of(out, "gpu");
    group = ClusterSite::with_scripts(group, "on_create.sh", "on_init.sh");
    return out;
  }
  void ask(const std::string& id, std::vector<std::string> groups = {}, const std::string& deployment = "{}") {
    site.edit("ml", [&](Json& spec) {
      Json request = Json::object({{"id", id}, {"deploymentConfig", *kube::parse_json(deployment)}});
      Json names = Json::array();
      for (std::string& group : groups) names.push(std::move(group));
      if (!names.items().empty()) request.set("instanceGroups", std::move(names));
      spec.set("softwareUpdate", std::move(request));
    });
  }
  Json update() { return site.status("ml")["softwareUpdate"]; }
  void rounds(int count) {
    for (int i = 0; i < count; ++i) site.reconcile(), site.tick();
  }
  // The most of a group that were not running at once, from now to rest.
  int most_away(const std::string& group, int count = 150) {
    int most = 0;
    for (int i = 0; i < count; ++i) {
      site.reconcile();
      site.tick();
      int away = 0;
      for (const Json& one : site.instances(group)) away += one["status"]["phase"].string() != "Running";
      most = std::max(most, away);
    }
    return most;
  }
  std::vector<std::string> ids(const std::string& group) {
    std::vector<std::string> out;
    for (const Json& one : site.instances(group)) out.push_back(kube::name_of(one));
    return out;
  }
  std::vector<std::string> kinds() {
    std::vector<std::string> out;
    for (const auto& [key, event] : site.api.all("clusterevents"))
      if (event["spec"]["kind"].string().starts_with("SoftwareUpdate")) out.push_back(event["spec"]["resourceType"].string() + " " + event["spec"]["kind"].string());
    return out;
  }
};

TEST_F(SoftwareUpdates, MakeEachMachineAnewAndRunItsScriptsAgain) {
  for (const bool continuous : {true, false}) {
    SCOPED_TRACE(continuous);
    site.create("ml", scripted(2, continuous));
    site.settle();
    const auto before = ids("gpu");
    const std::size_t scripts = site.ran.size();
    site.taken_down.clear();
    ask(continuous ? "u1" : "u2");
    rounds(2);
    EXPECT_EQ(site.phase("ml"), "SystemUpdating");
    EXPECT_EQ(update()["phase"].string(), "InProgress");
    site.settle();
    EXPECT_EQ(site.phase("ml"), "InService");
    EXPECT_EQ(site.summary("ml"), "4/4");
    EXPECT_EQ(update()["phase"].string(), "Succeeded") << kube::print_json(update());
    EXPECT_EQ(ids("gpu"), before) << "they keep their names";
    EXPECT_EQ(site.taken_down.size(), 4u);
    for (const auto& [machine, times] : site.taken_down) EXPECT_EQ(times, 1) << machine;
    EXPECT_EQ(site.ran.size() - scripts, 4u) << "two scripts on two machines";
    for (const Json& one : site.instances()) EXPECT_EQ(one["status"]["software"]["stage"].string(), "Done");
    // Once: at rest nothing is written, whatever is edited beside it.
    const auto picture = site.picture();
    for (int i = 0; i < 5; ++i) site.reconcile();
    EXPECT_EQ(site.picture(), picture);
    site.remove("ml");
    site.settle();
    EXPECT_TRUE(site.nothing_left()) << site.picture();
  }
}

TEST_F(SoftwareUpdates, GoInBatchesTheHeadsFirst) {
  site.create("ml", site.spec(4));
  site.settle();
  ask("u", {}, R"({"rollingUpdatePolicy":{"maximumBatchSize":{"type":"CAPACITY_PERCENTAGE","value":50}},"waitIntervalInSeconds":600})");
  std::string order;
  for (int i = 0; i < 12; ++i) {
    site.reconcile();
    site.tick();
    const Json now = update();
    for (const Json& group : now["instanceGroups"].items())
      if (group["status"].string() == "InProgress" && order.find(group["instanceGroupName"].string()) == order.npos) order += group["instanceGroupName"].string() + " ";
    if (order == "controllers ") {
      EXPECT_EQ(now["instanceGroups"].items()[1]["status"].string(), "Pending");
    }
  }
  EXPECT_EQ(order, "controllers logins gpu ");
  rounds(40);
  EXPECT_EQ(update()["instanceGroups"].items()[2]["updated"].integer(), 2) << "the next batch waits ten minutes";
  EXPECT_EQ(site.summary("ml"), "6/6");
  site.clock.advance(400s);
  EXPECT_EQ(most_away("gpu"), 2);
  EXPECT_EQ(update()["phase"].string(), "Succeeded");
  EXPECT_THAT(site.status("ml")["instanceGroups"].items()[2]["status"].string(), "InService");
}

TEST_F(SoftwareUpdates, OfOneGroupLeaveOthersAlone) {
  site.create("ml", site.spec(3));
  site.settle();
  ask("u", {"gpu"}, R"({"rollingUpdatePolicy":{"maximumBatchSize":{"type":"INSTANCE_COUNT","value":1}}})");
  EXPECT_EQ(most_away("gpu"), 1);
  EXPECT_EQ(update()["phase"].string(), "Succeeded");
  EXPECT_EQ(site.taken_down.size(), 3u);
  EXPECT_EQ(update()["instanceGroups"].items().size(), 1u);
}

TEST_F(SoftwareUpdates, WaitForJobs) {
  site.create("ml", site.spec(2));
  site.settle();
  site.busy.insert("cluster-ml/gpu-0");
  ask("u", {"gpu"});
  rounds(200);
  EXPECT_EQ(site.phase("ml"), "SystemUpdating");
  EXPECT_EQ(site.taken_down.size(), 1u);
  EXPECT_EQ(update()["instanceGroups"].items()[0]["updated"].integer(), 1);
  bool told = false;
  for (const Json& one : site.instances("gpu")) told = told || one["status"]["message"].string().find("its software is to be updated; gpu-0 is to leave it first") != std::string::npos;
  EXPECT_TRUE(told);
  site.busy.clear();
  site.settle();
  EXPECT_EQ(update()["phase"].string(), "Succeeded");
  EXPECT_EQ(site.taken_down.size(), 2u);
}

TEST_F(SoftwareUpdates, EndWithTheFirstThatFailsAndLeaveTheRest) {
  site.create("ml", scripted(3));
  site.settle();
  site.script = [](const Json& pod) { return pod["metadata"]["annotations"][kScriptUpdate].string().empty() ? 0 : 3; };
  ask("u", {"gpu"}, R"({"rollingUpdatePolicy":{"maximumBatchSize":{"type":"INSTANCE_COUNT","value":1}}})");
  rounds(60);
  EXPECT_EQ(site.phase("ml"), "InService");
  EXPECT_EQ(update()["phase"].string(), "Failed");
  EXPECT_THAT(update()["message"].string(), HasSubstr("on_create.sh: it ended with 3:\nno route"));
  EXPECT_EQ(update()["instanceGroups"].items()[0]["status"].string(), "Failed");
  EXPECT_THAT(kinds(), testing::Contains("Cluster SoftwareUpdateFailed"));
  // Another machine takes the place of the one that failed, by the scripts as ever; two were never touched.
  site.clock.advance(120s);
  site.settle();
  EXPECT_EQ(site.numbers("gpu"), "1' 2 3");
  EXPECT_EQ(site.summary("ml"), "5/5");
  ASSERT_EQ(site.taken_down.size(), 1u);
  EXPECT_EQ(site.taken_down.begin()->second, 2) << "one was made anew, and went when it failed";
  // Asked for again, with better ones, all are updated.
  site.script = [](const Json&) { return 0; };
  ask("again", {"gpu"});
  site.settle();
  EXPECT_EQ(update()["phase"].string(), "Succeeded");
}

TEST_F(SoftwareUpdates, AreTakenBackByAnOlderSpecAndNotAskedForAgain) {
  site.create("ml", site.spec(2));
  site.settle();
  ask("u1", {"gpu"});
  site.settle();
  site.busy.insert("cluster-ml/gpu-0");
  ask("u2", {"gpu"});
  rounds(60);
  site.edit("ml", [](Json& spec) { spec.child("softwareUpdate").set("id", "u1"); });
  site.taken_down.clear();
  site.settle();
  EXPECT_EQ(update()["phase"].string(), "Failed");
  EXPECT_EQ(update()["message"].string(), "it was taken back");
  EXPECT_THAT(site.taken_down, IsEmpty());
  EXPECT_EQ(site.summary("ml"), "4/4");
  for (const auto& [key, node] : site.api.all("nodes")) EXPECT_FALSE(node["spec"]["unschedulable"].boolean()) << key.name;
}

TEST_F(SoftwareUpdates, AnEarlierRequestIsNotAskedForAgain) {
  site.create("ml", site.spec(1));
  site.settle();
  for (const char* id : {"u1", "u2", "u3"}) {
    ask(id, {"gpu"});
    site.settle();
  }
  site.taken_down.clear();
  ask("u1", {"gpu"});
  site.settle();
  EXPECT_THAT(site.taken_down, IsEmpty());
  EXPECT_EQ(update()["id"].string(), "u3");
  EXPECT_EQ(site.phase("ml"), "InService");
}

TEST_F(SoftwareUpdates, DoNotWaitForMachinesThatAreNotThere) {
  ClusterSite few(false);
  few.spare("c", "ml.c5.large", 2, 4, 0);
  few.spare("l", "ml.t3.medium", 2, 4, 0);
  few.spare("g", "ml.g5.xlarge", 4, 16, 1);
  few.create("ml", few.spec(3));
  few.settle();
  ASSERT_EQ(few.summary("ml"), "3/5");
  few.edit("ml", [](Json& spec) { spec.set("softwareUpdate", Json::object({{"id", "u"}})); });
  few.settle();
  EXPECT_EQ(few.status("ml")["softwareUpdate"]["phase"].string(), "Succeeded");
  EXPECT_EQ(few.phase("ml"), "InService");
}

// One that does not run and does not fail is waited for, and told; to replace it is the way out.
TEST_F(SoftwareUpdates, WaitForOneThatIsSilentUntilItIsReplaced) {
  site.create("ml", site.spec(2));
  site.settle();
  const Json one = site.instances("gpu").front();
  const auto silence = [&] {
    if (const auto found = site.api.all("nodes").find({"", node_of(one)}); found != site.api.all("nodes").end()) {
      Json node = found->second;
      kube::set_condition(node, {"Ready", "Unknown", "NodeStatusUnknown", "no word of it"}, site.clock.now());
      ASSERT_TRUE(site.api.put(resources::nodes, node));
    }
  };
  silence();
  site.reconcile();
  ask("u", {"gpu"});
  for (int i = 0; i < 60; ++i) {
    site.reconcile();
    site.tick();
    silence();
  }
  EXPECT_EQ(site.phase("ml"), "SystemUpdating");
  EXPECT_THAT(update()["message"].string(), HasSubstr("waits for instance " + kube::name_of(one) + " of group gpu: its machine is not ready"));
  site.ask(kube::name_of(one), "replace", "r");
  for (int i = 0; i < 120; ++i) {
    site.reconcile();
    site.tick();
    silence();
  }
  EXPECT_EQ(update()["phase"].string(), "Succeeded");
  EXPECT_FALSE(update().has("message"));
  EXPECT_EQ(site.numbers("gpu"), "1' 2");
}

// Without Continuous mode: an update in a change that is taken back, twice, leaves neither the update of before nor itself hanging.
TEST_F(SoftwareUpdates, InAChangeThatIsTakenBackAreOver) {
  ClusterSite few(false);
  few.spare("c", "ml.c5.large", 2, 4, 0);
  few.spare("l", "ml.t3.medium", 2, 4, 0);
  few.spare("g", "ml.g5.xlarge", 4, 16, 1);
  few.create("ml", few.spec(1, false));
  few.settle();
  ASSERT_EQ(few.phase("ml"), "InService");
  const auto edit = [&](const char* id, int workers) {
    few.edit("ml", [&](Json& spec) {
      spec.set("softwareUpdate", Json::object({{"id", id}}));
      few.group_of(spec, "gpu").set("instanceCount", workers);
    });
    few.settle();
  };
  edit("a", 1);
  EXPECT_EQ(few.status("ml")["softwareUpdate"]["phase"].string(), "Succeeded");
  for (const char* id : {"b", "c"}) {
    edit(id, 3);
    EXPECT_EQ(few.phase("ml"), "InService");
    EXPECT_THAT(few.status("ml")["message"].string(), HasSubstr("no machine of type"));
    EXPECT_EQ(few.status("ml")["softwareUpdate"]["phase"].string(), "Failed");
    EXPECT_EQ(few.status("ml")["softwareUpdate"]["message"].string(), "it was taken back");
  }
  edit("d", 1);
  EXPECT_EQ(few.status("ml")["softwareUpdate"]["phase"].string(), "Succeeded");
  EXPECT_EQ(few.summary("ml"), "3/3");
}

// A spare machine that falls silent while it is emptied, and comes back with its job, is not prepared beside it.
TEST_F(SoftwareUpdates, PrepareNothingBesideAJob) {
  ClusterSite without(false);
  without.scripts = site.scripts;
  without.restart();
  without.spare("c", "ml.c5.large", 2, 4, 0);
  without.spare("l", "ml.t3.medium", 2, 4, 0);
  without.spare("g", "ml.g5.xlarge", 4, 16, 1);
  without.create("ml", scripted(1));
  without.settle();
  without.busy.insert("cluster-ml/gpu-0");
  without.edit("ml", [](Json& spec) { spec.set("softwareUpdate", *kube::parse_json(R"({"id": "u", "instanceGroups": ["gpu"]})")); });
  for (int i = 0; i < 8; ++i) without.reconcile(), without.tick();
  ASSERT_EQ(without.instances("gpu")[0]["status"]["software"]["stage"].string(), "Emptying");
  const auto tell = [&](const char* ready) {
    Json node = without.api.all("nodes").at({"", "g"});
    kube::set_condition(node, {"Ready", ready, "x", ""}, without.clock.now());
    ASSERT_TRUE(without.api.put(resources::nodes, node));
  };
  tell("Unknown");
  without.clock.advance(301s);
  for (int i = 0; i < 4; ++i) without.reconcile();
  EXPECT_EQ(without.instances("gpu")[0]["status"]["software"]["stage"].string(), "Emptying");
  tell("True");
  const std::size_t scripts = without.ran.size();
  for (int i = 0; i < 40; ++i) without.reconcile(), without.tick();
  EXPECT_EQ(without.ran.size(), scripts) << "a script ran beside a job";
  EXPECT_TRUE(without.api.all("pods").contains({"cluster-ml", "gpu-0"}));
  EXPECT_EQ(without.phase("ml"), "SystemUpdating");
  without.busy.clear();
  without.settle();
  EXPECT_EQ(without.status("ml")["softwareUpdate"]["phase"].string(), "Succeeded");
  EXPECT_EQ(without.ran.size(), scripts + 2);
  EXPECT_FALSE(without.api.all("nodes").at({"", "g"})["spec"]["unschedulable"].boolean());
}

// Caches that still show the machine and the node of before: neither is the next batch begun, nor is a script given the wrong root.
TEST_F(SoftwareUpdates, OfNodesOfKubernetesWaitForTheNewMachine) {
  site.lagging = true;
  site.restart();
  Json spec = Json::object({{"orchestrator", Json::object({{"eks", Json::object({{"clusterArn", "arn:aws:eks:x:111122223333:cluster/x"}})}})}, {"nodeProvisioningMode", "Continuous"}});
  Json workers = Json::object({{"instanceGroupName", "workers"}, {"instanceType", "ml.g5.xlarge"}, {"instanceCount", 2}, {"executionRole", "arn:aws:iam::111122223333:role/x"}});
  spec.set("instanceGroups", Json::array({ClusterSite::with_scripts(workers, "on_create.sh")}));
  site.create("ml", spec);
  const auto rounds_of = [&](int count, std::set<std::string> held) {
    for (int i = 0; i < count; ++i) {
      for (const char* plural : LaggingCaches::kinds)
        if (!held.contains(plural)) site.caches.refresh(plural);
      site.reconcile();
      site.tick();
    }
  };
  rounds_of(40, {});
  ASSERT_EQ(site.summary("ml"), "2/2");
  ask("u", {}, R"({"rollingUpdatePolicy":{"maximumBatchSize":{"type":"INSTANCE_COUNT","value":1}}})");
  for (int i = 0; i < 200 && update()["phase"].string() != "Succeeded"; ++i) {
    rounds_of(3, i % 4 == 1 ? std::set<std::string>{"nodes", "machines"} : i % 4 == 2 ? std::set<std::string>{"machines"} : i % 4 == 3 ? std::set<std::string>{"nodes"} : std::set<std::string>{});
    int away = 0;
    for (const Json& one : site.instances("workers")) away += !site.api.all("nodes").contains({"", node_of(one)});
    EXPECT_LE(away, 1) << "two machines are away at once";
    for (const auto& [key, pod] : site.api.all("pods"))
      if (is_script(pod)) {
        EXPECT_FALSE(pod["spec"]["hostPID"].boolean()) << "a local machine's script has the root of its host";
      }
  }
  rounds_of(20, {});
  EXPECT_EQ(update()["phase"].string(), "Succeeded");
  EXPECT_EQ(site.summary("ml"), "2/2");
  EXPECT_EQ(site.taken_down.size(), 2u);
  EXPECT_EQ(site.ran.size(), 4u);
}

TEST_F(SoftwareUpdates, AskedForWithANewClusterAreDoneWithIt) {
  Json spec = site.spec(1);
  spec.set("softwareUpdate", Json::object({{"id", "u"}}));
  site.create("ml", spec);
  site.settle();
  EXPECT_EQ(update()["phase"].string(), "Succeeded");
  EXPECT_THAT(site.taken_down, IsEmpty());
}

TEST_F(SoftwareUpdates, PrepareASpareMachineAgainWhereItStands) {
  ClusterSite without(false);
  without.scripts = site.scripts;
  without.restart();
  without.spare("c", "ml.c5.large", 2, 4, 0);
  without.spare("l", "ml.t3.medium", 2, 4, 0);
  without.spare("g", "ml.g5.xlarge", 4, 16, 1);
  without.create("ml", scripted(1));
  without.settle();
  ASSERT_EQ(without.summary("ml"), "3/3");
  without.edit("ml", [](Json& spec) { spec.set("softwareUpdate", Json::object({{"id", "u"}})); });
  without.settle();
  EXPECT_EQ(without.status("ml")["softwareUpdate"]["phase"].string(), "Succeeded");
  EXPECT_EQ(without.summary("ml"), "3/3");
  EXPECT_EQ(without.ran.size(), 4u);
  EXPECT_EQ(node_of(without.instances("gpu")[0]), "g");
}

TEST_F(SoftwareUpdates, ARebootAndAReplacementGoTheirOwnWay) {
  site.create("ml", site.spec(3));
  site.settle();
  site.ask(ids("gpu")[0], "reboot", "b");
  site.ask(ids("gpu")[1], "replace", "r");
  ask("u", {"gpu"});
  site.settle();
  EXPECT_EQ(update()["phase"].string(), "Succeeded");
  EXPECT_EQ(site.numbers("gpu"), "1 2' 3");
  EXPECT_EQ(site.summary("ml"), "5/5");
}

TEST_F(SoftwareUpdates, AreTold) {
  site.create("ml", site.spec(1));
  site.settle();
  ask("u", {"gpu"});
  site.settle();
  EXPECT_THAT(kinds(), UnorderedElementsAre("Cluster SoftwareUpdateStarted", "Cluster SoftwareUpdateCompleted", "Instance SoftwareUpdateStarted", "Instance SoftwareUpdateCompleted"));
}

}  // namespace
}  // namespace fairlead::fleet
