// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "api/cluster.h"
#include "api/node_set.h"
#include "slurm/plan/accounting.h"
#include "slurm/plan/gres.h"
#include "slurm/plan/node_sets.h"
#include "slurm/plan/render.h"
#include "slurm/plan/upgrade_pods.h"

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

SlurmCluster read_as_written(const Snapshot& snapshot, const std::string& default_image) {
  SlurmCluster cluster = api::read_slurm_cluster(snapshot.cluster, default_image);
  cluster.was_elected = find(snapshot.slices, active_service(cluster)) || find(snapshot.services, active_service(cluster)) || find(snapshot.secrets, quorum_secret(cluster));
  for (const auto& [name, pod] : snapshot.pods)
    if (owned_by(pod, cluster) && !setting_of_pod(pod, "FAIRLEAD_HEADS").empty()) cluster.was_elected = true;
  if (cluster.was_elected && cluster.controller.size == 1 && cluster.controller.spool.source_name.empty())
    cluster.problems.push_back("spec.slurmNodes.controller.volumes.spool: the state of this cluster is in the volume that its heads shared; name it in volumeSourceName, also for one head");
  std::vector<const Json*> sets;
  for (const auto& [name, object] : snapshot.node_sets) sets.push_back(&object);
  api::add_node_sets(cluster, sets, default_image, snapshot.only_cluster);
  settle_addresses(snapshot, cluster);
  settle_sharing(snapshot, cluster, default_image);
  return cluster;
}

SlurmCluster read_cluster(const Snapshot& snapshot, const std::string& default_image) {
  SlurmCluster cluster = read_as_written(snapshot, default_image);
  use_images(cluster, upgrade_of(snapshot, cluster, Instant{}).images);  // which do not depend on the time
  return cluster;
}

bool of_role(const Json& pod, const SlurmCluster& cluster, Role role) { return owned_by(pod, cluster) && pod["metadata"]["labels"][kRoleLabel].string() == text(role); }

const Json* ready_head(const Snapshot& snapshot, const SlurmCluster& cluster) {
  for (int i = 0; i < cluster.controller.size; ++i)
    if (const Json* pod = find(snapshot.pods, pod_name(Role::Controller, i)); pod && owned_by(*pod, cluster) && pod_ready(*pod) && !is_witness(*pod)) return pod;
  return nullptr;
}

const api::SlurmAutoscale* autoscale_of(const SlurmCluster& view) {
  if (view.set.held || view.set.deleting) return nullptr;
  for (const auto& rules : view.autoscale)
    if (rules.set == view.worker_set) return &rules;
  return nullptr;
}

SizeInput size_input(const Snapshot& snapshot, const SlurmCluster& cluster, Instant now) {
  SizeInput in{.memory = snapshot.cluster["status"]["autoscale"], .view = snapshot.view, .now = now};
  for (const auto& view : api::worker_views(cluster)) {
    if (view.set.held) continue;
    SizeSet set{.name = view.worker_set, .size = view.worker.size, .strict = view.scale_down.strict_ordinals};
    if (const auto* rules = autoscale_of(view)) set.rules = *rules;
    const Json* object = view.set.name.empty() ? &snapshot.cluster : find(snapshot.node_sets, view.set.name);
    if (object && !set.strict)
      for (const Json& one : (*object)["status"]["scaleDown"]["ordinals"].items())
        if (one.integer(-1) >= 0) set.current.push_back(static_cast<int>(one.integer()));
    for (const auto& [name, pod] : snapshot.pods)
      if (const int ordinal = ordinal_of(name, view, Role::Worker); ordinal >= 0 && of_role(pod, view, Role::Worker) && !kube::deleting(pod)) {
        set.pods.insert(ordinal);
        if (pod_ready(pod)) set.ready.insert(ordinal);
      }
    in.sets.push_back(std::move(set));
  }
  return in;
}

std::vector<SlurmCluster> views_in_force(const SizeInput& input, const SlurmCluster& cluster, const std::map<std::string, int>& sizes) {
  auto views = api::worker_views(cluster);
  for (auto& view : views)
    for (const auto& set : input.sets) {
      if (set.name != view.worker_set || !set.rules) continue;
      const auto planned = sizes.find(set.name);
      view.worker.size = planned != sizes.end() ? planned->second : size_in_force(set, input.memory);
    }
  return views;
}

// Made by a version that says of a pod which sub-mounts it has; of others it is not known, and they wait for somebody to delete them.
bool wants_other_mounts(const Json& pod, const std::string& mark) {
  const std::string& has = pod["metadata"]["annotations"][kMounts].string();
  return !kube::deleting(pod) && !has.empty() && has != mark;
}

