// SPDX-License-Identifier: Apache-2.0
#include "placement/control/node_lifecycle_controller.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace fairlead::placement {
namespace {

using kube::Json;
using kube::ObjectKey;

const std::string lease_space = "kube-node-lease";
const std::string unreachable = "node.kubernetes.io/unreachable";
const std::string not_ready = "node.kubernetes.io/not-ready";
const std::string silent_reason = "NodeStatusUnknown";

std::vector<ObjectKey> lease_keys(const kube::Change& change) {
  if (kube::space_of(change.object()) != lease_space) return {};
  return {{"", kube::name_of(change.object())}};
}

kube::Condition read_condition(const Json& condition) {
  return {condition["type"].string(), condition["status"].string(), condition["reason"].string(), condition["message"].string()};
}

// The taints that follow from the condition Ready; others stay as they are. Returns whether anything changed.
bool sync_taints(Json& node, const std::string& ready, Instant now) {
  Json taints = Json::array();
  bool changed = false;
  const std::string wanted = ready == "True" ? "" : ready == "Unknown" ? unreachable : not_ready;
  bool has_schedule = false, has_execute = false;
  for (const Json& taint : node["spec"]["taints"].items()) {
    const std::string& key = taint["key"].string();
    if (key == unreachable || key == not_ready) {
      if (key != wanted) {
        changed = true;
        continue;
      }
      has_schedule = has_schedule || taint["effect"].string() == "NoSchedule";
      has_execute = has_execute || taint["effect"].string() == "NoExecute";
    }
    taints.push(taint);
  }
  const auto add = [&](const char* effect) {
    // timeAdded is what the pods' patience counts from; it survives our restart.
    taints.push(Json::object({{"key", wanted}, {"effect", effect}, {"timeAdded", print_time(now)}}));
    changed = true;
  };
  if (!wanted.empty() && !has_schedule) add("NoSchedule");
  if (!wanted.empty() && !has_execute) add("NoExecute");
  if (changed) {
    if (taints.items().empty()) {
      node.child("spec").erase("taints");
    } else {
      node.child("spec").set("taints", std::move(taints));
    }
  }
  return changed;
}

}  // namespace

NodeLifecycleController::NodeLifecycleController(kube::KubeApi& api, const Clock& clock, NodeLifecycleOptions options)
    : api_(api), clock_(clock), options_(options), events_(api, clock, "fairlead-node-lifecycle") {}

// A pod that comes to a node, or that must leave it earlier than before: its node is looked at.
std::vector<ObjectKey> NodeLifecycleController::pod_keys(const kube::Change& change) const {
  if (!change.after) return {};
  const std::string& node = (*change.after)["spec"]["nodeName"].string();
  if (node.empty()) return {};
  {
    const std::lock_guard lock(mutex_);
    if (calm_.contains(node)) return {};
  }
  const bool same = change.before && (*change.before)["spec"]["nodeName"].string() == node && (*change.before)["spec"]["tolerations"] == (*change.after)["spec"]["tolerations"];
  return same ? std::vector<ObjectKey>{} : std::vector<ObjectKey>{{"", node}};
}

std::vector<kube::Controller::Source> NodeLifecycleController::sources() const {
  return {{kube::resources::nodes, "", kube::key_itself}, {kube::resources::leases, lease_space, lease_keys}, {kube::resources::pods, "", [this](const kube::Change& change) { return pod_keys(change); }}};
}

void NodeLifecycleController::start(const kube::Caches& caches) {
  nodes_ = &caches.of(kube::resources::nodes);
  leases_ = &caches.of(kube::resources::leases);
  pods_ = &caches.of(kube::resources::pods);
}

std::chrono::nanoseconds NodeLifecycleController::look(const Json& node) {
  const auto lease = leases_->get({lease_space, kube::name_of(node)});
  const std::string renewed = lease ? (*lease)["spec"]["renewTime"].string() : "";
  const std::lock_guard lock(mutex_);
  Sight& sight = sights_[kube::name_of(node)];
  if (sight.uid != kube::uid_of(node)) sight = Sight{.uid = kube::uid_of(node), .renewed = renewed, .at = clock_.monotonic(), .ready_before = std::nullopt};
  if (sight.renewed != renewed && !renewed.empty()) {
    sight.renewed = renewed;
    sight.at = clock_.monotonic();
  }
  return clock_.monotonic() - sight.at;
}

