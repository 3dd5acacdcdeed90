// SPDX-License-Identifier: Apache-2.0
// Deep health checks, in the small world of cluster_test_site.h.
#include <gmock/gmock.h>

#include "api/instance_types.h"
#include "base/test_rounds.h"
#include "fleet/control/cluster_test_site.h"

namespace fairlead::fleet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

struct DeepChecks : testing::Test {
  ClusterSite site;
  Json spec(int workers, bool on_start, bool continuous = true) {
    Json out = site.spec(workers, continuous);
    if (on_start) site.group_of(out, "gpu").set("onStartDeepHealthChecks", Json::array({Json("InstanceStress")}));
    return out;
  }
  Json first() { return site.instances("gpu").front(); }
  std::string node() { return first()["status"]["node"].string(); }
  Json node_object(const std::string& name) { return site.api.all("nodes").at({"", name}); }
  std::string label(const std::string& of, const char* key) { return node_object(of)["metadata"]["labels"][key].string(); }
  bool tainted(const std::string& of) {
    const Json object = node_object(of);
    for (const Json& taint : object["spec"]["taints"].items())
      if (taint["key"].string() == api::kHealthLabel) return true;
    return false;
  }
  void ask(const char* id) {
    Json object = first();
    object.child("spec").set("healthCheck", Json::object({{"id", id}, {"by", "ada"}}));
    ASSERT_TRUE(site.api.update(api::kInstances, object));
  }
  // InstanceConnectivity, of all in the group.
  void ask_links(const char* id, bool stress = false) {
    for (Json object : site.instances("gpu")) {
      Json checks = Json::array({Json("InstanceConnectivity")});
      if (stress) checks.push("InstanceStress");
      object.child("spec").set("healthCheck", Json::object({{"id", id}, {"by", "ada"}, {"checks", std::move(checks)}}));
      ASSERT_TRUE(site.api.update(api::kInstances, object));
    }
  }
  bool all_passed() {
    for (const Json& object : site.instances("gpu"))
      if (object["status"]["healthCheck"]["stage"].string() != "Passed") return false;
    return true;
  }
  std::vector<std::string> pods_of_checks() {
    std::vector<std::string> out;
    for (const auto& [key, pod] : site.api.all("pods"))
      if (key.name.ends_with("-links-answer")) out.push_back(key.name);
    return out;
  }
  void rounds(int count) {
    for (int i = 0; i < count; ++i) site.reconcile(), site.tick();
  }
};

TEST_F(DeepChecks, OnStartNothingIsOnAMachineBeforeItHasPassed) {
  bool ends = false;
  site.script = [&](const Json&) { return ends ? 0 : -1; };
  site.create("ml", spec(2, true));
  rounds(10);
  EXPECT_EQ(first()["status"]["phase"].string(), "DeepHealthCheckInProgress");
  EXPECT_EQ(label(node(), api::kDeepCheckLabel), "InProgress");
  EXPECT_EQ(label(node(), api::kHealthLabel), "Unschedulable");
  EXPECT_TRUE(tainted(node()));
  ends = true;
  site.settle();
  EXPECT_EQ(site.summary("ml"), "4/4");
  EXPECT_THAT(site.checks, SizeIs(2));
  EXPECT_EQ(label(node(), api::kDeepCheckLabel), "Passed");
  EXPECT_EQ(label(node(), api::kHealthLabel), "Schedulable");
  EXPECT_FALSE(tainted(node()));
  const auto before = site.picture();
  rounds(5);
  EXPECT_EQ(site.picture(), before) << "at rest nothing is written";
}

