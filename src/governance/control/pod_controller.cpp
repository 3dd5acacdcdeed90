// SPDX-License-Identifier: Apache-2.0
#include "governance/control/pod_controller.h"

#include <fmt/format.h>

#include <algorithm>

#include "governance/plan/gang_workload.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;
namespace queues = api::queues;
namespace resources = kube::resources;

namespace {

const std::string kGroup = "group/";  // of a key: a group of pods. No name has a slash.

const std::string& group_of(const Json& pod) { return pod["metadata"]["labels"][kGroupLabel].string(); }
bool concerns_us(const Json& pod) {
  const Json& labels = pod["metadata"]["labels"];
  return !labels[kQueueLabel].string().empty() || !labels[kManaged].string().empty() || kube::has_finalizer(pod, kManaged);
}

struct PodsCase final : OwnerCase {
  OwnerPlan plan() const override { return queued_owner.empty() ? plan_pods(in) : trouble(fmt::format("It is of {}, which is queued as a whole: take the scheduling gate {} out of its template", queued_owner, kAdmissionGate)); }
  const Json& about() const override {
    static const Json nobody;
    return in.pods.empty() ? nobody : in.pods.front();
  }
  std::vector<Json>& workloads() override { return in.workloads; }
  void take(Json owner) override {
    const auto same = std::find_if(in.pods.begin(), in.pods.end(), [&](const Json& one) { return kube::key_of(one) == kube::key_of(owner); });
    if (same == in.pods.end()) return;
    if (kube::deleting(owner) && owner["metadata"]["finalizers"].items().empty() && owner["spec"]["nodeName"].string().empty()) in.pods.erase(same);
    else *same = std::move(owner);
  }
  ObjectKey workload_key() const override { return {key.space, in.group.empty() ? pod_workload_name(about()) : in.group}; }
  int steps_at_once() const override { return 12 + 4 * static_cast<int>(in.pods.size()); }
  PodsInput in;
  ObjectKey key;
  std::string queued_owner;
};

}  // namespace

std::vector<kube::Controller::Source> PodController::sources() const {
  std::vector<Source> out = sources_of_stuck();
  out.push_back(source_of_ready_rules([this] {
    const std::lock_guard lock(mutex_);
    std::vector<ObjectKey> owners;
    for (const auto& [pod, workloads] : owned_) owners.push_back(pod);
    for (const auto& [group, pods] : members_) owners.push_back({group.space, kGroup + group.name});
    return owners;
  }));
  out.push_back({resources::pods, "", [this](const kube::Change& change) { return note_pod(change); }});
  out.push_back({queues::workloads, "", [this](const kube::Change& change) { return note_workload(change); }});
  out.push_back({kBatchJobs, "", [](const kube::Change&) { return std::vector<ObjectKey>(); }});
  return out;
}

std::optional<kube::Access> PodController::access() const {
  kube::Access access = shared_access();
  return access.may({"get", "update", "delete"}, resources::pods).may({"update"}, resources::pods, "status").may({"update"}, resources::pods, "finalizers").may({"get"}, kBatchJobs);
}

std::vector<ObjectKey> PodController::note_pod(const kube::Change& change) const {
  const ObjectKey pod = kube::key_of(change.object());
  std::set<ObjectKey> out;
  if (!change.after) forget(resources::pods, pod);
  const std::lock_guard lock(mutex_);
  if (change.before && !group_of(*change.before).empty())
    if (const auto at = members_.find({pod.space, group_of(*change.before)}); at != members_.end()) {
      at->second.erase(pod);
      if (at->second.empty()) members_.erase(at);
    }
  if (change.after && concerns_us(*change.after) && !group_of(*change.after).empty()) members_[{pod.space, group_of(*change.after)}].insert(pod);
  for (const auto* state : {&change.before, &change.after})
    if (*state && concerns_us(**state)) out.insert(group_of(**state).empty() ? pod : ObjectKey{pod.space, kGroup + group_of(**state)});
  return {out.begin(), out.end()};
}

std::vector<ObjectKey> PodController::note_workload(const kube::Change& change) const {
  const ObjectKey workload = kube::key_of(change.object());
  const Json* owner = kube::controller_of(change.object());
  std::vector<ObjectKey> out;
  const std::lock_guard lock(mutex_);
  if (owner != nullptr && (*owner)["kind"].string() == "Pod" && (*owner)["apiVersion"].string() == "v1") {
    const ObjectKey pod{workload.space, (*owner)["name"].string()};
    note_class(change, pod);
    if (change.after) {
      owned_[pod].insert(workload);
    } else if (const auto at = owned_.find(pod); at != owned_.end()) {
      at->second.erase(workload);
      if (at->second.empty()) owned_.erase(at);
    }
    out.push_back(pod);
  }
  // Its own, or one that has the name that a group needs.
  if (is_group_workload(change.object()) || members_.contains(workload)) out.push_back({workload.space, kGroup + workload.name});
  if (is_group_workload(change.object())) note_class(change, {workload.space, kGroup + workload.name});
  return out;
}