Result<kube::Next> NodeLifecycleController::reconcile(const ObjectKey& key) {
  {
    // Before anything is read: a pod that comes from here on brings us back, one that came before is in the cache.
    const std::lock_guard lock(mutex_);
    calm_.erase(key.name);
  }
  auto cached = nodes_->get(key);
  if (!cached) return bury(key.name);
  {
    const std::lock_guard lock(mutex_);
    missed_.erase(key.name);
  }
  const auto quiet = look(*cached);
  const bool silent = quiet > options_.silence;
  auto node = set_ready(std::move(*cached), silent);
  if (node) node = set_taints(std::move(*node));
  if (!node) {
    if (node.error().code == Code::NotFound) return kube::Next{};
    return std::unexpected(std::move(node.error()));
  }
  auto next_eviction = evict(*node);
  if (!next_eviction) return std::unexpected(std::move(next_eviction.error()));

  kube::Next next;
  if (!silent) next.again_after = options_.silence - quiet + 1ms;
  if (*next_eviction) {
    const auto until = std::max<std::chrono::nanoseconds>(**next_eviction - clock_.now(), 1ms);
    next.again_after = std::min(next.again_after.value_or(until), until);
  }
  return next;
}

Result<kube::Next> NodeLifecycleController::bury(const std::string& node) {
  std::vector<Json> left;
  pods_->each("", [&](const Json& pod) {
    if (pod["spec"]["nodeName"].string() == node) left.push_back(pod);
  });
  std::chrono::nanoseconds waited{};
  {
    const std::lock_guard lock(mutex_);
    sights_.erase(node);
    if (left.empty()) {
      missed_.erase(node);
      return kube::Next{};
    }
    waited = clock_.monotonic() - missed_.emplace(node, clock_.monotonic()).first->second;
  }
  if (waited < options_.mourning) return kube::Next{options_.mourning - waited};
  // The cache may be behind, and what is removed here does not come back.
  const auto there = api_.get(kube::resources::nodes, {"", node});
  if (there) return kube::Next{1s};
  if (there.error().code != Code::NotFound) return pass(Error(there.error()), "ask for node " + node);
  for (Json& pod : left) {
    const std::string& phase = pod["status"]["phase"].string();
    if (phase != "Succeeded" && phase != "Failed") {
      kube::set_condition(pod, {.type = "DisruptionTarget", .status = "True", .reason = "DeletionByPodGC", .message = "PodGC: node no longer exists"}, clock_.now());
      for (Json& condition : pod.child("status").child("conditions").items()) condition.erase("observedGeneration");  // pods have none
      pod.child("status").set("phase", "Failed");
      auto told = api_.update_status(kube::resources::pods, pod);
      if (!told && told.error().code == Code::NotFound) continue;
      if (!told) return pass(std::move(told.error()), "tell pod " + kube::key_of(pod).text() + " that its node is gone");
    }
    auto removed = api_.remove(kube::resources::pods, kube::key_of(pod), {.grace_seconds = 0, .uid = kube::uid_of(pod)});
    const bool fine = removed || removed.error().code == Code::NotFound || removed.error().code == Code::Conflict;
    if (!fine) return pass(std::move(removed.error()), fmt::format("remove pod {} of node {}, which is gone", kube::key_of(pod).text(), node));
    log_info("pod of a gone node removed", {{"pod", kube::key_of(pod).text()}, {"node", node}});
  }
  return kube::Next{};
}