TEST_F(DeepChecks, WhenAskedItsJobEndsFirst) {
  site.create("ml", spec(1, false));
  site.settle();
  site.busy.insert("cluster-ml/gpu-0");
  ask("c1");
  rounds(20);
  EXPECT_THAT(site.checks, IsEmpty()) << "its job runs";
  EXPECT_EQ(first()["status"]["phase"].string(), "DeepHealthCheckInProgress");
  site.busy.clear();
  site.settle();
  EXPECT_THAT(site.checks, ElementsAre(kube::name_of(first()) + " for c1"));
  EXPECT_EQ(first()["status"]["healthCheck"]["stage"].string(), "Passed");
  EXPECT_EQ(site.summary("ml"), "3/3");
  EXPECT_FALSE(node_object(node())["spec"]["unschedulable"].boolean());
  ask("c2");
  site.settle();
  EXPECT_THAT(site.checks, SizeIs(2));
}

TEST_F(DeepChecks, AFaultyMachineIsReplaced) {
  site.create("ml", spec(2, false));
  site.settle();
  const std::string faulty = node(), id = kube::name_of(first());
  site.script = [&](const Json& pod) { return pod["spec"]["nodeName"].string() == faulty ? 10 : 0; };
  ask("c1");
  site.settle();
  EXPECT_FALSE(site.api.all("instances").contains({"", id}));
  EXPECT_FALSE(site.api.all("nodes").contains({"", faulty}));
  EXPECT_EQ(site.summary("ml"), "4/4");
}

TEST_F(DeepChecks, WithoutRecoveryItStaysOutOfUseUntilItPasses) {
  Json with = spec(2, false);
  with.set("nodeRecovery", "None");
  site.create("ml", with);
  site.settle();
  const std::string faulty = node(), id = kube::name_of(first());
  int code = 10;
  site.script = [&](const Json&) { return code; };
  ask("c1");
  rounds(40);
  EXPECT_TRUE(site.api.all("instances").contains({"", id}));
  EXPECT_EQ(first()["status"]["phase"].string(), "Failure");
  EXPECT_THAT(first()["status"]["message"].string(), HasSubstr("deep health check: it ended with 3"));
  EXPECT_EQ(label(faulty, api::kDeepCheckLabel), "Failed");
  EXPECT_TRUE(tainted(faulty));
  code = 0;
  ask("c2");
  site.settle();
  EXPECT_EQ(site.summary("ml"), "4/4");
  EXPECT_FALSE(tainted(faulty));
}

// What was asked for once is done once, also when the machine is prepared again for another reason.
TEST_F(DeepChecks, AnUpdateOfTheSoftwareAsksForNoneAgain) {
  site.create("ml", spec(1, false));
  site.settle();
  ask("c1");
  site.settle();
  ASSERT_THAT(site.checks, SizeIs(1));
  Json object = site.api.all("clusters").at({"", "ml"});
  object.child("spec").set("softwareUpdate", Json::object({{"id", "u1"}}));
  ASSERT_TRUE(site.api.update(api::kClusters, object));
  site.settle();
  EXPECT_EQ(first()["status"]["software"]["stage"].string(), "Done");
  EXPECT_THAT(site.checks, SizeIs(1));
  ask("c2");
  site.settle();
  EXPECT_THAT(site.checks, SizeIs(2));
}

TEST_F(DeepChecks, WhatHadFailedStaysShutWhileItIsEmptiedForAnother) {
  Json with = spec(1, false);
  with.set("nodeRecovery", "None");
  site.create("ml", with);
  site.settle();
  site.script = [](const Json&) { return 10; };
  ask("c1");
  rounds(20);
  ASSERT_EQ(first()["status"]["healthCheck"]["stage"].string(), "Failed");
  ask("c2");
  bool emptied = false;
  for (int i = 0; i < 10; ++i) {
    site.reconcile();
    emptied = emptied || first()["status"]["healthCheck"]["stage"].string() == "Emptying";
    EXPECT_FALSE(node_object(node())["metadata"]["labels"].has(api::kGroupNameLabel)) << i;
    site.tick();
  }
  EXPECT_TRUE(emptied);
}

