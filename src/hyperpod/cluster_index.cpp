// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/cluster_index.h"

#include <mutex>

#include "api/cluster.h"
#include "hyperpod/entity.h"

namespace fairlead::hyperpod {

bool software_update_waits(const kube::Json& cluster) {
  const kube::Json &asked = cluster["spec"]["softwareUpdate"], &told = cluster["status"]["softwareUpdate"];
  if (!asked.is_object() || asked["id"] == told["id"]) return false;
  const auto& earlier = told["earlier"].items();
  return std::none_of(earlier.begin(), earlier.end(), [&](const kube::Json& id) { return id == asked["id"]; });
}

std::string cluster_status(const kube::Json& cluster) {
  if (kube::deleting(cluster)) return "Deleting";
  if (kube::space_of(cluster).empty()) {  // a Cluster
    const kube::Json& status = cluster["status"];
    const std::string phase = status["phase"].string_or("Creating");
    // Whoever asked for something and waits for InService must not find that of before.
    if (phase != "InService") return phase;
    if (software_update_waits(cluster)) return "SystemUpdating";
    return cluster["spec"]["nodeProvisioningMode"].string() != "Continuous" && cluster["metadata"]["generation"].integer() != status["observedGeneration"].integer(cluster["metadata"]["generation"].integer()) ? "Updating" : phase;
  }
  if (!cluster["status"]["appliedConfigHash"].string().empty()) return "InService";
  const kube::Json* valid = kube::find_condition(cluster, "SpecValid");
  return valid != nullptr && (*valid)["status"].string() == "False" ? "Failed" : "Creating";
}

void ClusterIndex::put(const kube::Json& cluster) {
  // What a Cluster is made of is told through it alone.
  if (!kube::space_of(cluster).empty() && cluster["metadata"]["labels"].has(api::kClusterLabel)) return drop(kube::key_of(cluster));
  ClusterRow row{.key = kube::key_of(cluster), .name = kube::space_of(cluster).empty() ? name_of_entity(cluster) : kube::name_of(cluster), .id = entity_id(kube::uid_of(cluster)), .status = cluster_status(cluster), .created = created_at(cluster)};
  const std::unique_lock lock(mutex_);
  forget(row.key);
  by_name_[row.name].insert(row.key);
  by_id_[row.id] = row.key;
  ++spaces_[row.key.space];
  rows_[row.key] = std::move(row);
}

void ClusterIndex::drop(const kube::ObjectKey& key) {
  const std::unique_lock lock(mutex_);
  forget(key);
}

void ClusterIndex::forget(const kube::ObjectKey& key) {
  const auto found = rows_.find(key);
  if (found == rows_.end()) return;
  if (const auto named = by_name_.find(found->second.name); named != by_name_.end()) {
    named->second.erase(key);
    if (named->second.empty()) by_name_.erase(named);
  }
  by_id_.erase(found->second.id);
  if (const auto space = spaces_.find(key.space); --space->second == 0) spaces_.erase(space);
  rows_.erase(found);
}

std::vector<ClusterRow> ClusterIndex::named(std::string_view name) const {
  std::vector<ClusterRow> out;
  const std::shared_lock lock(mutex_);
  if (const auto found = by_name_.find(name); found != by_name_.end())
    for (const kube::ObjectKey& key : found->second) out.push_back(rows_.at(key));
  return out;
}

std::optional<ClusterRow> ClusterIndex::with_id(std::string_view id) const {
  const std::shared_lock lock(mutex_);
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? std::nullopt : std::optional(rows_.at(found->second));
}

std::vector<ClusterRow> ClusterIndex::all() const {
  std::vector<ClusterRow> out;
  const std::shared_lock lock(mutex_);
  out.reserve(rows_.size());
  for (const auto& [key, row] : rows_) out.push_back(row);
  return out;
}

std::size_t ClusterIndex::in_space(std::string_view space) const {
  const std::shared_lock lock(mutex_);
  const auto found = spaces_.find(space);
  return found == spaces_.end() ? 0 : found->second;
}

}  // namespace fairlead::hyperpod