Result<Json> NodeLifecycleController::set_ready(Json node, bool silent) {
  const std::string name = kube::name_of(node);
  const Json* found = kube::find_condition(node, "Ready");
  const std::optional<kube::Condition> ready = found == nullptr ? std::nullopt : std::optional(read_condition(*found));
  const bool marked = ready && ready->status == "Unknown" && ready->reason == silent_reason;
  if (silent == marked || (silent && ready && ready->status == "Unknown")) return node;

  const Instant now = clock_.now();
  if (silent) {
    if (ready) {
      const std::lock_guard lock(mutex_);
      sights_[name].ready_before = *ready;
    }
    std::vector<std::string> types{"Ready"};
    for (const Json& condition : node["status"]["conditions"].items()) {
      const std::string& type = condition["type"].string();
      if (type == "MemoryPressure" || type == "DiskPressure" || type == "PIDPressure") types.push_back(type);
    }
    for (const std::string& type : types) {
      kube::set_condition(node, {.type = type, .status = "Unknown", .reason = silent_reason, .message = "Kubelet stopped posting node status."}, now);
    }
  } else {
    // The node renews again. What it said of itself before holds until it says something else; the agent posts its own status too.
    kube::Condition back{.type = "Ready", .status = "True", .reason = "LeaseRenewed", .message = "the node renews its lease again"};
    {
      const std::lock_guard lock(mutex_);
      if (auto& before = sights_[name].ready_before) back = *std::exchange(before, std::nullopt);
    }
    kube::set_condition(node, back, now);
    const Json conditions = node["status"]["conditions"];  // a copy: set_condition changes the original
    for (const Json& condition : conditions.items()) {
      const std::string& type = condition["type"].string();
      if (type == "Ready" || condition["reason"].string() != silent_reason) continue;
      kube::set_condition(node, {.type = type, .status = "False", .reason = "LeaseRenewed", .message = "the node renews its lease again"}, now);
    }
  }
  auto written = api_.update_status(kube::resources::nodes, node);
  if (!written) return pass(std::move(written.error()), fmt::format("mark node {} as {}", name, silent ? "silent" : "back"));
  if (silent) {
    log_warn("node fell silent", {{"node", name}, {"seconds", std::to_string(options_.silence.count())}});
    events_.write(kube::resources::nodes, node, EventKind::Warning, "NodeNotReady", fmt::format("Node {} has not renewed its lease for {} s", name, options_.silence.count()));
  } else {
    log_info("node is back", {{"node", name}});
    events_.write(kube::resources::nodes, node, EventKind::Normal, "NodeReady", fmt::format("Node {} renews its lease again", name));
  }
  return written;
}

Result<Json> NodeLifecycleController::set_taints(Json node) {
  const Json* ready = kube::find_condition(node, "Ready");
  if (ready == nullptr) return node;  // it has not said anything yet: placement waits for Ready anyway
  if (!sync_taints(node, (*ready)["status"].string(), clock_.now())) return node;
  auto written = api_.update(kube::resources::nodes, node);
  if (!written) return pass(std::move(written.error()), "set taints of node " + kube::name_of(node));
  return written;
}

Result<std::optional<Instant>> NodeLifecycleController::evict(const Json& json) {
  const Node node = read_node(json);
  if (std::none_of(node.taints.begin(), node.taints.end(), [](const Taint& taint) { return taint.effect == Effect::NoExecute; })) {
    const std::lock_guard lock(mutex_);
    calm_.insert(node.name);
    return std::nullopt;
  }
  std::vector<Pod> pods;
  pods_->each("", [&](const Json& pod) {
    if (pod["spec"]["nodeName"].string() == node.name) pods.push_back(read_pod(pod));
  });
  const EvictionPlan plan = plan_evictions(node, std::move(pods), clock_.now(), options_.eviction);
  for (const Eviction& eviction : plan.evictions) {
    auto removed = api_.remove(kube::resources::pods, eviction.pod, {.uid = eviction.uid});
    if (!removed && removed.error().code != Code::NotFound && removed.error().code != Code::Conflict) {
      return pass(std::move(removed.error()), fmt::format("move pod {} off node {}", eviction.pod.text(), node.name));
    }
    if (!removed) continue;
    log_info("pod moved off node", {{"pod", eviction.pod.text()}, {"node", node.name}, {"why", eviction.why}});
    if (const auto pod = pods_->get(eviction.pod)) {
      events_.write(kube::resources::pods, *pod, EventKind::Normal, "TaintManagerEviction", fmt::format("Deleting pod {}: {}", eviction.pod.text(), eviction.why));
    }
  }
  return plan.look_again_at;
}

}  // namespace fairlead::placement