TEST_F(DeepChecks, GpusThatAreNotToldYetAreWaitedFor) {
  site.create("ml", spec(1, true));
  const auto offer = [&](const char* count) {
    Json object = node_object(node());
    if (count == nullptr) object.child("status").child("allocatable").erase(api::kGpuResource);
    else object.child("status").child("allocatable").set(api::kGpuResource, count);
    ASSERT_TRUE(site.api.update_status(resources::nodes, object));
  };
  while (site.instances("gpu").empty()) rounds(1);
  for (int i = 0; i < 20 && (first()["status"]["node"].string().empty() || !site.api.all("nodes").contains({"", node()})); ++i) rounds(1);
  offer(nullptr);
  site.checks.clear();
  for (int i = 0; i < 200; ++i) rounds(1);
  EXPECT_NE(first()["status"]["healthCheck"]["stage"].string(), "Failed");
  offer("1");
  site.settle();
  EXPECT_EQ(site.summary("ml"), "3/3");
}

TEST_F(DeepChecks, WhatCouldNotBeTriedIsNoFault) {
  site.create("ml", spec(1, false));
  site.settle();
  int code = 125;
  site.script = [&](const Json&) { return code; };
  ask("c1");
  rounds(60);
  EXPECT_EQ(first()["status"]["healthCheck"]["stage"].string(), "Checking");
  EXPECT_GT(site.checks.size(), 1U) << "it is made again";
  code = 0;
  for (int i = 0; i < 120 && first()["status"]["healthCheck"]["stage"].string() != "Passed"; ++i) rounds(1);
  site.settle();
  EXPECT_EQ(site.summary("ml"), "3/3");
}

TEST_F(DeepChecks, OnStartAFaultyMachineIsLeftForAnother) {
  int faults = 1;
  site.script = [&](const Json&) { return faults-- > 0 ? 10 : 0; };
  site.create("ml", spec(1, true));
  for (int i = 0; i < 200 && site.summary("ml") != "3/3"; ++i) rounds(1);
  EXPECT_EQ(site.summary("ml"), "3/3");
  EXPECT_EQ(first()["spec"]["attempt"].integer(), 2);
}

TEST_F(DeepChecks, AllOrNothingIsTakenBack) {
  site.script = [&](const Json&) { return 10; };
  site.create("ml", spec(1, true, false));
  site.settle();
  EXPECT_EQ(site.phase("ml"), "Failed");
  EXPECT_THAT(site.instances(), IsEmpty());
}

// The server dies after each of its writes in turn: every machine is checked once, and serves in the end.
TEST_F(DeepChecks, ADeathAtEachWriteConverges) {
  for (int dies_at = 0; dies_at < 60; dies_at += test_stride()) {
    ClusterSite world;
    Json with = world.spec(2);
    world.group_of(with, "gpu").set("onStartDeepHealthChecks", Json::array({Json("InstanceStress")}));
    world.create("ml", with);
    world.mortal->dies_at = dies_at;
    for (int i = 0; i < 40; ++i) {
      world.reconcile();
      if (world.mortal->dead) world.restart();
      world.tick();
    }
    world.settle();
    EXPECT_EQ(world.summary("ml"), "4/4") << dies_at;
    std::set<std::string> once(world.checks.begin(), world.checks.end());
    EXPECT_EQ(once.size(), world.checks.size()) << dies_at;
  }
}

// ---- InstanceConnectivity

TEST_F(DeepChecks, LinksAreTriedTogetherAndNothingIsLeftOfIt) {
  site.create("ml", spec(4, false));
  site.settle();
  ask_links("c1", true);
  for (int i = 0; i < 200 && !all_passed(); ++i) rounds(1);
  site.settle();
  EXPECT_TRUE(all_passed());
  EXPECT_THAT(site.checks, SizeIs(4)) << "under load first";
  EXPECT_THAT(site.links, SizeIs(4));
  EXPECT_THAT(first()["status"]["healthCheck"]["message"].string(), HasSubstr("links: 3 ("));
  EXPECT_THAT(pods_of_checks(), IsEmpty());
  EXPECT_EQ(site.summary("ml"), "6/6");
  const auto before = site.picture();
  rounds(5);
  EXPECT_EQ(site.picture(), before) << "at rest nothing is written";
  ask_links("c2");
  for (int i = 0; i < 200 && site.links.size() < 8; ++i) rounds(1);
  site.settle();
  EXPECT_TRUE(all_passed());
  EXPECT_THAT(site.checks, SizeIs(4)) << "by links alone";
}

