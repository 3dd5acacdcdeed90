// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/power_controller.h"

#include "api/join.h"
#include "base/encoding.h"
#include "base/log.h"
#include "fleet/control/out_of_service.h"

namespace fairlead::fleet {

using kube::Json;
namespace resources = kube::resources;

PowerController::PowerController(kube::KubeApi& api, PowerControl& control, const Clock& clock, PowerControllerOptions options) : api_(api), control_(control), clock_(clock), options_(std::move(options)) {}

std::vector<kube::Controller::Source> PowerController::sources() const {
  const auto machines = [](const kube::Change& change) -> std::vector<kube::ObjectKey> {
    const Json& machine = change.object();
    if (!machine["spec"]["host"]["bmc"].is_object() && !machine["status"].has("power")) return {};
    // Not what we write ourselves at each look.
    if (change.before && change.after && (*change.before)["spec"] == (*change.after)["spec"] && (*change.before)["status"]["reboot"] == (*change.after)["status"]["reboot"]) return {};
    return {kube::key_of(machine)};
  };
  // Only that a Node begins or ceases to be ready says something about power; it reports all the time.
  const auto hosts = [](const kube::Change& change) -> std::vector<kube::ObjectKey> {
    if (change.object()["metadata"]["labels"][api::kHostLabel].string() != "true") return {};
    if (change.before && change.after && kube::condition_is_true(*change.before, "Ready") == kube::condition_is_true(*change.after, "Ready")) return {};
    return {{"", kube::name_of(change.object())}};
  };
  return {{.resource = resources::machines, .space = "", .keys = machines}, {.resource = resources::nodes, .space = "", .keys = hosts}};
}

kube::Access power_access(const std::string& space) {
  return kube::Access()
      .may({"get", "list", "watch"}, resources::machines)
      .may({"update"}, resources::machines, "status")
      .may({"get", "list", "watch", "update"}, resources::nodes)
      .may({"update"}, resources::nodes, "status")
      .may({"get"}, resources::secrets, "", space)
      .may({"get"}, resources::leases, "", "kube-node-lease");
}

void PowerController::start(const kube::Caches& caches) {
  machines_ = &caches.of(resources::machines);
  nodes_ = &caches.of(resources::nodes);
}

Result<BmcAccess> PowerController::access_of(const api::Machine& machine) {
  BmcAccess out{.bmc = *machine.spec.host->bmc};
  auto secret = api_.get(resources::secrets, {options_.space, out.bmc.secret});
  if (!secret && secret.error().code == Code::NotFound) return fail(Code::NotFound, "there is no Secret " + options_.space + "/" + out.bmc.secret + " with username and password of its BMC");
  if (!secret) return pass(std::move(secret.error()), "read the Secret of its BMC");
  for (const auto& [key, into] : {std::pair("username", &out.user), std::pair("password", &out.password)}) {
    auto value = parse_base64((*secret)["data"][key].string());
    if (!value || value->empty()) return fail(Code::Invalid, "Secret " + options_.space + "/" + out.bmc.secret + " has no " + key);
    *into = std::move(*value);
  }
  return out;
}

Result<PowerSeen> PowerController::look(const api::Machine& machine, const Result<BmcAccess>& access) {
  PowerSeen out;
  if (!access) {
    out.why = access.error().message;
  } else if (auto state = control_.state(*access); state) {
    out.state = *state;
  } else {
    out.why = state.error().message;
  }
  const auto lease = api_.get(resources::leases, {"kube-node-lease", machine.name});
  if (!lease && lease.error().code != Code::NotFound) return pass(lease.error(), "read its Lease");
  if (lease) out.lease = (*lease)["spec"]["renewTime"].string();
  if (const auto node = nodes_->get({"", machine.name})) {
    out.ready = kube::condition_is_true(*node, "Ready");
    out.boot = (*node)["status"]["nodeInfo"]["bootID"].string();
    out.declared = is_declared_out_of_service(*node);
  }
  return out;
}

Result<void> PowerController::forget(const std::string& name, Json object) {
  if (auto done = declare_out_of_service(api_, clock_, name, false); !done) return done;
  object.child("status").erase("power");
  if (auto done = api_.update_status(resources::machines, object); !done) return std::unexpected(std::move(done.error()));
  return {};
}

Result<kube::Next> PowerController::reconcile(const kube::ObjectKey& key) {
  auto object = machines_->get(key);
  if (!object) return kube::Next{};
  const api::Machine machine = api::read_machine(*object);
  if (!machine.spec.host) return kube::Next{};
  if (!machine.spec.host->bmc) {
    // What nobody can ask any more is not known any more.
    if (!(*object)["status"].has("power")) return kube::Next{};
    if (auto done = forget(machine.name, std::move(*object)); !done) return pass(std::move(done.error()), "forget the power of machine " + machine.name);
    return kube::Next{};
  }
  // What is not understood is not asked; what was proven before then ends.
  const Result<BmcAccess> access = machine.problems.empty() ? access_of(machine) : Result<BmcAccess>(fail(Code::Invalid, machine.problems.front()));
  const auto seen = look(machine, access);
  if (!seen) return std::unexpected(seen.error());
  PowerPlan plan = plan_power(machine, *seen, clock_.now());
  const auto in = [&](const char* doing) { return std::string(doing) + " machine " + machine.name; };
  if (plan.in_service && *plan.in_service)
    if (auto done = declare_out_of_service(api_, clock_, machine.name, false); !done) return pass(std::move(done.error()), in("take back what the node says of"));
  if (plan.record != machine.power) {
    object->child("status").set("power", api::power_json(plan.record));
    auto written = api_.update_status(resources::machines, *object);
    if (!written) return pass(std::move(written.error()), in("write down the power of"));
    object = std::move(*written);
  }
  if (plan.act) {
    log_info("power", {{"machine", machine.name}, {"action", fleet::name(*plan.act)}, {"why", plan.record.message}});
    // It is read again soon, and sent again if nothing came of it.
    if (auto done = control_.act(*access, *plan.act); !done) {
      log_warn("power not switched", {{"machine", machine.name}, {"action", fleet::name(*plan.act)}, {"error", done.error().message}});
      plan.record.message = plan.record.failed = done.error().message;
      // Not taken for certain, or not known to be: it is sent again in a minute.
      if (*plan.act == PowerAction::ForceRestart) --plan.record.restarts;
      object->child("status").set("power", api::power_json(plan.record));
      if (auto told = api_.update_status(resources::machines, *object); !told) log_warn("machine status not written", {{"machine", machine.name}, {"error", told.error().message}});
    }
  }
  if (plan.in_service && !*plan.in_service) {
    log_info("machine is off for certain", {{"machine", machine.name}, {"since", plan.record.off_since ? print_time(*plan.record.off_since) : ""}});
    if (auto done = declare_out_of_service(api_, clock_, machine.name, true, "its power is off, by its BMC"); !done) return pass(std::move(done.error()), in("say of its node that it is off:"));
  }
  return kube::Next{plan.look_again_after};
}

}  // namespace fairlead::fleet
