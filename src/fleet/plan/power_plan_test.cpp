// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/power_plan.h"

#include <gmock/gmock.h>

#include <random>

#include "fleet/plan/host_plan.h"

namespace fairlead::fleet {
namespace {

using kube::Json;
using testing::HasSubstr;
using std::chrono::seconds;

struct PowerPlans : testing::Test {
  PowerPlans() {
    machine.name = "a";
    machine.spec.host.emplace().bmc = api::Bmc{.host = "10.0.9.7"};
  }
  // Looks every five seconds, for so long.
  PowerPlan looks(PowerState state, seconds time, const std::string& lease = "t0", bool declared = false) {
    for (const Instant end = now + time; now < end; now += seconds(5)) look(state, lease, declared);
    return look(state, lease, declared);
  }
  // One look; what was written down stays.
  PowerPlan look(std::optional<PowerState> state, const std::string& lease = "t0", bool declared = false) {
    PowerPlan plan = plan_power(machine, {.state = state, .why = "its BMC does not answer", .lease = lease, .ready = false, .declared = declared}, now);
    machine.power = plan.record;
    return plan;
  }
  api::Machine machine;
  Instant now{std::chrono::hours(500'000)};
};

TEST_F(PowerPlans, ARunningHostIsLeftAlone) {
  const PowerPlan plan = look(PowerState::On);
  EXPECT_FALSE(plan.act);
  EXPECT_FALSE(plan.in_service);
  EXPECT_EQ(plan.record.state, "On");
  EXPECT_EQ(plan.record.want, "");
}

TEST_F(PowerPlans, OffCutsThePowerAndProvesIt) {
  machine.spec.power = api::Power::Off;
  PowerPlan plan = look(PowerState::On);
  EXPECT_EQ(plan.act, PowerAction::ForceOff);
  EXPECT_EQ(plan.record.acted, now);
  now += seconds(5);
  EXPECT_FALSE(look(PowerState::Changing).act);
  now += seconds(5);
  plan = look(PowerState::Off);
  EXPECT_FALSE(plan.act);
  EXPECT_FALSE(plan.record.done) << "boards say so for a moment";
  plan = looks(PowerState::Off, seconds(10));
  EXPECT_TRUE(plan.record.done);
  EXPECT_FALSE(plan.in_service);
  EXPECT_FALSE(looks(PowerState::Off, seconds(15)).in_service);
  plan = looks(PowerState::Off, seconds(5));
  EXPECT_EQ(plan.in_service, false);
  EXPECT_TRUE(plan.record.proven);
  EXPECT_FALSE(look(PowerState::Off, "t0", true).in_service);  // it is said
}

TEST_F(PowerPlans, ABoardThatTakesNothingIsToldAgain) {
  machine.spec.power = api::Power::Off;
  EXPECT_TRUE(look(PowerState::On).act);
  now += seconds(29);
  EXPECT_FALSE(look(PowerState::On).act);
  now += seconds(1);
  EXPECT_EQ(look(PowerState::On).act, PowerAction::ForceOff);
  EXPECT_EQ(machine.power.tries, 2);
}

TEST_F(PowerPlans, ABoardThatLiesIsNotBelieved) {
  machine.spec.power = api::Power::Off;
  look(PowerState::On);
  look(PowerState::Off, "t0");
  for (int i = 1; i < 20; ++i) {
    now += seconds(10);
    const PowerPlan plan = look(PowerState::Off, "t" + std::to_string(i));
    EXPECT_FALSE(plan.in_service);
    EXPECT_THAT(plan.record.message, HasSubstr("not believed"));
  }
}

TEST_F(PowerPlans, SilenceOfTheBoardIsNoProofAndEndsOne) {
  machine.spec.power = api::Power::Off;
  look(PowerState::On);
  EXPECT_TRUE(looks(PowerState::Off, kProofOfDeath).record.proven);
  const PowerPlan plan = look(std::nullopt, "t0", true);
  EXPECT_EQ(plan.in_service, true);
  EXPECT_EQ(plan.record.state, "Unknown");
  EXPECT_FALSE(plan.act);
  EXPECT_THAT(plan.record.message, HasSubstr("does not answer"));
  // From the beginning.
  EXPECT_FALSE(look(PowerState::Off).record.proven);
  EXPECT_TRUE(looks(PowerState::Off, kProofOfDeath).record.proven);
}

// A server that was away heard no agent either.
TEST_F(PowerPlans, TimeInWhichNobodyLookedProvesNothing) {
  looks(PowerState::Off, seconds(10));
  now += std::chrono::minutes(5);
  EXPECT_FALSE(look(PowerState::Off).record.proven);
  EXPECT_FALSE(looks(PowerState::Off, seconds(20)).record.proven);
  EXPECT_TRUE(looks(PowerState::Off, seconds(10)).record.proven);
}

TEST_F(PowerPlans, OfAHostThatNeverReportedSilenceProvesNothing) {
  EXPECT_FALSE(looks(PowerState::Off, seconds(120), "").record.proven);
}

TEST_F(PowerPlans, AnotherBoardIsAnotherMatter) {
  looks(PowerState::Off, kProofOfDeath);
  machine.spec.host->bmc->host = "10.0.9.8";
  EXPECT_FALSE(look(PowerState::Off, "t0", true).record.proven);
}

TEST_F(PowerPlans, ItsSystemIsAskedFirst) {
  machine.spec.power = api::Power::Off;
  machine.spec.host->shutdown = seconds(60);
  EXPECT_EQ(look(PowerState::On).act, PowerAction::GracefulShutdown);
  now += seconds(59);
  EXPECT_FALSE(look(PowerState::On).act);
  now += seconds(1);
  EXPECT_EQ(look(PowerState::On).act, PowerAction::ForceOff);
}

TEST_F(PowerPlans, WhoSwitchesItOnByHandIsNotCutOff) {
  machine.spec.power = api::Power::Off;
  look(PowerState::On);
  looks(PowerState::Off, kProofOfDeath);
  now += std::chrono::hours(1);
  const PowerPlan plan = look(PowerState::On, "t0", true);
  EXPECT_FALSE(plan.act);
  EXPECT_EQ(plan.in_service, true);
  EXPECT_THAT(plan.record.message, HasSubstr("somebody switched it on"));
}

TEST_F(PowerPlans, OnTakesBackWhatIsSaidOfItBeforeItIsSwitchedOn) {
  machine.spec.power = api::Power::Off;
  look(PowerState::On);
  looks(PowerState::Off, kProofOfDeath);
  machine.spec.power = api::Power::On;
  PowerPlan plan = look(PowerState::Off, "t0", true);
  EXPECT_EQ(plan.act, PowerAction::On);
  EXPECT_EQ(plan.in_service, true);
  now += kProofOfDeath + seconds(5);
  EXPECT_FALSE(look(PowerState::Off).record.proven);  // it is about to start
  now += seconds(60);
  EXPECT_EQ(look(PowerState::Off).act, PowerAction::On);
  plan = look(PowerState::On);
  EXPECT_TRUE(plan.record.done);
  EXPECT_FALSE(look(PowerState::On).act);
}

TEST_F(PowerPlans, WhatOthersSwitchedOffStaysOffAndCountsAsDead) {
  look(PowerState::On);
  now += seconds(600);
  EXPECT_FALSE(look(PowerState::Off).act);
  const PowerPlan plan = looks(PowerState::Off, kProofOfDeath);
  EXPECT_FALSE(plan.act);
  EXPECT_EQ(plan.in_service, false);
}

TEST_F(PowerPlans, ASilentHostIsRestartedOnce) {
  machine.reboot = {.id = "r1", .phase = "Rebooting", .message = {}, .began = now, .boot = "b", .silent = true};
  EXPECT_EQ(look(PowerState::On).act, PowerAction::ForceRestart);
  for (int i = 0; i < 160; ++i) {
    now += seconds(5);
    EXPECT_FALSE(look(PowerState::On).act);
  }
  now += seconds(60);  // nothing came of it, or it was never sent
  EXPECT_EQ(look(PowerState::On).act, PowerAction::ForceRestart);
  now += std::chrono::minutes(15);
  EXPECT_FALSE(look(PowerState::On).act);
  machine.reboot.id = "r2";
  machine.reboot.began = now;
  EXPECT_EQ(look(PowerState::On).act, PowerAction::ForceRestart);
}

TEST_F(PowerPlans, AHostThatIsOffIsSwitchedOnForAReboot) {
  machine.reboot = {.id = "r1", .phase = "Rebooting", .message = {}, .began = now, .boot = "b", .silent = true};
  EXPECT_EQ(look(PowerState::Off).act, PowerAction::On);
  now += seconds(10);
  EXPECT_FALSE(look(PowerState::On).act);  // not restarted while it boots
}

TEST_F(PowerPlans, AnAgentThatDoesNotRebootIsHelpedAfterAWhile) {
  machine.reboot = {.id = "r1", .phase = "Rebooting", .message = {}, .began = now, .boot = "b"};
  now += kRebootByAgent - seconds(1);
  const PowerPlan plan = look(PowerState::On);
  EXPECT_FALSE(plan.act);
  EXPECT_LE(plan.look_again_after, seconds(1));
  now += seconds(1);
  EXPECT_FALSE(look(PowerState::On).act) << "its agent may report in a moment";
  now += seconds(60);
  EXPECT_EQ(look(PowerState::On).act, PowerAction::ForceRestart);
}

TEST_F(PowerPlans, WhatHasBootedSinceIsNotRestarted) {
  machine.reboot = {.id = "r1", .phase = "Rebooting", .message = {}, .began = now, .boot = "b", .silent = true};
  now += std::chrono::hours(1);
  for (int i = 0; i < 3; ++i, now += seconds(60)) EXPECT_FALSE(plan_power(machine, {.state = PowerState::On, .why = {}, .lease = "t", .boot = "b2"}, now).act);
}

TEST_F(PowerPlans, ARecordIsReadAsItWasWritten) {
  machine.spec.power = api::Power::Off;
  look(PowerState::On);
  look(PowerState::Off);
  machine.power.restart = "r";
  machine.power.restarts = 1;
  const api::Machine read = api::read_machine(Json::object({{"metadata", Json::object({{"name", "a"}})}, {"spec", Json::object({{"host", Json::object()}})}, {"status", Json::object({{"power", api::power_json(machine.power)}})}}));
  EXPECT_EQ(read.power, machine.power);
}

// A host with a board that may lie, be silent, be switched by hand, with servers that die after the record: whenever the host is declared dead, it is.
TEST(PowerProperty, NoHostThatReportsIsDeclaredDead) {
  int times = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const auto chance = [&](int percent) { return static_cast<int>(random() % 100) < percent; };
    api::Machine machine;
    machine.name = "a";
    machine.spec.host.emplace().bmc = api::Bmc{.host = "b"};
    Instant now{std::chrono::hours(500'000)}, renewed = now;
    bool on = true, lies = false, declared = false;
    for (int step = 0; step < 400; ++step) {
      now += seconds(1);
      if (on && now - renewed >= seconds(10)) renewed = now;
      if (chance(1)) lies = !lies;
      if (chance(1)) now += seconds(random() % 100);  // nobody is there, and hears nothing
      if (chance(1)) on = !on, renewed = on ? now : renewed;
      if (chance(2)) machine.spec.power = chance(50) ? api::Power::On : api::Power::Off;
      if (!chance(30)) continue;
      const bool silent = chance(5);
      const PowerSeen seen{.state = silent ? std::nullopt : std::optional(lies || !on ? PowerState::Off : PowerState::On), .why = "silent", .lease = print_time(renewed), .ready = on, .declared = declared};
      const PowerPlan plan = plan_power(machine, seen, now);
      if (plan.in_service && *plan.in_service) declared = false;
      machine.power = plan.record;
      if (chance(10)) continue;  // the server dies after the record
      if (plan.act && !lies) {
        on = *plan.act == PowerAction::On || *plan.act == PowerAction::ForceRestart;
        if (on) renewed = now;
      }
      if (plan.in_service && !*plan.in_service) {
        declared = true;
        ++times;
        EXPECT_FALSE(on) << "seed " << seed << " step " << step;
        if (on) return;
      }
    }
  }
  EXPECT_GT(times, 100);
}

TEST(HostPower, ThePhaseTellsOfIt) {
  api::Machine machine;
  machine.name = "a";
  machine.host.key = "k";
  machine.spec.host.emplace().bmc = api::Bmc{.host = "b"};
  const auto node = [](const char* ready) { return *kube::parse_json(std::string(R"({"metadata": {"name": "a", "labels": {"fairlead.dev/host": "true"}}, "status": {"nodeInfo": {"bootID": "b1"}, "conditions": [{"type": "Ready", "status": ")") + ready + "\", \"message\": \"m\"}]}}"); };
  const Json silent = node("False"), well = node("True");
  const Instant now{std::chrono::hours(500'000)};
  const auto plan = [&](const Json& at) { return plan_host(machine, {.node = &at, .pods = {}}, now); };
  machine.spec.power = api::Power::Off;
  EXPECT_EQ(plan(well).phase, "PoweringOff");
  machine.power = {.state = "Off", .want = "Off", .message = "off it is"};
  EXPECT_EQ(plan(silent).phase, "Off");
  EXPECT_EQ(plan(silent).why, "off it is");
  machine.spec.reboot = "r";
  EXPECT_EQ(plan(silent).note->phase, "Refused");
  machine.spec.power = api::Power::On;
  EXPECT_EQ(plan(silent).note->phase, "Rebooting");
  EXPECT_TRUE(plan(silent).note->silent);
  EXPECT_FALSE(plan(well).note->silent);
  machine.spec.host->bmc.reset();
  EXPECT_EQ(plan(silent).note->phase, "Refused");
}

}  // namespace
}  // namespace fairlead::fleet