TEST_F(DeepChecks, OneThatReachesNobodyIsReplaced) {
  site.create("ml", spec(3, false));
  site.settle();
  const std::string id = kube::name_of(first());
  site.link = [&](const auto& from, const auto& to) { return from != id && to != id; };
  ask_links("c1");
  for (int i = 0; i < 300 && site.api.all("instances").contains({"", id}); ++i) rounds(1);
  site.settle();
  EXPECT_FALSE(site.api.all("instances").contains({"", id}));
  EXPECT_EQ(site.summary("ml"), "5/5");
  int passed = 0;
  for (const Json& object : site.instances("gpu")) passed += object["status"]["healthCheck"]["stage"].string() == "Passed";
  EXPECT_EQ(passed, 2) << "the others are well, and stay";
}

// At which end the fault is cannot be told: neither is replaced, and neither is in use before the link works.
TEST_F(DeepChecks, OfTwoNeitherIsCondemnedNorInUse) {
  site.create("ml", spec(2, false));
  site.settle();
  bool works = false;
  site.link = [&](const auto&, const auto&) { return works; };
  std::set<std::string> before;
  for (const Json& object : site.instances("gpu")) before.insert(kube::name_of(object));
  ask_links("c1");
  rounds(200);
  EXPECT_GT(site.links.size(), 2U) << "it is tried again";
  for (const Json& object : site.instances("gpu")) {
    EXPECT_TRUE(before.contains(kube::name_of(object)));
    EXPECT_EQ(object["status"]["healthCheck"]["stage"].string(), "Checking");
    EXPECT_THAT(object["status"]["message"].string(), HasSubstr("cannot be told"));
    EXPECT_TRUE(tainted(object["status"]["node"].string()));
  }
  works = true;
  for (int i = 0; i < 200 && !all_passed(); ++i) rounds(1);
  site.settle();
  EXPECT_EQ(site.summary("ml"), "4/4");
}

TEST_F(DeepChecks, OneAloneHasNobodyToBeTriedWithAndPasses) {
  site.create("ml", spec(1, false));
  site.settle();
  ask_links("c1");
  for (int i = 0; i < 100 && !all_passed(); ++i) rounds(1);
  EXPECT_THAT(first()["status"]["healthCheck"]["message"].string(), HasSubstr("no other machine"));
  EXPECT_THAT(site.links, IsEmpty());
}

TEST_F(DeepChecks, OneThatDoesNotAnswerIsNotWaitedForWithoutEnd) {
  site.create("ml", spec(3, false));
  site.settle();
  const std::string id = kube::name_of(first());
  site.answers = [&](const Json& pod) { return pod["metadata"]["labels"][api::kLifecycleLabel].string() != id; };
  ask_links("c1");
  const auto passed = [&] {
    int count = 0;
    for (const Json& object : site.instances("gpu")) count += object["status"]["healthCheck"]["stage"].string() == "Passed";
    return count;
  };
  for (int i = 0; i < 600 && passed() < 2; ++i) rounds(1);
  EXPECT_EQ(passed(), 2);
  EXPECT_EQ(first()["status"]["healthCheck"]["stage"].string(), "Checking") << "what could not be tried is no fault";
  EXPECT_TRUE(site.api.all("instances").contains({"", id}));
}

