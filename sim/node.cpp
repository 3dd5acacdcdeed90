// SPDX-License-Identifier: Apache-2.0
#include "sim/node.h"

#include <fmt/format.h>

#include "sim/world.h"

namespace fairlead::sim {

using kube::Json;
namespace resources = kube::resources;

Node::Node(World& world, std::string name) : world_(world), name_(std::move(name)) {}

void Node::power_on() {
  powered_ = true;
  ++epoch_;
  lease_due_ = world_.clock().monotonic();
  world_.after(std::chrono::milliseconds(100 + world_.rng().below(400)), "", [this, epoch = epoch_] { tick(epoch); });
}

void Node::power_off() {
  powered_ = linked_ = false;
  ++epoch_;
  for (auto& [uid, pod] : pods_) pod.running = false;
}

void Node::connect(bool linked) { linked_ = linked; }

void Node::tick(std::uint64_t epoch) {
  if (epoch != epoch_ || !powered_) return;
  world_.after(1s, "", [this, epoch] { tick(epoch); });
  if (!linked_) return;
  register_node();
  renew_lease();
  look_after_pods();
}

void Node::register_node() {
  auto have = world_.api().get(resources::nodes, {"", name_});
  if (have && registered_) return;
  if (!have && have.error().code != Code::NotFound) return;
  auto machine = world_.api().get(resources::machines, {"", name_});
  if (!machine) return;
  const api::Machine read = api::read_machine(*machine);
  if (!have) {
    Json labels = Json::object({{"kubernetes.io/hostname", name_}});
    for (const auto& [key, value] : read.spec.labels) labels.set(key, value);
    Json node = Json::object({{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", Json::object({{"name", name_}, {"labels", labels}})}, {"spec", Json::object({{"podCIDR", read.seat.pod_cidr}})}});
    have = world_.api().create(resources::nodes, node);
    if (!have) return;
  }
  Json capacity = Json::object({{"pods", "110"}});
  for (const auto& [key, value] : read.spec.capacity) capacity.set(key, value);
  have->set("status", Json::object({{"capacity", capacity}, {"allocatable", capacity}, {"addresses", Json::array({Json::object({{"type", "InternalIP"}, {"address", read.seat.address}})})}}));
  kube::set_condition(*have, {"Ready", "True", "KubeletReady", "simulated"}, world_.clock().now());
  registered_ = world_.api().update_status(resources::nodes, *have).has_value();
}

void Node::renew_lease() {
  if (world_.clock().monotonic() < lease_due_) return;
  lease_due_ = world_.clock().monotonic() + 10s;
  const kube::ObjectKey key{"kube-node-lease", name_};
  const std::string now = print_micro_time(world_.clock().now());
  auto lease = world_.api().get(resources::leases, key);
  if (lease) {
    lease->child("spec").set("renewTime", now);
    (void)world_.api().update(resources::leases, *lease);
  } else {
    (void)world_.api().create(resources::leases, Json::object({{"apiVersion", "coordination.k8s.io/v1"},
                                                                 {"kind", "Lease"},
                                                                 {"metadata", Json::object({{"name", name_}, {"namespace", "kube-node-lease"}})},
                                                                 {"spec", Json::object({{"holderIdentity", name_}, {"leaseDurationSeconds", 40}, {"renewTime", now}})}}));
  }
  // An agent that is back says so; who found it silent has written Unknown meanwhile.
  auto node = world_.api().get(resources::nodes, {"", name_});
  if (node && kube::set_condition(*node, {"Ready", "True", "KubeletReady", "simulated"}, world_.clock().now())) (void)world_.api().update_status(resources::nodes, *node);
}

void Node::look_after_pods() {
  auto list = world_.api().list(resources::pods, "", {.field_selector = "spec.nodeName=" + name_});
  if (!list) return;
  for (const Json& pod : list->items) {
    const std::string uid = kube::uid_of(pod);
    if (kube::deleting(pod)) {
      pods_.erase(uid);
      (void)world_.api().remove(resources::pods, kube::key_of(pod), {.grace_seconds = 0, .uid = uid});
      continue;
    }
    Pod& state = pods_[uid];
    if (!state.running) {
      // Containers that ran before a power cut run again: a restart, as the real agent counts it.
      if (!state.incarnation.empty()) ++state.restarts;
      state.running = true;
      state.incarnation = std::to_string(epoch_);
      world_.note(fmt::format("node {}: starts pod {} ({} restarts)", name_, kube::key_of(pod).text(), state.restarts));
      report(pod, state);
    } else if (!kube::condition_is_true(pod, "Ready")) {
      report(pod, state);
    }
  }
}

void Node::report(const Json& pod, const Pod& state) {
  Json next = pod;
  Json statuses = Json::array();
  for (const Json& container : pod["spec"]["containers"].items())
    statuses.push(Json::object({{"name", container["name"]}, {"image", container["image"]}, {"imageID", ""}, {"ready", true}, {"started", true}, {"restartCount", state.restarts},
                                {"state", Json::object({{"running", Json::object({{"startedAt", print_time(world_.clock().now())}})}})}}));
  Json& status = next.child("status");
  status.set("phase", "Running").set("containerStatuses", std::move(statuses));
  for (const char* type : {"Initialized", "ContainersReady", "Ready"}) kube::set_condition(next, {type, "True", "", ""}, world_.clock().now());
  (void)world_.api().update_status(resources::pods, next);
}

}  // namespace fairlead::sim
