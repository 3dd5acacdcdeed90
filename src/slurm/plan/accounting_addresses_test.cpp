// SPDX-License-Identifier: Apache-2.0
// Addresses of slurmdbd's pods, and how a cluster of an earlier release gets them.
#include <gmock/gmock.h>

#include "slurm/plan/accounting.h"
#include "slurm/plan/accounting_test_world.h"
#include "slurm/plan/inputs.h"

namespace fairlead::slurm {
namespace {

using namespace test;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kByPod = "AccountingStorageHost=accounting-0.demo-accounting-svc.lab.svc.cluster.local\n";
constexpr const char* kByAddress = "AccountingStorageHost=demo-accounting-0.lab.svc.cluster.local\n";

std::string mounted(const World& world) { return world.snapshot.config_maps.at("demo-slurm-configs")["data"]["slurm.conf"].string(); }
bool has_label(const Json& pod) { return pod["metadata"]["labels"].has(kPodLabel); }
bool is_old(const World& world, const std::string& name) {
  const Json* pod = find(world.snapshot.pods, name);
  return pod && !has_label(*pod);
}

// A name that nobody knows costs Slurm ten seconds each time: the address of a pod is there without the pod.
TEST(AccountingAddresses, EachSlurmdbdHasOneOfItsOwn) {
  World world(demo("enabled: true, mariadbOperator: {enabled: true}, slurmdbd: {port: 7819}", "{replicas: 2}"));
  world.settle();
  for (const std::string pod : {"accounting-0", "accounting-1"}) {
    const Json& spec = world.snapshot.services["demo-" + pod]["spec"];
    EXPECT_FALSE(spec.has("clusterIP")) << "None would give it no address";
    EXPECT_TRUE(spec["publishNotReadyAddresses"].boolean()) << "the second takes over when the first does not answer, not when a probe fails";
    EXPECT_EQ(spec["ports"].items().at(0)["port"].integer(), 7819);
    for (const auto& [other, object] : world.snapshot.pods) {
      bool selected = true;
      for (const auto& [key, value] : spec["selector"].members()) selected = selected && object["metadata"]["labels"][key] == value;
      EXPECT_EQ(selected, other == pod) << other;
    }
  }
  EXPECT_TRUE(world.look().status["accountingAddresses"].boolean());
}

// A namespace as an earlier release left it: slurmdbd's pods have no addresses, and slurm.conf names them by the names of the pods.
World earlier_release(int replicas) {
  World world(demo("enabled: true, mariadbOperator: {enabled: true}", replicas == 2 ? "{replicas: 2}" : "{}"));
  world.settle();
  world.all_ready();
  world.settle();
  auto old = read(world.snapshot.cluster);
  old.accounting.addressed = old.accounting.first_addressed = false;
  for (int i = 0; i < replicas; ++i) {
    const std::string name = accounting_pod_name(i);
    world.snapshot.services.erase("demo-" + name);
    Json& meta = world.snapshot.pods[name].child("metadata");
    meta.child("labels").erase(kPodLabel);
    meta.child("annotations").set(kTemplateHash, "earlier");
  }
  for (const Json& map : desired_config_maps(old, {})) world.snapshot.config_maps[kube::name_of(map)] = map;
  const std::string hash = config_hash(old, {});
  Json& status = world.snapshot.cluster.child("status");
  status.set("appliedConfigHash", hash);
  status.erase("accountingAddresses");
  for (const auto& [name, pod] : world.snapshot.pods) world.snapshot.seen_configs[kube::uid_of(pod)] = hash;
  return world;
}

class Upgrade : public testing::TestWithParam<int> {};
TEST_P(Upgrade, MakesEachSlurmdbdAnewOnceAndThenTellsSlurmctld) {
  World world = earlier_release(GetParam());
  ASSERT_THAT(mounted(world), HasSubstr(kByPod));
  std::vector<std::string> ended;
  int told = 0;
  for (int round = 0; round < 24; ++round) {
    const bool first_is_old = is_old(world, "accounting-0"), any_is_old = first_is_old || is_old(world, "accounting-1");
    const Plan plan = world.look();
    const auto before = ended.size();
    for (const Step& step : plan.steps) {
      if (const auto* gone = std::get_if<DeletePod>(&step)) ended.push_back(gone->key.name);
      if (const auto* made = std::get_if<Create>(&step)) {
        EXPECT_FALSE(first_is_old && kube::name_of(made->object) == "accounting-1") << "it would not find the first, and serve beside it";
      }
      told += std::holds_alternative<Reconfigure>(step);
    }
    EXPECT_LE(ended.size(), before + 1) << "one at a time";
    world.apply(plan);
    EXPECT_THAT(mounted(world), HasSubstr(any_is_old ? kByPod : "AccountingStorageHost=")) << "round " << round;
    if (round % 3 == 2) world.all_ready();
  }
  EXPECT_EQ(ended, GetParam() == 2 ? (std::vector<std::string>{"accounting-0", "accounting-1"}) : std::vector<std::string>{"accounting-0"}) << "each once, and no head";
  EXPECT_EQ(told, 1);
  EXPECT_THAT(mounted(world), HasSubstr(kByAddress));
  EXPECT_THAT(world.steps(), IsEmpty());
  EXPECT_TRUE(world.look().status["accountingAddresses"].boolean());
}
INSTANTIATE_TEST_SUITE_P(AccountingAddresses, Upgrade, testing::Values(1, 2));

TEST(AccountingAddresses, WhatCannotBeMadeAnewKeepsItsName) {
  World world = earlier_release(2);
  for (int round = 0; round < 10; ++round) {
    world.snapshot.pods["accounting-1"].erase("status");  // so the first, which serves, stays
    world.apply(world.look());
  }
  EXPECT_TRUE(is_old(world, "accounting-0"));
  EXPECT_THAT(mounted(world), HasSubstr(kByPod));
  EXPECT_FALSE(world.look().status["accountingAddresses"].boolean());
}

}  // namespace
}  // namespace fairlead::slurm
