// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/join.h"

#include <gmock/gmock.h>

#include "fleet/plan/host_plan.h"
#include "kube/object.h"

namespace fairlead::fleet {
namespace {

using kube::Json;
using testing::HasSubstr;

const Instant kNow = *parse_time("2026-03-01T12:00:00Z");
// As it is asked where nothing else matters: from the address that it has.
JoinPlan plan_join(const std::optional<api::Machine>& machine, std::vector<api::Machine> others, const api::JoinRequest& request, const std::string& key, Instant now) {
  return plan_join(JoinView{.machine = machine, .others = std::move(others), .node = {}, .from = request.facts.address, .address_trouble = {}}, request, key, now);
}
HostPlan plan_host(const api::Machine& machine, const Json* node, Instant now) { return plan_host(machine, HostView{.node = node}, now); }
const std::string kSecret(64, 'a'), kOther(64, 'b');

api::Machine waiting() {
  api::Machine out{.name = "a"};
  out.spec.host = api::HostSpec{.instance_type = {}, .token_hash = api::hash_of_secret(kSecret), .token_expires = kNow + 1h};
  out.seat = {.index = 3, .pod_cidr = "10.78.3.0/24"};
  return out;
}
api::Machine joined(const std::string& key = "key") {
  api::Machine out = waiting();
  out.host = {.key = key, .token_hash = api::hash_of_secret(kSecret), .address = "10.0.0.7", .joined = "2026-03-01T11:00:00Z"};
  out.seat.address = "10.0.0.7";
  return out;
}
api::JoinRequest request(const std::string& secret = kSecret) { return {.name = "a", .secret = secret, .signing_request = {}, .facts = {.cpus = 4, .memory_mib = 16'000, .devices = {}, .devices_text = {}, .address = "10.0.0.7"}}; }

TEST(JoinPlan, WhoHasTheTokenComesIn) {
  const JoinPlan plan = plan_join(waiting(), {waiting()}, request(), "key", kNow);
  ASSERT_TRUE(plan.accepted()) << plan.why;
  ASSERT_TRUE(plan.record);
  EXPECT_EQ((*plan.record)["key"].string(), "key");
  EXPECT_EQ((*plan.record)["address"].string(), "10.0.0.7");
  EXPECT_EQ((*plan.record)["joined"].string(), "2026-03-01T12:00:00Z");
  EXPECT_EQ((*plan.record)["facts"]["cpus"].integer(), 4);
}

TEST(JoinPlan, TheSameHostMayAskAgainUntilTheTokenEnds) {
  const JoinPlan again = plan_join(joined(), {joined()}, request(), "key", kNow + 59min);
  EXPECT_TRUE(again.accepted());
  EXPECT_FALSE(again.record);
  EXPECT_EQ(plan_join(joined(), {joined()}, request(), "key", kNow + 1h).status, 401);
}

TEST(JoinPlan, AnotherKeyIsTooLateAndIsToldByWhomTheTokenWasUsed) {
  const JoinPlan plan = plan_join(joined(), {joined()}, request(), "thief", kNow);
  EXPECT_EQ(plan.status, 409);
  EXPECT_THAT(plan.why, HasSubstr("at 2026-03-01T11:00:00Z by a host at 10.0.0.7"));
  EXPECT_THAT(plan.why, HasSubstr("fairlead node remove a"));
}

TEST(JoinPlan, ANewTokenTakesAnotherKey) {
  api::Machine machine = joined();
  machine.spec.host->token_hash = api::hash_of_secret(kOther);
  EXPECT_EQ(plan_join(machine, {machine}, request(), "key", kNow).status, 401);
  const JoinPlan plan = plan_join(machine, {machine}, request(kOther), "new", kNow);
  ASSERT_TRUE(plan.accepted()) << plan.why;
  EXPECT_EQ((*plan.record)["key"].string(), "new");
}

TEST(JoinPlan, WhatIsThereCannotBeGuessedFromTheAnswer) {
  api::Machine local{.name = "a"}, going = waiting(), bare = waiting();
  going.deleting = true;
  bare.spec.host->token_hash.clear();
  const std::string none = plan_join(std::nullopt, {}, request(), "key", kNow).why;
  for (const api::Machine& machine : {local, going, bare}) {
    const JoinPlan plan = plan_join(machine, {}, request(), "key", kNow);
    EXPECT_EQ(plan.status, 401);
    EXPECT_EQ(plan.why, none);
  }
  EXPECT_EQ(plan_join(waiting(), {}, request(kOther), "key", kNow).why, none);
}

TEST(JoinPlan, ALieIsRefusedWithTheNumbers) {
  api::Machine machine = waiting();
  machine.spec.host->instance_type = "ml.g5.xlarge";  // 4 CPUs, 16 GiB, one GPU
  api::JoinRequest asked = request();
  EXPECT_THAT(plan_join(machine, {}, asked, "key", kNow).why, HasSubstr("has 1 of nvidia.com/gpu; this machine has 0"));
  asked.facts.devices["nvidia.com/gpu"] = 1;
  EXPECT_TRUE(plan_join(machine, {}, asked, "key", kNow).accepted());
  asked.facts.cpus = 3;
  const JoinPlan plan = plan_join(machine, {}, asked, "key", kNow);
  EXPECT_EQ(plan.status, 422);
  EXPECT_THAT(plan.why, HasSubstr("4 CPUs; this machine has 3"));
  asked.facts.cpus = 4, asked.facts.memory_mib = 8'000;
  EXPECT_THAT(plan_join(machine, {}, asked, "key", kNow).why, HasSubstr("16 GiB of memory; this machine has 7.8"));
  asked.facts.memory_mib = 16'000, asked.facts.architecture = "aarch64";
  EXPECT_THAT(plan_join(machine, {}, asked, "key", kNow).why, HasSubstr("ml.g5.xlarge has processors of x86_64; this machine has aarch64"));
  asked.facts.architecture = "x86_64";
  EXPECT_TRUE(plan_join(machine, {}, asked, "key", kNow).accepted());
}

TEST(JoinPlan, NobodyTakesAnothersAddress) {
  api::Machine other = joined();
  other.name = "b";
  EXPECT_EQ(plan_join(waiting(), {waiting(), other}, request(), "key", kNow).status, 409);
  other.host.address.clear();  // a local one of that address
  EXPECT_THAT(plan_join(waiting(), {other}, request(), "key", kNow).why, HasSubstr("machine b has the address 10.0.0.7"));
}

TEST(JoinPlan, ItWaitsForItsSeatAndForAMachineInOrder) {
  api::Machine machine = waiting();
  machine.seat = {};
  EXPECT_EQ(plan_join(machine, {}, request(), "key", kNow).status, 503);
  machine.problems = {"spec.power: no"};
  EXPECT_EQ(plan_join(machine, {}, request(), "key", kNow).status, 422);
}

TEST(HostKey, CountsWhileTheMachineNamesIt) {
  EXPECT_EQ(why_not_host(joined(), "key"), "");
  EXPECT_NE(why_not_host(joined(), "old"), "");
  EXPECT_NE(why_not_host(joined(), ""), "");
  EXPECT_NE(why_not_host(waiting(), ""), "");
  EXPECT_NE(why_not_host(std::nullopt, "key"), "");
  api::Machine going = joined(), local{.name = "a"};
  going.deleting = true;
  EXPECT_NE(why_not_host(going, "key"), "");
  EXPECT_NE(why_not_host(local, ""), "");
}

Json node(bool ready, const std::string& boot = "boot-1") {
  return Json::object({{"metadata", Json::object({{"name", "a"}, {"labels", Json::object({{api::kHostLabel, "true"}})}})}, {"status", Json::object({{"nodeInfo", Json::object({{"bootID", boot}})}, {"conditions", Json::array({Json::object({{"type", "Ready"}, {"status", ready ? "True" : "Unknown"}, {"message", "silent since"}})})}})}});
}

TEST(HostPlan, PhasesFollowFromTheMachineAndItsNode) {
  EXPECT_EQ(plan_host(waiting(), nullptr, kNow).phase, "Waiting");
  EXPECT_EQ(*plan_host(waiting(), nullptr, kNow).look_again_after, 1h);
  EXPECT_THAT(plan_host(waiting(), nullptr, kNow + 2h).why, HasSubstr("ended at 2026-03-01T13:00:00Z"));
  EXPECT_EQ(plan_host(joined(), nullptr, kNow).phase, "Starting");
  const Json good = node(true), silent = node(false);
  EXPECT_EQ(plan_host(joined(), &good, kNow).phase, "Running");
  EXPECT_EQ(plan_host(joined(), &silent, kNow).phase, "Silent");
  EXPECT_THAT(plan_host(joined(), &silent, kNow).why, HasSubstr("silent since"));
  api::Machine bad = joined();
  bad.problems = {"spec.power: not ours", "b"};
  EXPECT_EQ(plan_host(bad, &good, kNow).phase, "Refused");
  EXPECT_THAT(plan_host(bad, &good, kNow).why, HasSubstr("1 more"));
}

TEST(HostPlan, ARebootIsNotedWithTheBootThatIsToEndAndIsDoneWhenThereIsAnother) {
  api::Machine machine = joined();
  machine.spec.reboot = "r1";
  const Json before = node(true, "boot-1"), after = node(true, "boot-2"), dead = node(false, "boot-2");
  const auto noted = plan_host(machine, &before, kNow).note;
  ASSERT_TRUE(noted);
  EXPECT_EQ(noted->phase, "Rebooting");
  EXPECT_EQ(noted->boot, "boot-1");
  machine.reboot = *noted;
  EXPECT_FALSE(plan_host(machine, &before, kNow).note);
  EXPECT_FALSE(plan_host(machine, &before, kNow).rebooted);
  EXPECT_FALSE(plan_host(machine, &dead, kNow).rebooted);
  EXPECT_FALSE(plan_host(machine, nullptr, kNow).rebooted);
  EXPECT_TRUE(plan_host(machine, &after, kNow).rebooted);
  machine.reboot.phase = "Done";
  EXPECT_FALSE(plan_host(machine, &after, kNow).note);
  machine.spec.reboot = "r2";
  EXPECT_EQ(plan_host(machine, &after, kNow).note->boot, "boot-2");
}

TEST(JoinPlan, AnAddressIsTheOneThatItAsksFromUnlessAnAdministratorNamesIt) {
  JoinView view{.machine = waiting(), .others = {}, .node = {}, .from = "10.0.0.9", .address_trouble = {}};
  EXPECT_EQ(plan_join(view, request(), "key", kNow).status, 422);
  EXPECT_THAT(plan_join(view, request(), "key", kNow).why, HasSubstr("comes from 10.0.0.9, not from 10.0.0.7"));
  view.from = "10.0.0.7";
  EXPECT_TRUE(plan_join(view, request(), "key", kNow).accepted());
  // The server's own: its certificate would be one of the server's.
  view.address_trouble = "10.0.0.7 is an address of the server's machine";
  EXPECT_EQ(plan_join(view, request(), "key", kNow).status, 422);
  view.machine->spec.host->address = "10.0.0.7";
  EXPECT_TRUE(plan_join(view, request(), "key", kNow).accepted());
  view.from = "192.168.1.1";
  EXPECT_TRUE(plan_join(view, request(), "key", kNow).accepted());
  view.machine->spec.host->address = "10.0.0.8";
  EXPECT_THAT(plan_join(view, request(), "key", kNow).why, HasSubstr("is to have the address 10.0.0.8"));
}

TEST(JoinPlan, ANodeThatIsThereByOtherMeansStaysWhoItIs) {
  JoinView view{.machine = waiting(), .others = {}, .node = Json::object({{"metadata", Json::object({{"name", "a"}})}}), .from = "10.0.0.7", .address_trouble = {}};
  EXPECT_EQ(plan_join(view, request(), "key", kNow).status, 409);
  view.node->child("metadata").set("labels", Json::object({{api::kHostLabel, "true"}}));
  EXPECT_TRUE(plan_join(view, request(), "key", kNow).accepted());
}

TEST(OwnNode, SaysOfItselfWhatItsMachineSays) {
  api::Machine machine = joined();
  machine.spec.labels = {{"fairlead.dev/spare", "true"}, {"rack", "r1"}};
  machine.spec.host->instance_type = "ml.t3.medium";
  const auto make = [](const char* range, const char* address, Json labels) {
    return Json::object({{"metadata", Json::object({{"name", "a"}, {"labels", std::move(labels)}})}, {"spec", Json::object({{"podCIDR", range}, {"podCIDRs", Json::array({Json(range)})}})},
                         {"status", Json::object({{"addresses", Json::array({Json::object({{"type", "InternalIP"}, {"address", address}}), Json::object({{"type", "Hostname"}, {"address", "a"}})})}})}});
  };
  const Json labels = Json::object({{api::kHostLabel, "true"}, {"fairlead.dev/spare", "true"}, {"node.kubernetes.io/instance-type", "ml.t3.medium"}, {"anything", "else"}});
  const Json good = make("10.78.3.0/24", "10.0.0.7", labels);
  EXPECT_EQ(why_not_own_node(machine, nullptr, good), "");
  EXPECT_THAT(why_not_own_node(machine, nullptr, make("10.0.0.1/32", "10.0.0.7", labels)), HasSubstr("10.78.3.0/24, not 10.0.0.1/32"));
  EXPECT_THAT(why_not_own_node(machine, &good, make("10.78.3.0/24", "10.0.0.1", labels)), HasSubstr("10.0.0.7, not 10.0.0.1"));
  for (const auto& [key, value] : {std::pair("fairlead.dev/instance", "i-1"), {"fairlead.dev/spare", "false"}, {"sagemaker.amazonaws.com/cluster-name", "x"}, {"node.kubernetes.io/instance-type", "ml.p5.48xlarge"}, {"a.fairlead.dev/x", "y"}}) {
    Json other = labels;
    other.set(key, value);
    EXPECT_THAT(why_not_own_node(machine, &good, make("10.78.3.0/24", "10.0.0.7", other)), HasSubstr(key)) << key;
  }
  // What others have put there stays, and is not its own to take away.
  Json given = labels;
  given.set("fairlead.dev/instance", "i-1");
  const Json taken = make("10.78.3.0/24", "10.0.0.7", given);
  EXPECT_EQ(why_not_own_node(machine, &taken, taken), "");
  EXPECT_THAT(why_not_own_node(machine, &taken, good), HasSubstr("not its own to take away"));
}

TEST(HostPlan, WhatItMayStillRunKeepsTheNodeOfADeletedMachine) {
  api::Machine going = joined();
  going.deleting = true;
  const Json own = node(true);
  HostView view{.node = &own, .pods = {}};
  EXPECT_FALSE(plan_host(going, view, kNow).forget);  // not known
  view.pods = std::vector<std::string>{"default/a", "default/b"};
  EXPECT_FALSE(plan_host(going, view, kNow).forget);
  EXPECT_THAT(plan_host(going, view, kNow).why, HasSubstr("2 pods are bound to it (default/a, ...)"));
  EXPECT_TRUE(plan_host(going, view, kNow).look_again_after);
  going.spec.host->gone = true;
  EXPECT_TRUE(plan_host(going, view, kNow).forget);
  going.spec.host->gone = false;
  view.pods->clear();
  EXPECT_TRUE(plan_host(going, view, kNow).forget);
  // Not its own: it is let go of, and stays.
  const Json foreign = Json::object({{"metadata", Json::object({{"name", "a"}})}});
  EXPECT_FALSE(is_node_of(going, &foreign));
  EXPECT_TRUE(plan_host(going, HostView{.node = &foreign, .pods = std::vector<std::string>{"x"}}, kNow).forget);
  EXPECT_EQ(plan_host(joined(), HostView{.node = &foreign}, kNow).phase, "Refused");
}

TEST(HostPlan, OnAnotherEngineHostsDoNotJoin) { EXPECT_EQ(plan_host(joined(), HostView{.hosts_join = false}, kNow).phase, "Refused"); }

TEST(HostPlan, ARebootThatDoesNotHappenIsGivenUp) {
  api::Machine machine = joined();
  machine.spec.reboot = "r1";
  machine.reboot = {.id = "r1", .phase = "Rebooting", .message = {}, .began = kNow, .boot = "boot-1"};
  const Json before = node(true, "boot-1");
  EXPECT_EQ(plan_host(machine, &before, kNow + 29min).not_rebooted, "");
  EXPECT_EQ(*plan_host(machine, &before, kNow + 29min).look_again_after, 1min);
  EXPECT_THAT(plan_host(machine, nullptr, kNow + 30min).not_rebooted, HasSubstr("within 30 minutes"));
  const Json after = node(true, "boot-2");
  EXPECT_TRUE(plan_host(machine, &after, kNow + 31min).rebooted);
}

TEST(HostPlan, ASilentHostIsNotRebooted) {
  api::Machine machine = joined();
  machine.spec.reboot = "r1";
  const Json dead = node(false);
  const auto noted = plan_host(machine, &dead, kNow).note;
  ASSERT_TRUE(noted);
  EXPECT_EQ(noted->phase, "Refused");
  EXPECT_EQ(plan_host(machine, nullptr, kNow).note->phase, "Refused");
}

}  // namespace
}  // namespace fairlead::fleet
