// SPDX-License-Identifier: Apache-2.0
#include "placement/control/placement_controller.h"

#include <fmt/format.h>

#include "base/log.h"

namespace fairlead::placement {
namespace {

using kube::Json;
using kube::ObjectKey;

const ObjectKey all{"", "all"};

// A pod matters when it waits, or when it takes or gives back room. Its heartbeat of status changes does not.
std::vector<ObjectKey> pod_keys(const kube::Change& change) {
  const auto weight = [](const std::optional<Json>& object) {
    if (!object) return std::string();
    const Pod pod = read_pod(*object);
    if (pending(pod)) return "waits " + kube::version_of(*object);
    if (pod.node.empty() || pod.finished) return std::string();
    return "on " + pod.node;
  };
  return weight(change.before) == weight(change.after) ? std::vector<ObjectKey>{} : std::vector<ObjectKey>{all};
}

std::vector<ObjectKey> node_keys(const kube::Change& change) {
  if (change.before && change.after && read_node(*change.before) == read_node(*change.after)) return {};
  return {all};
}

}  // namespace

PlacementController::PlacementController(kube::KubeApi& api, const Clock& clock) : api_(api), clock_(clock), events_(api, clock, "fairlead-placement") {}

std::vector<kube::Controller::Source> PlacementController::sources() const {
  return {{kube::resources::pods, "", pod_keys}, {kube::resources::nodes, "", node_keys}};
}

void PlacementController::start(const kube::Caches& caches) {
  pods_ = &caches.of(kube::resources::pods);
  nodes_ = &caches.of(kube::resources::nodes);
}

Result<kube::Next> PlacementController::reconcile(const ObjectKey&) {
  if (auto settled = settle_bindings(); !settled) return std::unexpected(std::move(settled.error()));
  const Plan plan = plan_placement(snapshot());
  // One refused write does not keep the others from their places; the first error brings us back.
  std::optional<Error> first;
  const auto note = [&](Result<void> done) {
    if (!done && !first) first = std::move(done.error());
  };
  for (const Place& place : plan.places) note(bind(place));
  for (const Wait& wait : plan.waits) note(tell(wait));
  if (first) return std::unexpected(std::move(*first));
  return kube::Next{};
}

Result<void> PlacementController::settle_bindings() {
  for (auto it = bound_.begin(); it != bound_.end();) {
    Bound& bound = it->second;
    const auto cached = pods_->get(bound.key);
    bool over = !cached || kube::uid_of(*cached) != it->first || !(*cached)["spec"]["nodeName"].string().empty();
    if (!over && !bound.sure) {
      auto now = api_.get(kube::resources::pods, bound.key);
      if (!now && now.error().code != Code::NotFound) return pass(std::move(now.error()), "ask where pod " + bound.key.text() + " is");
      over = !now || kube::uid_of(*now) != it->first || (*now)["spec"]["nodeName"].string().empty();
      if (!over) {
        bound.node = (*now)["spec"]["nodeName"].string();
        bound.sure = true;
      }
    }
    it = over ? bound_.erase(it) : std::next(it);
  }
  return {};
}

Snapshot PlacementController::snapshot() const {
  Snapshot out;
  for (const Json& node : nodes_->list("")) out.nodes.push_back(read_node(node));
  for (const Json& json : pods_->list("")) {
    Pod pod = read_pod(json);
    if (const auto bound = bound_.find(pod.uid); bound != bound_.end() && pod.node.empty()) pod.node = bound->second.node;
    out.pods.push_back(std::move(pod));
  }
  return out;
}

Result<void> PlacementController::bind(const Place& place) {
  const Json binding = Json::object({
      {"apiVersion", "v1"},
      {"kind", "Binding"},
      {"metadata", Json::object({{"name", place.pod.name}, {"namespace", place.pod.space}, {"uid", place.uid}})},
      {"target", Json::object({{"apiVersion", "v1"}, {"kind", "Node"}, {"name", place.node}})},
  });
  auto done = api_.post(kube::resources::pods, place.pod, "binding", binding);
  if (!done) {
    if (done.error().code == Code::NotFound) return {};  // the pod went away meanwhile
    if (done.error().code == Code::Unavailable) bound_[place.uid] = {place.pod, place.node, false};
    return pass(std::move(done.error()), fmt::format("bind pod {} to {}", place.pod.text(), place.node));
  }
  bound_[place.uid] = {place.pod, place.node, true};
  log_info("pod placed", {{"pod", place.pod.text()}, {"node", place.node}});
  if (const auto pod = pods_->get(place.pod); pod && kube::uid_of(*pod) == place.uid) {
    events_.write(kube::resources::pods, *pod, EventKind::Normal, "Scheduled", fmt::format("Successfully assigned {} to {}", place.pod.text(), place.node));
  }
  return {};
}

Result<void> PlacementController::tell(const Wait& wait) {
  auto pod = pods_->get(wait.pod);
  if (!pod || kube::uid_of(*pod) != wait.uid) return {};
  const Json before = *pod;
  if (!kube::set_condition(*pod, {.type = "PodScheduled", .status = "False", .reason = "Unschedulable", .message = wait.why}, clock_.now())) return {};
  // Carries the version it was decided on: a newer pod comes back as a change and is looked at again.
  auto done = api_.update_status(kube::resources::pods, *pod);
  if (!done) {
    if (done.error().code == Code::NotFound) return {};
    return pass(std::move(done.error()), "tell pod " + wait.pod.text() + " why it waits");
  }
  log_info("pod waits", {{"pod", wait.pod.text()}, {"why", wait.why}});
  events_.write(kube::resources::pods, before, EventKind::Warning, "FailedScheduling", wait.why);
  return {};
}

}  // namespace fairlead::placement
