// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/host_plan.h"

#include <fmt/format.h>

#include "api/join.h"
#include "fleet/plan/power_plan.h"
#include "kube/object.h"

namespace fairlead::fleet {

using kube::Json;

namespace {

const std::string& boot_of(const Json* node) {
  static const std::string none;
  return node == nullptr ? none : (*node)["status"]["nodeInfo"]["bootID"].string();
}

void tell_waiting(HostPlan& plan, const api::Machine& machine, Instant now) {
  const api::HostSpec& host = *machine.spec.host;
  plan.phase = "Waiting";
  if (host.token_hash.empty() || !host.token_expires) {
    plan.why = fmt::format("no token has been given out: fairlead node add {}", machine.name);
  } else if (now >= *host.token_expires) {
    plan.why = fmt::format("its token ended at {} and nobody had joined: fairlead node add {}", print_time(*host.token_expires), machine.name);
  } else {
    plan.why = fmt::format("`fairlead join` is to be run on it before {}", print_time(*host.token_expires));
    plan.look_again_after = *host.token_expires - now;
  }
}

// That nobody runs there what is started elsewhere next can be said only by who was there.
void plan_removal(HostPlan& plan, const api::Machine& machine, const HostView& view) {
  plan.phase = "Removing";
  plan.why = "it was deleted";
  if (!is_node_of(machine, view.node) || machine.spec.host->gone) {
    plan.forget = true;
  } else if (!view.pods) {
    plan.why = "it was deleted; which pods are bound to it is not known";
  } else if (!view.pods->empty()) {
    plan.why = fmt::format("it was deleted and is let in no more; {} pods are bound to it ({}{}), which may run on: `fairlead leave` there, then `fairlead node remove {} --gone`", view.pods->size(), view.pods->front(), view.pods->size() > 1 ? ", ..." : "", machine.name);
  } else {
    plan.forget = true;
  }
  if (!plan.forget) plan.look_again_after = std::chrono::seconds(5);
}

}  // namespace

bool is_node_of(const api::Machine& machine, const Json* node) {
  return node != nullptr && !machine.host.key.empty() && (*node)["metadata"]["labels"][api::kHostLabel].string() == "true";
}

HostPlan plan_host(const api::Machine& machine, const HostView& view, Instant now) {
  HostPlan plan;
  const Json* const node = is_node_of(machine, view.node) ? view.node : nullptr;
  if (machine.deleting) {
    plan_removal(plan, machine, view);
    return plan;
  }
  if (!view.hosts_join) {
    plan.phase = "Refused";
    plan.why = "hosts join the embedded engine; to this cluster they come by its own means";
    return plan;
  }
  const bool ready = node != nullptr && kube::condition_is_true(*node, "Ready");
  if (!machine.spec.reboot.empty() && machine.spec.reboot != machine.reboot.id && machine.reboot.phase != "Rebooting") {
    api::RebootRecord& note = plan.note.emplace(api::RebootRecord{.id = machine.spec.reboot, .phase = "Rebooting", .message = "its agent reboots it"});
    note.boot = boot_of(node);
    // What nobody has seen begin, nobody can see end.
    if (machine.spec.power == api::Power::Off) {
      note.phase = "Refused";
      note.message = "spec.power is Off: switch it on";
    } else if (note.boot.empty() || (!ready && !machine.spec.host->bmc)) {
      note.phase = "Refused";
      note.message = "it is silent: nobody there would hear of it; reboot it by its own means, or say where its BMC is (fairlead node bmc)";
    } else if (!ready) {
      note.silent = true;
      note.message = "its BMC restarts it";
    }
  }
  plan.rebooted = !plan.note && machine.reboot.phase == "Rebooting" && ready && !boot_of(node).empty() && boot_of(node) != machine.reboot.boot;
  if (machine.reboot.phase == "Rebooting" && !plan.rebooted && machine.reboot.began) {
    if (now - *machine.reboot.began >= kLongestReboot) plan.not_rebooted = fmt::format("it has not booted anew within {} minutes: look at it, and at its agent's log", kLongestReboot.count());
    else plan.look_again_after = *machine.reboot.began + kLongestReboot - now;
  }
  if (!machine.problems.empty()) {
    plan.phase = "Refused";
    plan.why = machine.problems.front();
    if (machine.problems.size() > 1) plan.why += fmt::format(" (and {} more)", machine.problems.size() - 1);
  } else if (machine.host.key.empty()) {
    tell_waiting(plan, machine, now);
  } else if (node == nullptr && view.node != nullptr) {
    plan.phase = "Refused";
    plan.why = fmt::format("there is a node {} that did not join by a token", machine.name);
  } else if (node == nullptr) {
    plan.phase = "Starting";
    plan.why = fmt::format("it has joined from {}; its agent has not reported yet", machine.host.address);
  } else if (machine.spec.power == api::Power::Off) {
    const bool off = machine.power.want == "Off" && machine.power.state == name(PowerState::Off);
    plan.phase = off ? "Off" : "PoweringOff";
    plan.why = machine.power.message.empty() ? "spec.power is Off" : machine.power.message;
  } else if (!ready && machine.power.state == name(PowerState::Off)) {
    plan.phase = "Off";
    plan.why = machine.power.message;
  } else if (!ready) {
    const Json* condition = kube::find_condition(*node, "Ready");
    plan.phase = "Silent";
    plan.why = condition == nullptr ? "its agent has told nothing of itself" : fmt::format("its Node is not ready: {}", (*condition)["message"].string());
    if (!machine.power.message.empty()) plan.why += "; " + machine.power.message;
  } else {
    plan.phase = "Running";
    plan.why = "its agent reports";
  }
  return plan;
}

}  // namespace fairlead::fleet
