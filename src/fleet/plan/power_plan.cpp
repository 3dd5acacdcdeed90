// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/power_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::fleet {

using api::Power;

namespace {

using std::chrono::seconds;
constexpr seconds kAtWork{5}, kSendAgain{30}, kStartAgain{60}, kNotKnown{30}, kSilent{60}, kSeldom{300}, kIdle{600}, kSurelyOff{10};
constexpr std::chrono::minutes kRestartAgain{14};
constexpr seconds kHear{60};

class PowerPlanner {
 public:
  PowerPlanner(const api::Machine& machine, const PowerSeen& seen, Instant now) : machine_(machine), seen_(seen), now_(now) {}

  PowerPlan run() {
    const std::string board = fmt::format("{}:{} {}", machine_.spec.host->bmc->host, machine_.spec.host->bmc->port, machine_.spec.host->bmc->system);
    api::PowerRecord& record = plan_.record = machine_.power.board == board ? machine_.power : api::PowerRecord{};
    record.board = board;
    record.message.clear();
    record.generation = machine_.generation;
    record.state = seen_.state ? name(*seen_.state) : "Unknown";
    plan_.look_again_after = !seen_.state ? kSeldom : seen_.ready ? kIdle : kSilent;
    if (!seen_.state) record.message = seen_.why;
    const bool off = machine_.spec.power == Power::Off;
    if (off) switch_off();
    else switch_on();
    look_for_death();
    if (!record.failed.empty() && !plan_.act && !record.proven) record.message = record.failed;
    if (record.proven ? !seen_.declared || seen_.ready : seen_.declared) plan_.in_service = !record.proven;
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
    plan_.record.failed.clear();
    ++plan_.record.tries;
    plan_.act = action;
    plan_.look_again_after = kAtWork;
  }
  void look_soon() { plan_.look_again_after = seen_.state ? kAtWork : kNotKnown; }

  void switch_off() {
    api::PowerRecord& record = plan_.record;
    if (record.want != "Off") begin("Off");
    // Boards say Off for a moment when they start anew themselves.
    if (seen_.state == PowerState::Off && record.off_since && now_ - *record.off_since >= kSurelyOff) record.done = true;
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
    // It has booted since; that its Node is not ready is another matter.
    if (!seen_.boot.empty() && seen_.boot != asked.boot) return false;
    if (!asked.silent && now_ - *asked.began < kRebootByAgent) {
      plan_.look_again_after = std::min<std::chrono::nanoseconds>(plan_.look_again_after, *asked.began + kRebootByAgent - now_);
      return false;
    }
    if (record.restart != asked.id) {
      record.restart = asked.id;
      record.restart_began = now_;
      record.restarts = 0;
      record.failed.clear();
      // One that was switched on since it was asked for is booting.
      if (record.act != name(PowerAction::On) || !record.acted || *record.acted < *asked.began) record.act.clear(), record.acted.reset();
    }
    look_soon();
    if (!seen_.state) return true;
    // Whoever was away meanwhile has not heard from its agent yet.
    if (now_ - *asked.began > kHear && now_ < record.restart_began.value_or(now_) + kHear) {
      record.message = "its BMC restarts it if its agent does not report";
      return true;
    }
    if (seen_.state == PowerState::Off) {
      starting_ = true;
      record.message = "it is switched on, for a reboot";
      if (record.act != name(PowerAction::On) || waited(kStartAgain)) send(PowerAction::On);
    } else if (seen_.state == PowerState::On && record.act != name(PowerAction::On) && ((record.restarts == 0 && waited(kStartAgain)) || (record.restarts == 1 && waited(kRestartAgain)))) {
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
    // Of a host that never reported, silence says nothing.
    if (starting_ || seen_.state != PowerState::Off || seen_.lease.empty()) {
      const std::optional<Instant> since = record.off_since;
      record.off_since.reset();
      record.off_looked.reset();
      record.off_lease.clear();
      record.proven = record.disbelieved = false;
      // Of one that was never there it is enough that it says so.
      if (seen_.state == PowerState::Off && !starting_) record.off_since = since.value_or(now_);
      return;
    }
    const bool first = !record.off_since, reported = !first && record.off_lease != seen_.lease;
    const bool gap = !record.proven && record.off_looked && (now_ < *record.off_looked || now_ - *record.off_looked > kLookGap);
    if (first || reported || gap || (!record.proven && !record.off_looked)) {
      record.off_since = now_;
      record.off_lease = seen_.lease;
      record.proven = false;
      record.disbelieved = record.disbelieved || reported;
    } else if (now_ - *record.off_since >= kProofOfDeath) {
      record.proven = true;
      record.disbelieved = false;
    }
    if (record.proven) record.off_looked.reset();
    else record.off_looked = now_;
    if (!record.proven && !reported) plan_.look_again_after = std::min<std::chrono::nanoseconds>(plan_.look_again_after, kAtWork);
    else if (reported) plan_.look_again_after = kSilent;
    if (record.disbelieved) record.message = "its BMC says Off, but its agent has reported since: that is not believed";
    else if (record.message.empty()) record.message = record.proven ? "it is off, and its agent reports no more: nothing runs there" : "its BMC says Off; whether its agent is silent is waited for";
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
