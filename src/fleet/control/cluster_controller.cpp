// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/cluster_controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "api/network_ways.h"
#include "api/node_set.h"
#include "base/log.h"

namespace fairlead::fleet {

using kube::Json;
namespace resources = kube::resources;

kube::Access cluster_access() {
  return kube::Access()
      .may({"get", "update"}, api::kClusters)
      .may({"update"}, api::kClusters, "status")
      .may({"get", "create", "update", "delete"}, api::kInstances)
      .may({"update"}, api::kInstances, "status")
      .may({"get", "create", "update", "delete"}, resources::machines)
      .may({"get", "update"}, resources::nodes)
      .may({"get", "create", "delete"}, resources::namespaces)
      .may({"list", "create"}, resources::claims)
      .may({"create", "update", "delete"}, resources::slurm_clusters)
      .may({"create", "update", "delete"}, api::kNodeSets)
      .may({"list", "update", "delete"}, resources::pods);
}

std::vector<kube::ObjectKey> ClusterController::in_space(const std::string& space) const {
  std::vector<kube::ObjectKey> out;
  for (const Json& cluster : caches_->of(api::kClusters).list(""))
    if (api::read_cluster(cluster).space == space) out.push_back(kube::key_of(cluster));
  return out;
}

std::vector<kube::Controller::Source> ClusterController::sources() const {
  const auto of_label = [](const kube::Change& change) {
    std::vector<kube::ObjectKey> out;
    for (const auto* object : {change.before ? &*change.before : nullptr, change.after ? &*change.after : nullptr})
      if (object != nullptr)
        if (const std::string& cluster = (*object)["metadata"]["labels"][api::kClusterLabel].string(); !cluster.empty()) out.push_back({"", cluster});
    return out;
  };
  const auto of_space = [this](const kube::Change& change) { return in_space(kube::space_of(change.object())); };
  const auto of_pod = [this](const kube::Change& change) {
    const Json& pod = change.object();
    return pod["metadata"]["labels"][api::kSlurmRoleLabel].is_null() ? std::vector<kube::ObjectKey>() : in_space(kube::space_of(pod));
  };
  // A node that a cluster has; of one that is spare any that waits may want to know.
  const auto of_node = [this](const kube::Change& change) {
    std::vector<kube::ObjectKey> out;
    std::set<std::string> instances;
    bool spare = false;
    for (const auto* object : {change.before ? &*change.before : nullptr, change.after ? &*change.after : nullptr}) {
      if (object == nullptr) continue;
      const Json& labels = (*object)["metadata"]["labels"];
      if (!labels[api::kInstanceLabel].string().empty()) instances.insert(labels[api::kInstanceLabel].string());
      spare = spare || labels[api::kSpareLabel].string() == "true";
    }
    for (const std::string& id : instances)
      if (const auto instance = caches_->of(api::kInstances).get({"", id})) out.push_back({"", (*instance)["spec"]["cluster"].string()});
    if (spare)
      for (const Json& cluster : caches_->of(api::kClusters).list("")) out.push_back(kube::key_of(cluster));
    return out;
  };
  return {{api::kClusters, "", kube::key_itself}, {api::kInstances, "", of_label}, {resources::machines, "", of_label}, {resources::nodes, "", of_node}, {resources::slurm_clusters, "", of_space}, {api::kNodeSets, "", of_space}, {resources::pods, "", of_pod}};
}

Result<ClusterSnapshot> ClusterController::look(Json object) const {
  const api::Cluster cluster = api::read_cluster(object);
  ClusterSnapshot out;
  out.instances = caches_->of(api::kInstances).list("");
  std::set<std::string> named;
  for (const Json& one : out.instances)
    if (one["spec"]["clusterUid"].string() == cluster.uid) named.insert(one["status"]["node"].string());
  caches_->of(resources::nodes).each("", [&](const Json& node) {
    if (named.contains(kube::name_of(node)) || node["metadata"]["labels"][api::kSpareLabel].string() == "true") out.nodes.emplace(kube::name_of(node), node);
  });
  for (const std::string& name : named)
    if (auto machine = name.empty() ? std::nullopt : caches_->of(resources::machines).get({"", name})) out.machines.emplace(name, std::move(*machine));
  if (cluster.orchestrator == api::Orchestrator::Slurm) {
    if (auto space = api_.get(resources::namespaces, {"", cluster.space})) out.space = std::move(*space);
    else if (space.error().code != Code::NotFound) return pass(std::move(space.error()), "read namespace " + cluster.space);
    if (is_namespace_of(out.space, cluster)) {
      auto claims = api_.list(resources::claims, cluster.space);
      if (!claims) return pass(std::move(claims.error()), "read the claims in " + cluster.space);
      out.claims = std::move(claims->items);
      if (auto slurm = caches_->of(resources::slurm_clusters).get({cluster.space, cluster.slurm_name})) out.slurm = std::move(*slurm);
      out.node_sets = caches_->of(api::kNodeSets).list(cluster.space);
      out.pods = caches_->of(resources::pods).list(cluster.space);
    }
  }
  out.cluster = std::move(object);
  return out;
}

Result<void> ClusterController::take(const ClusterStep& step, const std::string& space) {
  const auto forget = [](auto result) -> Result<void> {
    if (!result) return std::unexpected(std::move(result.error()));
    return {};
  };
  // The caches may be behind.
  if (!step.if_gone.empty()) {
    const auto machine = api_.get(resources::machines, {"", step.if_gone});
    if (machine) return fail(Code::Conflict, fmt::format("machine {} is there", step.if_gone));
    if (machine.error().code != Code::NotFound) return std::unexpected(machine.error());
  }
  if (!step.if_not_of.empty()) {
    const auto node = api_.get(resources::nodes, {"", step.if_not_of});
    if (!node && node.error().code != Code::NotFound) return std::unexpected(node.error());
    if (node && (*node)["metadata"]["labels"][api::kInstanceLabel].string() == kube::name_of(step.object)) return fail(Code::Conflict, fmt::format("{} is still its machine", step.if_not_of));
  }
  if (!step.if_live.empty()) {
    const auto instance = api_.get(api::kInstances, {"", step.if_live});
    if (!instance) return std::unexpected(instance.error());
    if (kube::deleting(*instance) || (*instance)["status"]["node"].string() != kube::name_of(step.object)) return fail(Code::Conflict, fmt::format("{} has changed", step.if_live));
  }
  if (!step.if_empty.empty()) {
    const auto pods = api_.list(resources::pods, space);
    if (!pods) return std::unexpected(pods.error());
    for (const Json& pod : pods->items)
      if (pod["spec"]["nodeName"].string() == step.if_empty && !pod["metadata"]["labels"][api::kSlurmRoleLabel].is_null()) return fail(Code::Conflict, fmt::format("{} came to {} meanwhile", kube::name_of(pod), step.if_empty));
  }
  switch (step.verb) {
    case ClusterStep::Verb::Create: {
      // Names follow from what a thing is for: one that is there was made by a round whose end we have not seen.
      auto done = api_.create(step.resource, step.object);
      if (!done && done.error().code == Code::Exists) return {};
      return forget(std::move(done));
    }
    case ClusterStep::Verb::Update: return forget(api_.update(step.resource, step.object));
    case ClusterStep::Verb::UpdateStatus: return forget(api_.update_status(step.resource, step.object));
    case ClusterStep::Verb::Delete: {
      auto done = api_.remove(step.resource, kube::key_of(step.object), {.grace_seconds = {}, .uid = kube::uid_of(step.object), .resource_version = kube::version_of(step.object)});
      if (!done && done.error().code == Code::NotFound) return {};
      return done;
    }
  }
  return {};
}

Result<kube::Next> ClusterController::reconcile(const kube::ObjectKey& key) {
  auto object = caches_->of(api::kClusters).get(key);
  if (!object) return kube::Next{};
  const std::string space = api::read_cluster(*object).space;
  auto snapshot = look(std::move(*object));
  if (!snapshot) return std::unexpected(std::move(snapshot.error()));
  const ClusterPlan plan = plan_cluster(*snapshot, clock_.now(), options_);
  // What is made for a cluster that is gone would stay for ever.
  if (!plan.steps.empty()) {
    const auto now = api_.get(api::kClusters, key);
    if (!now && now.error().code == Code::NotFound) return kube::Next{};
    if (!now) return std::unexpected(now.error());
    if (kube::version_of(*now) != kube::version_of(snapshot->cluster)) return fail(Code::Conflict, fmt::format("cluster {} has changed", key.name));
  }
  std::optional<Error> failed;
  for (const ClusterStep& step : plan.steps) {
    const std::string what = fmt::format("{} {} {}", fleet::name(step.verb), step.resource.kind, kube::key_of(step.object).text());
    if (step.verb != ClusterStep::Verb::UpdateStatus) log_info("cluster step", {{"cluster", key.name}, {"step", what}, {"why", step.why}});
    auto done = take(step, space);
    if (done) continue;
    failed = std::move(done.error()).in(what);
    break;
  }
  // The last: who reads it finds what it tells of.
  Json status = plan.status.is_null() ? snapshot->cluster["status"] : plan.status;
  if (failed && failed->code != Code::Conflict && status.is_object()) status.set("message", failed->message.substr(0, 1000));
  if (status != snapshot->cluster["status"]) {
    Json told = snapshot->cluster;
    if (told["status"]["phase"] != status["phase"] || told["status"]["message"] != status["message"]) log_info("cluster", {{"cluster", key.name}, {"status", status["phase"].string()}, {"message", status["message"].string()}});
    told.set("status", std::move(status));
    if (auto done = api_.update_status(api::kClusters, told); !done && !failed) return std::unexpected(std::move(done.error()).in("write the status of cluster " + key.name));
  }
  if (failed) return std::unexpected(std::move(*failed).in("cluster " + key.name));
  return kube::Next{plan.look_again};
}

}  // namespace fairlead::fleet
