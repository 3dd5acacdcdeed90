// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/power_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::fleet {

using api::Power;

namespace {

using std::chrono::seconds;
constexpr seconds kAtWork{5}, kSendAgain{30}, kStartAgain{60}, kNotKnown{30}, kSilent{60}, kIdle{600};
constexpr std::chrono::minutes kRestartAgain{14};

class PowerPlanner {
 public:
  PowerPlanner(const api::Machine& machine, const PowerSeen& seen, Instant now) : machine_(machine), seen_(seen), now_(now) {}

  PowerPlan run() {
    api::PowerRecord& record = plan_.record = machine_.power;
    record.message.clear();
    record.generation = machine_.generation;
    record.state = seen_.state ? name(*seen_.state) : "Unknown";
    plan_.look_again_after = !seen_.state ? kNotKnown : seen_.ready ? kIdle : kSilent;
    if (!seen_.state) record.message = seen_.why;
    const bool off = machine_.spec.power == Power::Off;
    if (off) switch_off();
    else switch_on();
    look_for_death();
    if (record.proven != seen_.declared) plan_.in_service = !record.proven;
    return std::move(plan_);
  }

 private:
  void begin(const char* want) {
    plan_.record.want = want;
    plan_.record.since = now_;
    plan_.record.done = false;
    plan_.record.tries = 0;
    plan_.record.act.clear();
    plan_.record.acted.reset();
  }
  bool waited(seconds long_enough) const { return !plan_.record.acted || now_ - *plan_.record.acted >= long_enough; }
  void send(PowerAction action) {
    plan_.record.act = name(action);
    plan_.record.acted = now_;
    ++plan_.record.tries;
    plan_.act = action;
    plan_.look_again_after = kAtWork;
  }
  void look_soon() { plan_.look_again_after = seen_.state ? kAtWork : kNotKnown; }

  void switch_off() {
    api::PowerRecord& record = plan_.record;
    if (record.want != "Off") begin("Off");
    if (seen_.state == PowerState::Off) record.done = true;
    if (record.done) {
      // Somebody stands before it: the power is not taken from under his hands.
      if (seen_.state == PowerState::On) record.message = "it was switched off, and somebody switched it on: that stays so";
      return;
    }
    look_soon();
    if (seen_.state != PowerState::On) {
      if (seen_.state) record.message = "its power goes off";
      return;
    }
    const bool asks = machine_.spec.host->shutdown > seconds::zero() && now_ < *record.since + machine_.spec.host->shutdown;
    const PowerAction action = asks ? PowerAction::GracefulShutdown : PowerAction::ForceOff;
    record.message = asks ? fmt::format("its system is asked to end, until {}", print_time(*record.since + machine_.spec.host->shutdown)) : "its power is cut";
    if (record.act != name(action) || (!asks && waited(kSendAgain))) send(action);
  }

  void switch_on() {
    api::PowerRecord& record = plan_.record;
    if (record.want == "Off") begin("On");
    if (record.want == "On" && !record.done) {
      starting_ = true;
      look_soon();
      record.done = seen_.state == PowerState::On;
      if (seen_.state) record.message = record.done ? "" : "its power goes on";
      if (seen_.state == PowerState::Off && (record.act != name(PowerAction::On) || waited(kStartAgain))) send(PowerAction::On);
      return;
    }
    if (restarts()) return;
    if (seen_.state == PowerState::Off) record.message = fmt::format("its power is off, and it was not switched off here: `fairlead node reboot {}` switches it on", machine_.name);
  }

  // Has a reboot become the BMC's business? Then what is due is done.
  bool restarts() {
    api::PowerRecord& record = plan_.record;
    const api::RebootRecord& asked = machine_.reboot;
    if (asked.phase != "Rebooting" || !asked.began) return false;
    if (!asked.silent && now_ - *asked.began < kRebootByAgent) {
      plan_.look_again_after = std::min<std::chrono::nanoseconds>(plan_.look_again_after, *asked.began + kRebootByAgent - now_);
      return false;
    }
    if (record.restart != asked.id) {
      record.restart = asked.id;
      record.restarts = 0;
      record.act.clear();
      record.acted.reset();
    }
    look_soon();
    if (!seen_.state) return true;
    if (seen_.state == PowerState::Off) {
      starting_ = true;
      record.message = "it is switched on, for a reboot";
      if (record.act != name(PowerAction::On) || waited(kStartAgain)) send(PowerAction::On);
    } else if (seen_.state == PowerState::On && record.act != name(PowerAction::On) && (record.restarts == 0 || (record.restarts == 1 && waited(kRestartAgain)))) {
      ++record.restarts;
      record.message = "it is restarted by its BMC";
      send(PowerAction::ForceRestart);
    } else {
      record.message = "it was restarted by its BMC; its agent has not reported yet";
    }
    return true;
  }

  void look_for_death() {
    api::PowerRecord& record = plan_.record;
    if (starting_ || seen_.state != PowerState::Off) {
      record.off_since.reset();
      record.off_lease.clear();
      record.proven = false;
      return;
    }
    if (!record.off_since) {
      record.off_since = now_;
      record.off_lease = seen_.lease;
      record.proven = false;
    } else if (record.off_lease != seen_.lease) {
      record.off_since = now_;
      record.off_lease = seen_.lease;
      record.proven = false;
      record.message = "its BMC says Off, but its agent has reported since: that is not believed";
    } else if (now_ - *record.off_since >= kProofOfDeath) {
      record.proven = true;
    }
    if (!record.proven) plan_.look_again_after = std::min<std::chrono::nanoseconds>(plan_.look_again_after, kAtWork);
    if (record.message.empty()) record.message = record.proven ? "it is off, and its agent reports no more: nothing runs there" : "its BMC says Off; whether its agent is silent is waited for";
  }

  const api::Machine& machine_;
  const PowerSeen& seen_;
  const Instant now_;
  bool starting_ = false;  // it is being switched on: what it is found to be is no proof any more
  PowerPlan plan_;
};

}  // namespace

const char* name(PowerState state) {
  switch (state) {
    case PowerState::On: return "On";
    case PowerState::Off: return "Off";
    case PowerState::Changing: return "Changing";
  }
  return "";
}
const char* name(PowerAction action) {
  switch (action) {
    case PowerAction::On: return "On";
    case PowerAction::ForceOff: return "ForceOff";
    case PowerAction::GracefulShutdown: return "GracefulShutdown";
    case PowerAction::ForceRestart: return "ForceRestart";
  }
  return "";
}

PowerPlan plan_power(const api::Machine& machine, const PowerSeen& seen, Instant now) { return PowerPlanner(machine, seen, now).run(); }

}  // namespace fairlead::fleet
