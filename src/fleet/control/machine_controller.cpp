// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/machine_controller.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/join.h"
#include "api/instance_types.h"
#include "base/log.h"
#include "fleet/control/out_of_service.h"

namespace fairlead::fleet {

using kube::Json;
namespace resources = kube::resources;

MachineController::MachineController(kube::KubeApi& api, LocalHost& host, const Clock& clock, MachineControllerOptions options)
    : api_(api), host_(host), clock_(clock), options_(std::move(options)) {}

std::vector<kube::Controller::Source> MachineController::sources() const {
  const auto hosts = [](const kube::Change& change) -> std::vector<kube::ObjectKey> {
    if (change.object()["metadata"]["labels"][api::kHostLabel].string() != "true") return {};
    return {{"", kube::name_of(change.object())}};
  };
  return {{.resource = resources::machines, .space = "", .keys = kube::key_itself}, {.resource = resources::nodes, .space = "", .keys = hosts}};
}

kube::Access machine_access() {
  return kube::Access()
      .may({"get", "list", "watch", "update"}, resources::machines)
      .may({"update"}, resources::machines, "status")
      .may({"get", "list", "watch", "update", "delete"}, resources::nodes)
      .may({"update"}, resources::nodes, "status")
      .may({"list"}, resources::pods)
      .may({"get", "delete"}, resources::leases, "", "kube-node-lease");
}

void MachineController::start(const kube::Caches& caches) {
  machines_ = &caches.of(resources::machines);
  nodes_ = &caches.of(resources::nodes);
}

Result<kube::Next> MachineController::reconcile(const kube::ObjectKey& key) {
  auto object = machines_->get(key);
  if (!object) return kube::Next{};
  const api::Machine machine = api::read_machine(*object);
  if (machine.deleting && !machine.finalizer) return kube::Next{};

  if (!machine.deleting && !machine.finalizer) {
    kube::add_finalizer(*object, api::kMachineFinalizer);
    if (auto done = api_.update(resources::machines, *object); !done) return pass(std::move(done.error()), "add our finalizer to machine " + machine.name);
    return kube::Next{};
  }
  if (machine.seat.index == 0 && !machine.deleting) {
    // The seat is written down before anything is made with it; the change of status brings us back.
    if (auto done = give_seat(*object); !done) return pass(std::move(done.error()), "give machine " + machine.name + " a seat");
    return kube::Next{};
  }

  if (machine.spec.host) return reconcile_host(machine, std::move(*object));

  if (!machine.deleting)
    if (auto done = host_.ready(); !done) {
      const MachinePlan waiting{.steps = {}, .phase = "Pending", .why = "the network of the local nodes is not ready", .look_again_after = {}};
      if (auto told = write_status(*object, waiting, {}, done.error()); !told) log_warn("machine status not written", {{"machine", machine.name}, {"error", told.error().message}});
      return pass(std::move(done.error()), "prepare the host for machine " + machine.name);
    }
  auto seen = host_.observe(machine.name, machine.seat);
  if (!seen) return pass(std::move(seen.error()), "look at machine " + machine.name);
  if (const auto record = note_reboot(machine, *seen)) {
    // Before anything is stopped; the change of status brings us back.
    if (auto done = write_down(*record, std::move(*object)); !done) return pass(std::move(done.error()), "write down that machine " + machine.name + " is to reboot");
    return kube::Next{};
  }
  const MachinePlan plan = plan_machine(machine, *seen, clock_.now(), options_.plan);

  std::optional<Error> failed;
  for (const Step step : plan.steps) {
    log_info("machine step", {{"machine", machine.name}, {"step", fleet::name(step)}, {"why", plan.why}});
    if (auto done = do_step(step, machine, *object); !done) {
      failed = std::move(done.error()).in(fmt::format("{} machine {}", fleet::name(step), machine.name));
      break;
    }
    if (step == Step::Forget) return kube::Next{};
  }
  if (!plan.steps.empty()) {
    seen = host_.observe(machine.name, machine.seat);
    if (!seen) return pass(std::move(seen.error()), "look at machine " + machine.name);
  }
  if (!failed && has_rebooted(machine, *seen)) {
    Json& reboot = object->child("status").child("reboot");
    reboot.set("phase", "Done").set("ended", print_time(clock_.now())).set("message", fmt::format("first process {} in place of {}", seen->process->pid, machine.reboot.pid));
    log_info("machine rebooted", {{"machine", machine.name}, {"request", machine.reboot.id}});
  }
  // Dead for certain: the host saw it. Whoever waits for proof need not wait for silence.
  if (!failed && !machine.deleting && !seen->process && (*object)["status"]["starts"].integer() > 0)
    if (auto told = declare_out_of_service(api_, clock_, machine.name, true, "its first process is gone"); !told) return pass(std::move(told.error()), "say that machine " + machine.name + " is off");
  if (auto done = write_status(std::move(*object), plan, *seen, failed); !done) return pass(std::move(done.error()), "write the status of machine " + machine.name);
  if (failed) return std::unexpected(std::move(*failed));
  if (plan.look_again_after) return kube::Next{plan.look_again_after};
  return kube::Next{options_.look_again};
}

Result<kube::Next> MachineController::reconcile_host(const api::Machine& machine, Json object) {
  std::optional<Json> node;
  const auto view = look_at(machine, node);
  if (!view) return std::unexpected(view.error());
  const HostPlan plan = plan_host(machine, *view, clock_.now());
  if (plan.forget) {
    if (auto done = forget(machine, object, is_node_of(machine, view->node)); !done) return pass(std::move(done.error()), "forget machine " + machine.name);
    log_info("host removed", {{"machine", machine.name}});
    return kube::Next{};
  }
  if (plan.note) {
    // Before anybody acts on it; the change of status brings us back.
    if (auto done = write_down(*plan.note, std::move(object)); !done) return pass(std::move(done.error()), "write down that machine " + machine.name + " is to reboot");
    return kube::Next{};
  }
  if (plan.rebooted) {
    object.child("status").child("reboot").set("phase", "Done").set("ended", print_time(clock_.now())).set("message", "it has booted since");
    log_info("machine rebooted", {{"machine", machine.name}, {"request", machine.reboot.id}});
  } else if (!plan.not_rebooted.empty()) {
    object.child("status").child("reboot").set("phase", "Refused").set("ended", print_time(clock_.now())).set("message", plan.not_rebooted);
    log_warn("machine did not reboot", {{"machine", machine.name}, {"request", machine.reboot.id}, {"why", plan.not_rebooted}});
  }
  if (is_node_of(machine, view->node))
    if (auto done = dress(machine, *view->node, object); !done) return pass(std::move(done.error()), "give the node of machine " + machine.name + " its labels");
  Json& status = object.child("status");
  if (!machine.host.address.empty()) status.set("address", machine.host.address);
  const MachinePlan told{.steps = {}, .phase = plan.phase, .why = plan.why, .look_again_after = {}};
  if (auto done = write_status(std::move(object), told, {}, std::nullopt); !done) return pass(std::move(done.error()), "write the status of machine " + machine.name);
  return kube::Next{plan.look_again_after ? *plan.look_again_after : options_.look_again};
}

Result<HostView> MachineController::look_at(const api::Machine& machine, std::optional<Json>& node) {
  HostView out{.hosts_join = options_.hosts_join};
  node = nodes_->get({"", machine.name});
  if (!machine.deleting) {
    if (node) out.node = &*node;
    return out;
  }
  // What is taken away is looked at where it is, not where it was seen last.
  auto now = api_.get(resources::nodes, {"", machine.name});
  if (!now && now.error().code != Code::NotFound) return pass(std::move(now.error()), "read its Node");
  node = now ? std::optional(std::move(*now)) : std::nullopt;
  if (node) out.node = &*node;
  auto pods = api_.list(resources::pods, "", {.field_selector = "spec.nodeName=" + machine.name});
  if (!pods) return pass(std::move(pods.error()), "list its pods");
  out.pods.emplace();
  for (const Json& pod : pods->items)
    if (const std::string& phase = pod["status"]["phase"].string(); pod["spec"]["nodeName"].string() == machine.name && phase != "Succeeded" && phase != "Failed") out.pods->push_back(kube::key_of(pod).text());
  return out;
}

Result<void> MachineController::dress(const api::Machine& machine, const Json& node, Json& object) {
  std::map<std::string, std::string> wanted = machine.spec.labels;
  if (!machine.spec.host->instance_type.empty()) wanted[api::kInstanceTypeLabel] = machine.spec.host->instance_type;
  Json given = Json::object();
  for (const auto& [key, value] : wanted) given.set(key, value);
  Json& status = object.child("status");
  if (status["labels"] == given && status["nodeUID"].string() == kube::uid_of(node)) return {};
  const Json before = status["nodeUID"].string() == kube::uid_of(node) ? status["labels"] : Json();
  Json dressed = node;
  Json& labels = dressed.child("metadata").child("labels");
  for (const auto& [key, value] : before.members())
    if (!wanted.contains(key)) labels.erase(key);
  for (const auto& [key, value] : wanted) labels.set(key, value);
  if (dressed != node)
    if (auto done = api_.update(resources::nodes, dressed); !done) return std::unexpected(std::move(done.error()));
  status.set("labels", std::move(given)).set("nodeUID", kube::uid_of(node));
  return {};
}

Result<void> MachineController::give_seat(const Json& object) {
  api::Seat seat;
  {
    std::lock_guard lock(mutex_);
    std::set<int> taken;
    std::set<std::string> uids;
    for (const Json& other : machines_->list("")) {
      taken.insert(static_cast<int>(other["status"]["index"].integer()));
      uids.insert(kube::uid_of(other));
    }
    std::erase_if(given_, [&](const auto& entry) { return !uids.contains(entry.first); });
    for (const auto& [uid, index] : given_)
      if (uid != kube::uid_of(object)) taken.insert(index);
    const auto before = given_.find(kube::uid_of(object));
    if (before != given_.end()) {
      seat = seat_of(options_.ranges, before->second);
    } else {
      auto chosen = choose_seat(options_.ranges, taken);
      if (!chosen) return std::unexpected(std::move(chosen.error()));
      seat = *chosen;
      given_[kube::uid_of(object)] = seat.index;
    }
  }
  Json copy = object;
  Json& status = copy.child("status");
  if (!status.is_object()) status = Json::object();
  const bool host = object["spec"]["host"].is_object();
  status.set("phase", "Pending").set("node", kube::name_of(object)).set("index", seat.index).set("podCIDR", seat.pod_cidr);
  // A host brings its address with it.
  if (!host) status.set("address", seat.address);
  if (!host && !seat.address6.empty()) status.set("addresses", Json::array({seat.address, seat.address6})).set("podCIDRs", Json::array({seat.pod_cidr, seat.pod_cidr6}));
  if (auto done = api_.update_status(resources::machines, copy); !done) return std::unexpected(std::move(done.error()));
  return {};
}

Result<void> MachineController::write_down(const api::RebootRecord& record, Json object) {
  constexpr std::size_t kKept = 20;
  const std::string now = print_time(clock_.now());
  Json& status = object.child("status");
  Json noted = Json::object({{"id", record.id}, {"by", object["spec"]["reboot"]["by"].string()}, {"phase", record.phase}, {"message", record.message}, {"began", now}});
  if (record.phase != "Refused") {
    if (record.boot.empty()) noted.set("was", Json::object({{"pid", record.pid}, {"startTicks", static_cast<std::int64_t>(record.start_ticks)}}));
    else noted.set("was", record.silent ? Json::object({{"boot", record.boot}, {"silent", true}}) : Json::object({{"boot", record.boot}}));
    Json last = Json::array();
    const auto& before = status["reboots"].items();
    for (std::size_t i = before.size() - std::min(before.size(), kKept - 1); i < before.size(); ++i) last.push(before[i]);
    last.push(Json::object({{"id", record.id}, {"at", now}}));
    status.set("reboots", std::move(last));
  }
  status.set("reboot", std::move(noted));
  log_info("machine is to reboot", {{"machine", kube::name_of(object)}, {"request", record.id}, {"by", object["spec"]["reboot"]["by"].string()}, {"what", record.phase}});
  if (auto done = api_.update_status(resources::machines, object); !done) return std::unexpected(std::move(done.error()));
  return {};
}

Result<void> MachineController::do_step(Step step, const api::Machine& machine, Json& object) {
  switch (step) {
    case Step::Start: {
      if (auto told = declare_out_of_service(api_, clock_, machine.name, false); !told) return std::unexpected(std::move(told.error()));
      auto started = host_.start(machine);
      if (!started) return std::unexpected(std::move(started.error()));
      Json& status = object.child("status");
      status.set("starts", status["starts"].integer() + 1);
      return {};
    }
    case Step::Connect: return host_.connect(machine.name, machine.seat);
    case Step::Cut: return host_.set_link(machine.seat, api::Link::Cut);
    case Step::Heal: return host_.set_link(machine.seat, api::Link::Connected);
    case Step::Kill: return host_.kill(machine.name);
    case Step::Stop: return host_.stop(machine.name, options_.stop_grace);
    case Step::Remove: return host_.remove(machine.name, machine.seat);
    case Step::Forget: return forget(machine, object, true);
  }
  return fail(Code::Internal, "no such step");
}

Result<void> MachineController::forget(const api::Machine& machine, const Json& object, bool with_node) {
  for (const auto& [resource, key] : {std::pair(resources::nodes, kube::ObjectKey{"", machine.name}), std::pair(resources::leases, kube::ObjectKey{"kube-node-lease", machine.name})}) {
    if (!with_node) break;
    const auto now = api_.get(resource, key);
    if (!now && now.error().code == Code::NotFound) continue;
    if (!now) return pass(now.error(), "read its " + resource.kind);
    if (auto gone = api_.remove(resource, key, {.uid = kube::uid_of(*now), .resource_version = kube::version_of(*now)}); !gone && gone.error().code != Code::NotFound)
      return pass(std::move(gone.error()), "delete its " + resource.kind);
  }
  Json copy = object;
  kube::remove_finalizer(copy, api::kMachineFinalizer);
  if (auto done = api_.update(resources::machines, copy); !done && done.error().code != Code::NotFound) return std::unexpected(std::move(done.error()));
  return {};
}

Result<void> MachineController::write_status(Json object, const MachinePlan& plan, const Observation& seen, const std::optional<Error>& error) {
  const auto current = machines_->get(kube::key_of(object));
  const Json old = current ? (*current)["status"] : Json();

  const bool well = !error && (plan.phase == "Running");
  Json& status = object.child("status");
  status.set("phase", error ? std::string("Pending") : plan.phase);
  status.set("observedGeneration", object["metadata"]["generation"].integer());
  if (seen.process) {
    status.set("pid", static_cast<std::int64_t>(seen.process->pid)).set("startTicks", static_cast<std::int64_t>(seen.process->start_ticks));
    if (seen.started_at) status.set("startedAt", print_time(*seen.started_at));
  } else {
    status.erase("pid");
    status.erase("startTicks");
  }
  const std::string reason = error ? "StepFailed" : plan.phase;
  kube::set_condition(object, {.type = "Ready", .status = well ? "True" : "False", .reason = reason, .message = error ? error->message : plan.why}, clock_.now());
  if (object["status"] == old) return {};
  if (auto done = api_.update_status(resources::machines, object); !done) return std::unexpected(std::move(done.error()));
  return {};
}

}  // namespace fairlead::fleet
