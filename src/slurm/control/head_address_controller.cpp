// SPDX-License-Identifier: Apache-2.0
#include "slurm/control/head_address_controller.h"

#include "base/log.h"
#include "slurm/plan/inputs.h"

namespace fairlead::slurm {

using kube::Json;
namespace resources = kube::resources;

std::vector<kube::Controller::Source> HeadAddressController::sources() const {
  const auto of_cluster = [](const kube::Change& change) {
    std::vector<kube::ObjectKey> keys;
    const std::string& cluster = change.object()["metadata"]["labels"][kClusterLabel].string();
    if (!cluster.empty() && change.object()["metadata"]["labels"][kRoleLabel].string_or("controller") == "controller") keys.push_back({kube::space_of(change.object()), cluster});
    return keys;
  };
  return {{resources::slurm_clusters, options_.space, kube::key_itself}, {resources::pods, options_.space, of_cluster}, {kEndpointSlices, options_.space, of_cluster}};
}

std::optional<kube::Access> HeadAddressController::access() const {
  return kube::Access()
      .may({"create", "update"}, kEndpointSlices, "", options_.space)
      .may({"get", "create"}, resources::pods, "exec", options_.space)
      // Owner references that block deletion need this where that admission check is on (OwnerReferencesPermissionEnforcement).
      .may({"update"}, resources::slurm_clusters, "finalizers", options_.space);
}

Result<kube::Next> HeadAddressController::reconcile(const kube::ObjectKey& key) {
  const auto object = caches_->of(resources::slurm_clusters).get(key);
  auto cluster = object ? api::read_slurm_cluster(*object, options_.default_image) : api::SlurmCluster{};
  const auto slice = caches_->of(kEndpointSlices).get({key.space, active_service(cluster)});
  cluster.was_elected = slice.has_value();
  for (int i = 0; i < api::kMaxHeads && !cluster.was_elected; ++i)
    if (const auto pod = caches_->of(resources::pods).get({key.space, pod_name(Role::Controller, i)})) cluster.was_elected = owned_by(*pod, cluster) && !setting_of_pod(*pod, "FAIRLEAD_HEADS").empty();
  if (!object || cluster.deleting || !elected(cluster) || !cluster.problems.empty()) {
    reports_->watch(key, {});
    return kube::Next{};
  }
  std::map<std::string, Json> pods;
  std::vector<kube::ObjectKey> heads;
  for (int i = 0; i < api::kMaxHeads; ++i) {  // those, too, that are on their way out
    auto pod = caches_->of(resources::pods).get({key.space, pod_name(Role::Controller, i)});
    const Json* owner = pod ? kube::controller_of(*pod) : nullptr;
    if (!owner || (*owner)["uid"].string() != cluster.uid || (*pod)["status"]["phase"].string() != "Running" || is_witness(*pod)) continue;
    heads.push_back(kube::key_of(*pod));
    pods[kube::name_of(*pod)] = std::move(*pod);
  }
  reports_->watch(key, heads);
  if (cluster.paused) return kube::Next{};
  const auto wanted = desired_slice(cluster, reports_->reports(key), pods, slice ? &*slice : nullptr);
  if (!wanted) return kube::Next{};
  auto done = slice ? api_.update(kEndpointSlices, *wanted) : api_.create(kEndpointSlices, *wanted);
  if (!done && !(done.error().code == Code::Exists && !slice)) return pass(std::move(done.error()), "write who serves Slurm cluster " + key.text());
  if (const std::string trouble = head_trouble(&*wanted); !trouble.empty()) {
    log_warn("no slurm head serves", {{"cluster", key.text()}, {"reason", trouble}});
    return kube::Next{};
  }
  const auto head = active_head(&*wanted);
  log_info("slurm head serves", {{"cluster", key.text()}, {"head", head ? head->pod : ""}, {"term", head ? std::to_string(head->term) : ""}});
  return kube::Next{};
}

}  // namespace fairlead::slurm