// Of two, one of which never answers: what was not tried with anybody has not passed.
TEST_F(DeepChecks, OneWhoseOnlyPeerToldNothingHasNotPassed) {
  site.create("ml", spec(2, false));
  site.settle();
  const std::string id = kube::name_of(first());
  bool up = false;
  site.answers = [&](const Json& pod) { return up || pod["metadata"]["labels"][api::kLifecycleLabel].string() != id; };
  ask_links("c1");
  rounds(400);
  for (const Json& object : site.instances("gpu")) EXPECT_EQ(object["status"]["healthCheck"]["stage"].string(), "Checking");
  EXPECT_THAT(site.instances("gpu").back()["status"]["message"].string(), HasSubstr("told nothing"));
  up = true;
  for (int i = 0; i < 600 && !all_passed(); ++i) rounds(1);
  EXPECT_TRUE(all_passed());
}

TEST_F(DeepChecks, OnStartMachinesMeetBeforeSlurmComes) {
  Json with = spec(3, false);
  site.group_of(with, "gpu").set("onStartDeepHealthChecks", Json::array({Json("InstanceStress"), Json("InstanceConnectivity")}));
  site.create("ml", with);
  for (int i = 0; i < 300 && site.summary("ml") != "5/5"; ++i) rounds(1);
  site.settle();
  EXPECT_EQ(site.summary("ml"), "5/5");
  EXPECT_THAT(site.links, SizeIs(3));
  EXPECT_THAT(pods_of_checks(), IsEmpty());
}

// All or nothing with one machine that reaches nobody: another takes its place, and what came is used once the links are known to work.
TEST_F(DeepChecks, OnStartOneThatReachesNobodyIsLeftForAnother) {
  Json with = spec(3, false);
  site.group_of(with, "gpu").set("onStartDeepHealthChecks", Json::array({Json("InstanceConnectivity")}));
  site.create("ml", with);
  while (site.instances("gpu").empty()) rounds(1);
  const std::string id = kube::name_of(first());
  site.link = [&](const auto& from, const auto& to) { return from != id && to != id; };
  for (int i = 0; i < 400 && site.summary("ml") != "5/5"; ++i) rounds(1);
  EXPECT_EQ(site.summary("ml"), "5/5");
  EXPECT_FALSE(site.api.all("instances").contains({"", id}));
}

// The server dies after each of its writes in turn: all meet, one is replaced, and nothing is left.
TEST_F(DeepChecks, ADeathAtEachWriteOfAMeetingConverges) {
  for (int dies_at = 0; dies_at < 90; dies_at += test_stride()) {
    ClusterSite world;
    world.create("ml", world.spec(3));
    world.settle();
    const std::string id = kube::name_of(world.instances("gpu").front());
    world.link = [&](const auto& from, const auto& to) { return from != id && to != id; };
    for (Json object : world.instances("gpu")) {
      object.child("spec").set("healthCheck", Json::object({{"id", "c1"}, {"checks", Json::array({Json("InstanceConnectivity")})}}));
      ASSERT_TRUE(world.api.update(api::kInstances, object));
    }
    world.mortal->writes = 0;
    world.mortal->dies_at = dies_at;
    for (int i = 0; i < 400 && (i < 60 || world.api.all("instances").contains({"", id}) || world.summary("ml") != "5/5"); ++i) {
      world.reconcile();
      if (world.mortal->dead) world.restart();
      world.tick();
    }
    world.settle();
    EXPECT_EQ(world.summary("ml"), "5/5") << dies_at;
    EXPECT_FALSE(world.api.all("instances").contains({"", id})) << dies_at;
    int passed = 0;
    for (const Json& object : world.instances("gpu")) passed += object["status"]["healthCheck"]["stage"].string() == "Passed";
    EXPECT_EQ(passed, 2) << dies_at;
    for (const auto& [key, pod] : world.api.all("pods")) EXPECT_FALSE(key.name.ends_with("-links-answer")) << dies_at;
  }
}

}  // namespace
}  // namespace fairlead::fleet