// The Job that queues it together with its other pods; empty: none.
Result<std::string> PodController::queued_owner(const Json& pod) const {
  const Json* owner = kube::controller_of(pod);
  if (owner != nullptr && is_gang((*owner)["apiVersion"].string(), (*owner)["kind"].string()) && pod["metadata"]["labels"][kElasticMember].is_null()) return fmt::format("{} {}", (*owner)["kind"].string(), (*owner)["name"].string());
  if (owner == nullptr || (*owner)["kind"].string() != kBatchJobs.kind || (*owner)["apiVersion"].string() != kBatchJobs.api_version()) return std::string();
  const ObjectKey key{kube::space_of(pod), (*owner)["name"].string()};
  std::optional<Json> job = caches_->of(kBatchJobs).get(key);
  if (!job || kube::uid_of(*job) != (*owner)["uid"].string()) {  // the cache has not seen it yet, or it is gone
    auto now = api_.get(kBatchJobs, key);
    if (!now && now.error().code != Code::NotFound) return pass(std::move(now.error()), "read Job " + key.text());
    if (!now || kube::uid_of(*now) != (*owner)["uid"].string()) return std::string();
    job = std::move(*now);
  }
  if (const Json* gang = kube::controller_of(*job); gang != nullptr && is_gang((*gang)["apiVersion"].string(), (*gang)["kind"].string())) return fmt::format("{} {}", (*gang)["kind"].string(), (*gang)["name"].string());
  return (*job)["metadata"]["labels"][kQueueLabel].string().empty() ? std::string() : "Job " + key.name;
}

Result<std::unique_ptr<OwnerCase>> PodController::observe(const ObjectKey& key) {
  if (key.name.starts_with(kGroup)) return observe_group(key, key.name.substr(kGroup.size()));
  auto out = std::make_unique<PodsCase>();
  PodsInput& in = out->in;
  out->key = key;
  in.now = out->now = clock_.now();
  in.tells_ready = tells_ready();
  Json pod = newest(resources::pods, key);
  std::set<ObjectKey> owned;
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = owned_.find(key); at != owned_.end()) owned = at->second;
  }
  if (pod.is_null() && !owned.empty()) {  // is it gone, or has the cache not seen it yet?
    auto now = api_.get(resources::pods, key);
    if (now) pod = std::move(*now);
    else if (now.error().code != Code::NotFound) return pass(std::move(now.error()), "read Pod " + key.text());
  }
  if (!pod.is_null()) {
    if (!group_of(pod).empty() && owned.empty()) return std::unique_ptr<OwnerCase>();  // looked at with its group
    owned.insert({key.space, pod_workload_name(pod)});
    in.priority = priority_of(pod["metadata"]["labels"][kPriorityLabel].string(), pod["spec"]["priorityClassName"].string(), "spec");
    auto queued = queued_owner(pod);
    if (!queued) return std::unexpected(std::move(queued.error()));
    if (!queued->empty() && !is_queued_pod(pod)) return std::unique_ptr<OwnerCase>();  // held, and let go, with its Job
    out->queued_owner = std::move(*queued);
  }
  for (const ObjectKey& one : owned) {
    Json workload = newest(queues::workloads, one);
    const Json* owner = workload.is_null() ? nullptr : kube::controller_of(workload);
    if (owner == nullptr || (*owner)["name"].string() != key.name || (*owner)["kind"].string() != "Pod") continue;
    in.workloads.push_back(std::move(workload));
  }
  in.flavors = flavors_of(in.workloads);
  if (!pod.is_null() && group_of(pod).empty()) in.pods.push_back(std::move(pod));
  return out;
}

Result<std::unique_ptr<OwnerCase>> PodController::observe_group(const ObjectKey& key, const std::string& group) {
  auto out = std::make_unique<PodsCase>();
  PodsInput& in = out->in;
  out->key = key;
  in.group = group;
  in.now = out->now = clock_.now();
  in.tells_ready = tells_ready();
  std::set<ObjectKey> members;
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = members_.find({key.space, group}); at != members_.end()) members = at->second;
  }
  for (const ObjectKey& one : members)
    if (Json pod = newest(resources::pods, one); !pod.is_null() && group_of(pod) == group) {
      auto queued = queued_owner(pod);
      if (!queued) return std::unexpected(std::move(queued.error()));
      if (queued->empty()) in.pods.push_back(std::move(pod));
    }
  if (Json workload = newest(queues::workloads, {key.space, group}); !workload.is_null()) in.workloads.push_back(std::move(workload));
  if (in.pods.empty() && !in.workloads.empty()) {  // are they gone, or has the cache not seen them yet?
    auto now = api_.list(resources::pods, key.space, {.label_selector = std::string(kGroupLabel) + "=" + group});
    if (!now) return pass(std::move(now.error()), "list the pods of group " + group);
    in.pods = std::move(now->items);
  }
  in.flavors = flavors_of(in.workloads);
  if (!in.pods.empty()) in.priority = priority_of(in.pods.front()["metadata"]["labels"][kPriorityLabel].string(), in.pods.front()["spec"]["priorityClassName"].string(), "spec");
  return out;
}

Result<bool> PodController::has_pods(const Json& workload) {
  const std::string& space = kube::space_of(workload);
  std::set<std::string> seen;
  if (is_group_workload(workload)) {
    auto pods = api_.list(resources::pods, space, {.label_selector = std::string(kGroupLabel) + "=" + kube::name_of(workload)});
    if (!pods) return pass(std::move(pods.error()), "list the pods of Workload " + kube::key_of(workload).text());
    for (const Json& pod : pods->items) {
      if (!is_queued_pod(pod)) continue;  // it may have lost its label; whether it is an owner is seen below
      if (uses_quota(pod)) return true;
      seen.insert(kube::name_of(pod));
    }
  }
  for (const Json& owner : workload["metadata"]["ownerReferences"].items()) {
    if (owner["kind"].string() != "Pod" || seen.contains(owner["name"].string())) continue;
    auto pod = api_.get(resources::pods, {space, owner["name"].string()});
    if (!pod && pod.error().code != Code::NotFound) return pass(std::move(pod.error()), "read a pod of Workload " + kube::key_of(workload).text());
    if (pod && kube::uid_of(*pod) == owner["uid"].string() && uses_quota(*pod)) return true;
  }
  return false;
}

}  // namespace fairlead::governance
