// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/machine_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::fleet {

using api::Link;
using api::Power;

const char* name(Step step) {
  switch (step) {
    case Step::Start: return "start";
    case Step::Connect: return "connect";
    case Step::Cut: return "cut";
    case Step::Heal: return "heal";
    case Step::Kill: return "kill";
    case Step::Stop: return "stop";
    case Step::Remove: return "remove";
    case Step::Forget: return "forget";
  }
  return "?";
}

namespace {

MachinePlan plan_removal(const Observation& seen) {
  MachinePlan plan{.steps = {}, .phase = "Removing", .why = "it was deleted", .look_again_after = {}};
  if (seen.process) plan.steps.push_back(Step::Stop);
  if (seen.process || seen.leftovers || seen.wire != Wire::None) plan.steps.push_back(Step::Remove);
  plan.steps.push_back(Step::Forget);
  return plan;
}

// The steps that bring the link of a living node to what is asked.
void plan_link(MachinePlan& plan, Link asked, Wire is) {
  if (is == Wire::None) {
    plan.steps.push_back(Step::Connect);
    is = Wire::Up;
  }
  if (asked == Link::Cut && is == Wire::Up) plan.steps.push_back(Step::Cut);
  if (asked == Link::Connected && is == Wire::Cut) plan.steps.push_back(Step::Heal);
}

// The process that the request is to end is the one that runs: no other is stopped for it, whatever happened since.
bool to_reboot(const api::Machine& machine, const Observation& seen) {
  return machine.reboot.phase == "Rebooting" && seen.process && seen.process->pid == machine.reboot.pid && seen.process->start_ticks == machine.reboot.start_ticks;
}

}  // namespace

std::optional<api::RebootRecord> note_reboot(const api::Machine& machine, const Observation& seen) {
  if (machine.deleting || !machine.problems.empty() || machine.spec.reboot.empty() || machine.spec.reboot == machine.reboot.id || machine.reboot.phase == "Rebooting") return std::nullopt;
  api::RebootRecord out{.id = machine.spec.reboot, .phase = "Rebooting", .message = seen.process ? "its first process is stopped, and it is started again" : "it did not run, and is started"};
  if (machine.spec.power == Power::Off) {
    out.phase = "Refused";
    out.message = "spec.power is Off: switch it on";
    return out;
  }
  if (seen.process) out.pid = seen.process->pid, out.start_ticks = seen.process->start_ticks;
  return out;
}

bool has_rebooted(const api::Machine& machine, const Observation& seen) { return machine.reboot.phase == "Rebooting" && seen.process && !to_reboot(machine, seen); }

MachinePlan plan_machine(const api::Machine& machine, const Observation& seen, Instant now, const MachinePlanOptions& options) {
  if (machine.deleting) return plan_removal(seen);

  if (!machine.problems.empty()) {
    // What runs goes on: a mistake in an edit must not be a power cut.
    std::string why = machine.problems.front();
    if (machine.problems.size() > 1) why += fmt::format(" (and {} more)", machine.problems.size() - 1);
    return {.steps = {}, .phase = "Refused", .why = std::move(why), .look_again_after = {}};
  }

  if (machine.spec.power == Power::Off) {
    MachinePlan plan{.steps = {}, .phase = "Off", .why = "spec.power is Off", .look_again_after = {}};
    if (seen.process) plan.steps.push_back(Step::Kill);
    return plan;
  }

  MachinePlan plan;
  if (!seen.process) {
    if (seen.started_at && now >= *seen.started_at && now - *seen.started_at < options.between_starts) {
      plan.phase = "Pending";
      plan.why = "its first process ended just after it was started; starting it again in a moment";
      plan.look_again_after = *seen.started_at + options.between_starts - now;
      return plan;
    }
    plan.steps.push_back(Step::Start);
    plan_link(plan, machine.spec.link, Wire::None);
  } else if (to_reboot(machine, seen)) {
    plan.steps = {Step::Stop, Step::Start};
    plan_link(plan, machine.spec.link, Wire::None);
  } else {
    plan_link(plan, machine.spec.link, seen.wire);
  }
  plan.phase = machine.spec.link == Link::Cut ? "Cut" : "Running";
  plan.why = machine.spec.link == Link::Cut ? "spec.link is Cut" : "its first process runs and its link is up";
  return plan;
}

}  // namespace fairlead::fleet
