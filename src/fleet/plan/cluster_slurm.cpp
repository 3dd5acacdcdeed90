// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/cluster_planner.h"

namespace fairlead::fleet::planner {

ShapeOptions Planner::shape_options() const {
  ShapeOptions out{.storage_class = options_.storage_class, .local_machines = options_.makes_machines};
  out.jail_image = options_.scripts.image;
  // It stays as it was made: a change would start what runs anew.
  if (in_.slurm.is_object()) out.local_machines = in_.slurm["spec"]["extensions"].has("bindCores");
  return out;
}

void Planner::shape_slurm() {
  if (kube::deleting(in_.slurm)) return look_again(std::chrono::seconds(1));  // somebody deleted it: it is made again when it is gone
  if (in_.space.is_null()) {
    add(Verb::Create, resources::namespaces, namespace_of(cluster_, object_), "what is made for the cluster is in it");
    return;
  }
  if (kube::deleting(in_.space)) return look_again(std::chrono::seconds(1));
  ShapeOptions shape = shape_options();
  for (Json& wanted : claims_of(cluster_, shape))
    if (std::none_of(in_.claims.begin(), in_.claims.end(), [&](const Json& there) { return kube::name_of(there) == kube::name_of(wanted); })) add(Verb::Create, resources::claims, std::move(wanted), "the cluster keeps its state and homes in it");
  std::map<std::string, int> sizes;
  std::set<std::string> sets;
  int nodes = 0;
  for (const InstanceGroup& group : cluster_.groups) {
    sizes[group.name] = sizes_.at(group.name).now;
    if (group.node_type != SlurmNodeType::Compute) continue;
    sets.insert(group.set);
    nodes += group.target;
    Json wanted = node_set_of(cluster_, group, sizes[group.name]);
    if (const Json* there = find_named(in_.node_sets, group.set); there == nullptr) add(Verb::Create, api::kNodeSets, std::move(wanted), fmt::format("group {}", group.name));
    else put(api::kNodeSets, *there, laid_over(*there, Json::object({{"spec", wanted["spec"]}})), fmt::format("group {}", group.name));
  }
  for (const Json& set : in_.node_sets)
    if (set["metadata"]["labels"][api::kClusterLabel].string() == cluster_.name && !sets.contains(kube::name_of(set))) {
      shape.ending[kube::name_of(set)] = set["metadata"]["annotations"][kPartitionNote].string();
      if (!kube::deleting(set)) add(Verb::Delete, api::kNodeSets, set, "its group is gone");
    }
  Json wanted = slurm_cluster_of(cluster_, sizes, shape);
  if (in_.slurm.is_object()) put(resources::slurm_clusters, in_.slurm, shaped(in_.slurm, wanted, nodes, api::read_strategy(api::spec_in_force(object_)["orchestrator"])), "the cluster");
  else add(Verb::Create, resources::slurm_clusters, shaped(wanted, wanted, nodes), "the cluster");
  // Slurm leaves login nodes beyond the size alone, for the people on them; here somebody asked for fewer.
  const auto logins = in_.slurm["spec"]["slurmNodes"]["login"]["size"].integer(1);
  for (const Json& pod : in_.pods)
    if (pod["metadata"]["labels"][api::kSlurmRoleLabel].string() == "login" && !kube::deleting(pod) && ordinal_of(pod) >= logins) add(Verb::Delete, resources::pods, pod, "fewer login nodes are asked for");
}

bool Planner::take_down() {
  if (!slurm_) return true;  // pods leave with their machines
  bool left = false;
  if (in_.slurm.is_object()) {
    left = true;
    if (!kube::deleting(in_.slurm)) add(Verb::Delete, resources::slurm_clusters, in_.slurm, "the cluster goes");
  }
  for (const Json& set : in_.node_sets) {
    left = true;
    if (!kube::deleting(set)) add(Verb::Delete, api::kNodeSets, set, "the cluster goes");
  }
  for (const Json& pod : in_.pods) {
    left = left || holds_machine(pod, cluster_.orchestrator);
    if (is_script(pod) && !overdue_ && !kube::deleting(pod)) add(Verb::Delete, resources::pods, pod, "the cluster goes");
    // What does not answer is not waited for any longer: its machine goes, too.
    if (!overdue_ || pod["spec"]["nodeName"].string().empty()) continue;
    add(Verb::Delete, resources::pods, pod, "it does not end");
    last().force = true;
  }
  if (!left || overdue_) return true;
  look_again(std::chrono::seconds(5));
  for (One& one : mine_) one.phase = "ShuttingDown", one.message = "what Slurm runs on it ends first";
  return false;
}

bool Planner::space_gone() {
  if (in_.space.is_null() || !is_namespace_of(in_.space, cluster_)) return true;
  if (!kube::deleting(in_.space)) add(Verb::Delete, resources::namespaces, in_.space, "the cluster goes");
  look_again(std::chrono::seconds(1));
  return false;
}

bool Planner::claims_gone() {
  bool gone = true;
  for (const Json& claim : in_.claims) {
    if (kube::name_of(claim) != kJailClaim && kube::name_of(claim) != kSpoolClaim) continue;
    gone = false;
    if (!kube::deleting(claim)) add(Verb::Delete, resources::claims, claim, "the cluster goes");
  }
  if (!gone) look_again(std::chrono::seconds(2));  // nobody tells of claims
  return gone;
}

void Planner::finish() {
  if (!space_gone()) return;
  Json without = object_;
  kube::remove_finalizer(without, api::kClusterFinalizer);
  add(Verb::Update, api::kClusters, std::move(without), "nothing of it is left");
  gone_ = true;
}

}  // namespace fairlead::fleet::planner
