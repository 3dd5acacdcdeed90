// SPDX-License-Identifier: Apache-2.0
#include "governance/control/place_controller.h"

#include <algorithm>

#include "governance/plan/books.h"
#include "governance/plan/owner_workload.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;
namespace queues = api::queues;
namespace resources = kube::resources;

namespace {

bool has_ended(const Json& pod) { return pod["status"]["phase"].string() == "Succeeded" || pod["status"]["phase"].string() == "Failed"; }
bool is_placed(const Json& pod) { return !waits_for_place(pod); }
bool is_admitted(const Json& workload) {
  return kube::condition_is_true(workload, "Admitted") && !kube::condition_is_true(workload, "Evicted") && !kube::condition_is_true(workload, "Finished") && !kube::deleting(workload);
}

}  // namespace

std::vector<kube::Controller::Source> PlaceController::sources() const {
  return {{resources::pods, "", [this](const kube::Change& change) { return note_pod(change); }},
          {queues::workloads, "", [](const kube::Change& change) {
             if (!change.after || !is_admitted(*change.after)) return std::vector<ObjectKey>();
             const auto& sets = (*change.after)["status"]["admission"]["podSetAssignments"].items();
             const bool any = std::any_of(sets.begin(), sets.end(), [](const Json& one) { return one["topologyAssignment"].is_object(); });
             return any ? std::vector<ObjectKey>{kube::key_of(*change.after)} : std::vector<ObjectKey>();
           }}};
}

std::optional<kube::Access> PlaceController::access() const {
  kube::Access access;
  return access.may({"update", "delete"}, resources::pods).may({"get"}, queues::workloads).may({"create"}, resources::events);
}

std::vector<ObjectKey> PlaceController::note_pod(const kube::Change& change) const {
  const ObjectKey pod = kube::key_of(change.object());
  const std::string& name = change.object()["metadata"]["annotations"][kWorkloadNote].string();
  if (name.empty()) return {};
  const ObjectKey workload{pod.space, name};
  const std::lock_guard lock(mutex_);
  if (change.after) {
    pods_of_[workload].insert(pod);
  } else {
    written_.erase(pod);
    if (const auto at = pods_of_.find(workload); at != pods_of_.end()) {
      at->second.erase(pod);
      if (at->second.empty()) pods_of_.erase(at);
    }
  }
  return {workload};
}

Json PlaceController::newest(const ObjectKey& pod) {
  Json cached = caches_->of(resources::pods).get(pod).value_or(Json());
  const auto at = written_.find(pod);
  if (at == written_.end()) return cached;
  if (!cached.is_null() && kube::uid_of(cached) == kube::uid_of(at->second) && version_before(kube::version_of(cached), kube::version_of(at->second))) return at->second;
  written_.erase(at);
  return cached;
}

Result<kube::Next> PlaceController::reconcile(const ObjectKey& key) {
  const auto workload = caches_->of(queues::workloads).get(key);
  if (!workload || !is_admitted(*workload)) return kube::Next{};
  std::map<std::string, std::vector<Json>> by_set;
  {
    const std::lock_guard lock(mutex_);
    const auto at = pods_of_.find(key);
    if (at == pods_of_.end()) return kube::Next{};
    for (const ObjectKey& pod : at->second)
      if (Json object = newest(pod); !object.is_null() && !has_ended(object) && object["metadata"]["annotations"][kWorkloadNote].string() == key.name) by_set[object["metadata"]["labels"][kPodSetLabel].string()].push_back(std::move(object));
  }
  for (const auto& [pod_set, pods] : by_set) {
    std::vector<const Json*> all;
    for (const Json& pod : pods) {
      // Its controller makes another, which waits behind the gate. What the Workload says now is asked of the API itself: it may be about to run.
      if (is_astray(*workload, pod_set, pod) && kube::controller_of(pod) != nullptr && !kube::deleting(pod)) {
        const auto now = api_.get(queues::workloads, key);
        if (!now) return pass(Error(now.error()), "read Workload " + key.text());
        if (kube::uid_of(*now) != kube::uid_of(*workload) || !is_admitted(*now) || !is_astray(*now, pod_set, pod)) return kube::Next{};  // what is new comes with its own key
        tell(api_, resources::pods, pod, {true, "PlaceLost", "Its node is lost, and its place is on another: it is deleted so that its controller makes it again"}, clock_.now());
        auto gone = api_.remove(resources::pods, kube::key_of(pod), {.grace_seconds = {}, .uid = kube::uid_of(pod), .resource_version = kube::version_of(pod), .propagation = kube::DeleteOptions::Propagation::Background});
        if (!gone && gone.error().code != Code::NotFound) return pass(std::move(gone.error()), "delete pod " + kube::key_of(pod).text() + ", whose node is lost");
        continue;
      }
      all.push_back(&pod);
    }
    for (const PodPlace& place : places_for(*workload, pod_set, all, is_placed)) {
      const auto pod = std::find_if(pods.begin(), pods.end(), [&](const Json& one) { return kube::key_of(one) == place.pod; });
      if (kube::deleting(*pod)) continue;
      Json next = *pod;
      Json& spec = next.child("spec");
      for (const auto& [label, value] : place.selector) spec.child("nodeSelector").set(label, value);
      std::erase_if(spec.child("schedulingGates").items(), [](const Json& gate) { return gate["name"].string() == kTopologyGate; });
      if (spec["schedulingGates"].items().empty()) spec.erase("schedulingGates");
      auto done = api_.update(resources::pods, next);
      if (!done && done.error().code == Code::NotFound) continue;
      if (!done) return pass(std::move(done.error()), "give pod " + place.pod.text() + " its place");
      const std::lock_guard lock(mutex_);
      written_[place.pod] = std::move(*done);
    }
  }
  return kube::Next{};
}

}  // namespace fairlead::governance
