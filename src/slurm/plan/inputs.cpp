// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "api/node_set.h"
#include "slurm/plan/gres.h"
#include "slurm/plan/node_sets.h"

namespace fairlead::slurm {

using api::SlurmCluster;
using kube::Json;

constexpr std::size_t kMostNamed = 100;  // they travel in the address of the request

const Json* find(const std::map<std::string, Json>& in, const std::string& name) {
  const auto found = in.find(name);
  return found == in.end() ? nullptr : &found->second;
}

bool owned_by(const Json& object, const SlurmCluster& cluster) {
  const Json* owner = kube::controller_of(object);
  return owner && (*owner)["uid"].string() == cluster.uid;
}

bool pod_ready(const Json& pod) { return !kube::deleting(pod) && kube::condition_is_true(pod, "Ready"); }
bool pod_over(const Json& pod) {
  const std::string& phase = pod["status"]["phase"].string();
  return phase == "Failed" || phase == "Succeeded";
}

std::string setting_of_pod(const Json& pod, std::string_view name) {
  for (const Json& container : pod["spec"]["containers"].items())
    for (const Json& variable : container["env"].items())
      if (variable["name"].string() == name) return variable["value"].string();
  return "";
}

int ordinal_of(const std::string& name, const SlurmCluster& view, Role role) { return worker_ordinal(name, (role == Role::Worker ? view.worker_set : std::string(text(role))) + "-").value_or(-1); }

SlurmCluster read_cluster(const Snapshot& snapshot, const std::string& default_image) {
  SlurmCluster cluster = api::read_slurm_cluster(snapshot.cluster, default_image);
  std::vector<const Json*> sets;
  for (const auto& [name, object] : snapshot.node_sets) sets.push_back(&object);
  api::add_node_sets(cluster, sets, default_image, snapshot.only_cluster);
  return cluster;
}

bool of_role(const Json& pod, const SlurmCluster& cluster, Role role) { return owned_by(pod, cluster) && pod["metadata"]["labels"][kRoleLabel].string() == text(role); }

const Json* ready_head(const Snapshot& snapshot, const SlurmCluster& cluster) {
  for (int i = 0; i < cluster.controller.size; ++i)
    if (const Json* pod = find(snapshot.pods, pod_name(Role::Controller, i)); pod && owned_by(*pod, cluster) && pod_ready(*pod)) return pod;
  return nullptr;
}

ScaleInput scale_input(const Snapshot& snapshot, const SlurmCluster& view, Instant now) {
  const Json* set = view.set.name.empty() ? nullptr : find(snapshot.node_sets, view.set.name);
  ScaleInput in{.cluster_uid = view.uid,
                .prefix = view.worker_set + "-",
                .generation = set ? view.set.generation : view.generation,
                .size = view.worker.size,
                .rules = view.scale_down,
                .memory = (set ? *set : snapshot.cluster)["status"]["scaleDown"],
                .look_due = snapshot.look_due,
                .view = snapshot.view,
                .now = now};
  const Json* jobs = kube::find_condition(snapshot.cluster, "JobsCanStart");
  in.jobs_wait = jobs && (*jobs)["status"].string() == "False";
  for (const auto& [name, pod] : snapshot.pods)
    if (const int ordinal = ordinal_of(name, view, Role::Worker); ordinal >= 0) {
      if (of_role(pod, view, Role::Worker)) in.pods[ordinal] = &pod;
      else in.taken.insert(ordinal);
    }
  return in;
}

FailureInput failure_input(const Snapshot& snapshot, const SlurmCluster& cluster, Instant now) {
  FailureInput in{.ended = snapshot.ended, .memory = snapshot.cluster["status"]["lostWorkers"], .view = snapshot.view, .now = now};
  for (const auto& [name, pod] : snapshot.pods)
    if (of_role(pod, cluster, Role::Worker)) in.pods[name] = &pod;
  for (const auto& [name, node] : snapshot.nodes) in.nodes[name] = &node;
  return in;
}

ObjectOptions with_gres(const Snapshot& snapshot, const SlurmCluster& cluster, ObjectOptions options) {
  const Json* mounted = find(snapshot.config_maps, cluster.name + "-slurm-configs");
  options.render.running_gres = running_gres(cluster, snapshot.pods, mounted ? (*mounted)["data"]["gres.conf"].string() : "");
  return options;
}

Rollout rollout_of(const Snapshot& snapshot, const SlurmCluster& cluster, const ObjectOptions& options, Instant now) {
  return plan_rollout({.cluster = cluster,
                       .facts = options.render,
                       .mounted = find(snapshot.config_maps, cluster.name + "-slurm-configs"),
                       .good = find(snapshot.config_maps, cluster.name + kGoodConfigs),
                       .status = snapshot.cluster["status"],
                       .head_ready = ready_head(snapshot, cluster) != nullptr,
                       .trial = snapshot.trial,
                       .now = now});
}

const Json* serving_head(const Snapshot& snapshot, const SlurmCluster& cluster, const std::optional<ActiveHead>& active) {
  if (elected(cluster)) return active ? find(snapshot.pods, active->pod) : nullptr;
  return find(snapshot.pods, pod_name(Role::Controller, 0));
}

std::vector<ConfigOf> unseen_configs(const Snapshot& snapshot, const SlurmCluster& cluster, const std::string& hash) {
  std::vector<ConfigOf> out;
  for (const auto& [name, pod] : snapshot.pods)
    for (const Role role : {Role::Worker, Role::Login}) {
      if (!of_role(pod, cluster, role) || !pod_ready(pod)) continue;
      const auto seen = snapshot.seen_configs.find(kube::uid_of(pod));
      if (seen == snapshot.seen_configs.end() || seen->second != hash) out.push_back({kube::key_of(pod), kube::uid_of(pod), role == Role::Worker ? "slurmd" : "sshd"});
    }
  return out;
}

std::optional<TrialWanted> wants_trial(const Snapshot& snapshot, const ObjectOptions& options, const std::string& default_image, Instant now) {
  const SlurmCluster cluster = read_cluster(snapshot, default_image);
  if (cluster.deleting || cluster.paused || !cluster.problems.empty()) return std::nullopt;
  const Json* head = ready_head(snapshot, cluster);
  if (!head) return std::nullopt;
  Rollout rollout = rollout_of(snapshot, cluster, with_gres(snapshot, cluster, options), now);
  if (!rollout.try_it) return std::nullopt;
  return TrialWanted{kube::key_of(*head), rollout.hash, std::move(rollout.files)};
}

std::vector<ConfigOf> wants_configs(const Snapshot& snapshot, const ObjectOptions& options, const std::string& default_image, Instant now) {
  const SlurmCluster cluster = read_cluster(snapshot, default_image);
  if (cluster.deleting || cluster.paused || !cluster.problems.empty()) return {};
  const Rollout rollout = rollout_of(snapshot, cluster, with_gres(snapshot, cluster, options), now);
  if (rollout.mounted.empty() || snapshot.cluster["status"]["appliedConfigHash"].string() != rollout.mounted) return {};
  return unseen_configs(snapshot, cluster, rollout.mounted);
}

std::optional<Look> wants_look(const Snapshot& snapshot, const std::string& default_image, Instant now) {
  const SlurmCluster cluster = read_cluster(snapshot, default_image);
  if (cluster.deleting || cluster.paused || !cluster.problems.empty()) return std::nullopt;
  const Json* head = ready_head(snapshot, cluster);
  if (!head) return std::nullopt;
  const FailureInput failures = failure_input(snapshot, cluster, now);
  bool wanted = needs_look(failures), all = false;
  std::vector<std::string> nodes;
  for (const auto& view : api::worker_views(cluster)) {
    if (view.set.held) continue;
    const ScaleInput input = scale_input(snapshot, view, now);
    wanted = wanted || needs_look(input) || (view.set.deleting && !view.set.name.empty());
    nodes.push_back(nodes_of_interest(input));
    all = all || nodes.back().empty();
  }
  if (!wanted) return std::nullopt;
  // A list of nodes may have 65,536 names (gpl/nodes.h).
  all = all || nodes.size() > 6 || nodes.empty();
  for (const auto& [name, proof] : failures.ended) nodes.push_back(name);
  for (auto& name : may_wait(failures)) nodes.push_back(std::move(name));
  for (const auto& [name, pod] : failures.pods)
    if (proof_of_death(*pod, "slurmd", find(snapshot.nodes, (*pod)["spec"]["nodeName"].string()))) nodes.push_back(name);
  all = all || nodes.size() > kMostNamed;
  return Look{kube::key_of(*head), cluster.worker.main.port, all ? "" : fmt::format("{}", fmt::join(nodes, ","))};
}

}  // namespace fairlead::slurm