// Would a pod that is deleted now be made again? As the last plan saw it, of this very resource.
static bool pods_can_be_made(const Json& cluster, const SlurmCluster& view) {
  return cluster["status"]["observedGeneration"].integer(-1) == view.generation && kube::condition_is_true(cluster, "VolumesReady") && (!view.jail.wanted() || kube::condition_is_true(cluster, "JailReady"));
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
  if (const auto* rules = autoscale_of(view)) {
    in.expected = rules->max;
    in.definition = worker_definition(view);
    in.interest = rules->min;
  }
  const Json* jobs = kube::find_condition(snapshot.cluster, "JobsCanStart");
  in.jobs_wait = jobs && (*jobs)["status"].string() == "False";
  const bool renews = !view.set.deleting && pods_can_be_made(snapshot.cluster, view);
  const std::string mark = mounts_mark(view, Role::Worker);
  for (const auto& [name, pod] : snapshot.pods)
    if (const int ordinal = ordinal_of(name, view, Role::Worker); ordinal >= 0) {
      if (of_role(pod, view, Role::Worker)) {
        in.pods[ordinal] = &pod;
        if (renews && wants_other_mounts(pod, mark)) in.renew.insert(ordinal);
        const Json& notes = pod["metadata"]["annotations"];
        if (const bool together = notes.has(api::kMadeAnewTogether); renews && !kube::deleting(pod) && (together || notes.has(api::kMadeAnew))) {
          in.renew.insert(ordinal);
          in.moved.insert(ordinal);
          if (together) in.together.insert(ordinal);
        }
        if (notes.has(api::kLeavesFirst)) in.first.insert(ordinal);
      }
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

std::vector<LoginPod> login_pods(const Snapshot& snapshot, const SlurmCluster& cluster) {
  std::vector<LoginPod> out;
  const bool renews = pods_can_be_made(snapshot.cluster, cluster);
  const std::string mark = mounts_mark(cluster, Role::Login);
  for (int i = 0; i < cluster.login.size; ++i) {
    LoginPod login{.name = pod_name(Role::Login, i)};
    if (const Json* pod = find(snapshot.pods, login.name); pod && of_role(*pod, cluster, Role::Login)) {
      login.uid = kube::uid_of(*pod);
      login.there = !kube::deleting(*pod);
      login.ready = pod_ready(*pod);
      login.renew = renews && wants_other_mounts(*pod, mark);
      if (const auto said = snapshot.sessions.find(login.uid); said != snapshot.sessions.end()) login.sessions = said->second;
    }
    out.push_back(std::move(login));
  }
  return out;
}

std::vector<ConfigOf> wants_sessions(const Snapshot& snapshot, const std::string& default_image) {
  const SlurmCluster cluster = read_cluster(snapshot, default_image);
  std::vector<ConfigOf> out;
  if (cluster.deleting || cluster.paused || !cluster.problems.empty()) return out;
  for (const LoginPod& login : login_pods(snapshot, cluster))
    if (login.renew) out.push_back({kube::key_of(snapshot.pods.at(login.name)), login.uid, "sshd"});
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

std::optional<std::chrono::seconds> action_look(const Json& cluster) {
  if (cluster["metadata"]["labels"][api::kClusterLabel].string().empty()) return std::nullopt;
  return std::chrono::seconds(cluster["status"]["nodeActions"].members().empty() ? 30 : 5);
}

std::optional<Look> wants_look(const Snapshot& snapshot, const std::string& default_image, Instant now) {
  const SlurmCluster cluster = read_cluster(snapshot, default_image);
  if (cluster.deleting || cluster.paused || !cluster.problems.empty()) return std::nullopt;
  const Json* head = ready_head(snapshot, cluster);
  if (!head) return std::nullopt;
  const FailureInput failures = failure_input(snapshot, cluster, now);
  bool wanted = needs_look(failures), all = false;
  std::vector<std::string> nodes;
  bool queue = false;
  for (const auto& view : views_in_force(size_input(snapshot, cluster, now), cluster, {})) {
    if (view.set.held) continue;
    queue = queue || autoscale_of(view);
    const ScaleInput input = scale_input(snapshot, view, now);
    wanted = wanted || needs_look(input) || (view.set.deleting && !view.set.name.empty());
    nodes.push_back(nodes_of_interest(input));
    all = all || nodes.back().empty();
  }
  if (!wanted && !queue) return std::nullopt;
  // A list of nodes may have 65,536 names (gpl/nodes.h).
  all = all || nodes.size() > 6 || nodes.empty();
  for (const auto& [name, proof] : failures.ended) nodes.push_back(name);
  for (auto& name : may_wait(failures)) nodes.push_back(std::move(name));
  for (const auto& [name, pod] : failures.pods)
    if (proof_of_death(*pod, "slurmd", find(snapshot.nodes, (*pod)["spec"]["nodeName"].string()))) nodes.push_back(name);
  all = all || nodes.size() > kMostNamed;
  return Look{kube::key_of(*head), cluster.worker.main.port, all ? "" : fmt::format("{}", fmt::join(nodes, ",")), queue ? kQueueLooked : 0};
}

}  // namespace fairlead::slurm
