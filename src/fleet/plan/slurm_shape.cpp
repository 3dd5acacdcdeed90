// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/slurm_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "api/instance_types.h"
#include "api/node_identity.h"
#include "api/node_set.h"

namespace fairlead::fleet {

using api::SlurmNodeType;
using kube::Json;
namespace resources = kube::resources;

namespace {

Json object_of(const kube::Resource& resource, const api::Cluster& cluster, const std::string& name) {
  Json metadata = Json::object({{"name", name}, {"labels", Json::object({{api::kClusterLabel, cluster.name}})}});
  if (resource.namespaced) metadata.set("namespace", cluster.space);
  return Json::object({{"apiVersion", resource.api_version()}, {"kind", resource.kind}, {"metadata", std::move(metadata)}});
}

Json selector_of(const api::Cluster& cluster, const api::InstanceGroup& group) { return Json::object({{api::kClusterLabel, cluster.name}, {api::kGroupNameLabel, group.name}}); }

// What is left of a machine of the type for the one pod of Slurm on it: an agent, a network plug-in and munge need the rest.
Json resources_of(const std::string& type_name, bool devices) {
  const api::InstanceType* type = api::find_instance_type(type_name);
  if (type == nullptr) return Json::object();
  const int cpus = type->cpus > 2 ? type->cpus - std::max(1, type->cpus / 16) : type->cpus - 1;
  Json out = Json::object({{"cpu", std::to_string(std::max(1, cpus))}, {"memory", fmt::format("{}Mi", type->memory_gib * 1024 / 10 * 8)}});
  if (devices && type->gpus > 0) out.set(api::kGpuResource, std::to_string(type->gpus));
  return out;
}
constexpr const char* kJailFilter = "machines";
Json munge_resources() { return Json::object({{"cpu", "100m"}, {"memory", "64Mi"}}); }

Json claim(const api::Cluster& cluster, const char* name, const char* size, const std::string& storage_class) {
  Json out = object_of(resources::claims, cluster, name);
  Json spec = Json::object({{"accessModes", Json::array({Json("ReadWriteMany")})}, {"resources", Json::object({{"requests", Json::object({{"storage", size}})}})}});
  if (!storage_class.empty()) spec.set("storageClassName", storage_class);
  out.set("spec", std::move(spec));
  return out;
}

// Every node is in partition dev, as in HyperPod, and compute nodes in their own. A partition goes after its last worker: its jobs would end with it.
std::map<std::string, std::string> partitions_of(const api::Cluster& cluster, const std::map<std::string, std::string>& ending) {
  std::map<std::string, std::string> nodes, out;
  std::set<std::string> open;
  const auto add = [&](const std::string& partition, const std::string& set) {
    if (partition.empty() || partition == "dev") return;
    std::string& list = nodes[partition];
    list += (list.empty() ? "" : ",") + set;
  };
  for (const api::InstanceGroup& group : cluster.groups)
    for (const std::string& partition : group.partitions) add(partition, group.set), open.insert(partition);
  for (const auto& [set, partition] : ending) add(partition, set);
  out["dev"] = "PartitionName=dev Nodes=ALL Default=YES MaxTime=INFINITE State=UP";
  for (const auto& [name, list] : nodes) out[name] = fmt::format("PartitionName={} Nodes={} MaxTime=INFINITE State={}", name, list, open.contains(name) ? "UP" : "DRAIN");
  return out;
}

// Entries of `ours` in the place of those of their names; the others stay.
Json by_name(const Json& there, const Json& ours) {
  Json out = Json::array();
  std::set<std::string> put;
  for (const Json& one : there.items()) {
    const auto same = std::find_if(ours.items().begin(), ours.items().end(), [&](const Json& mine) { return mine["name"] == one["name"]; });
    out.push(same == ours.items().end() ? one : *same);
    put.insert(one["name"].string());
  }
  for (const Json& one : ours.items())
    if (!put.contains(one["name"].string())) out.push(one);
  return out;
}

// The text with MaxNodeCount of at least so many nodes, in powers of two, since it takes a restart of slurmctld.
std::string with_max_nodes(const std::string& text, int nodes) {
  constexpr int default_of_ours = 512;
  if (nodes <= default_of_ours) return text;
  int wanted = default_of_ours;
  while (wanted < nodes) wanted *= 2;
  constexpr std::string_view key = "MaxNodeCount=";
  if (const auto at = text.find(key); at != std::string::npos) {
    if (std::atoi(text.c_str() + at + key.size()) >= nodes) return text;
    const auto end = text.find_first_not_of("0123456789", at + key.size());
    return text.substr(0, at + key.size()) + std::to_string(wanted) + (end == std::string::npos ? "" : text.substr(end));
  }
  return text + (text.empty() || text.ends_with('\n') ? "" : "\n") + fmt::format("{}{}\n", key, wanted);
}

}  // namespace

Json namespace_of(const api::Cluster& cluster, const Json& object) {
  Json out = object_of(resources::namespaces, cluster, cluster.space);
  out.child("metadata").set("annotations", Json::object({{"fairlead.dev/cluster-uid", kube::uid_of(object)}}));
  return out;
}

bool is_namespace_of(const Json& space, const api::Cluster& cluster) {
  return space["metadata"]["labels"][api::kClusterLabel].string() == cluster.name && space["metadata"]["annotations"]["fairlead.dev/cluster-uid"].string() == cluster.uid;
}

std::vector<Json> claims_of(const api::Cluster& cluster, const ShapeOptions& options) { return {claim(cluster, kJailClaim, "40Gi", options.storage_class), claim(cluster, kSpoolClaim, "1Gi", options.storage_class)}; }

Json node_set_of(const api::Cluster& cluster, const api::InstanceGroup& group, int size) {
  Json out = object_of(api::kNodeSets, cluster, group.set);
  if (!group.partitions.empty()) out.child("metadata").set("annotations", Json::object({{kPartitionNote, group.partitions.front()}}));
  const auto claim_source = [](const char* name) { return Json::object({{"persistentVolumeClaim", Json::object({{"claimName", name}})}}); };
  out.set("spec", Json::object({{"clusterName", cluster.slurm_name}, {"replicas", size}, {"nodeSelector", selector_of(cluster, group)},
                                {"slurmd", Json::object({{"resources", resources_of(group.type, true)}, {"volumes", Json::object({{"jail", claim_source(kJailClaim)}, {"spool", Json::object({{"emptyDir", Json::object()}})}})}})},
                                {"munge", Json::object({{"resources", munge_resources()}})},
                                {"extensions", Json::object({{"scaleDown", Json::object({{"strictOrdinals", false}})}})}}));
  return out;
}

Json slurm_cluster_of(const api::Cluster& cluster, const std::map<std::string, int>& sizes, const ShapeOptions& options) {
  Json out = object_of(resources::slurm_clusters, cluster, cluster.slurm_name);
  Json filters = Json::array(), nodes = Json::object();
  const auto role = [&](const char* name, const char* container, const api::InstanceGroup* group, Json volumes) {
    Json one = Json::object({{"size", group == nullptr ? 0 : sizes.contains(group->name) ? sizes.at(group->name) : group->target}, {container, Json::object({{"resources", resources_of(group == nullptr ? "ml.t3.medium" : group->type, false)}})},
                             {"munge", Json::object({{"resources", munge_resources()}})}, {"volumes", std::move(volumes)}});
    if (group != nullptr) {
      filters.push(Json::object({{"name", name}, {"nodeSelector", selector_of(cluster, *group)}}));
    }
    one.set("k8sNodeFilterName", group != nullptr ? name : "");
    nodes.set(name, std::move(one));
  };
  const api::InstanceGroup *controllers = nullptr, *logins = nullptr;
  bool gpus = false;
  for (const api::InstanceGroup& group : cluster.groups) {
    if (group.node_type == SlurmNodeType::Controller) controllers = &group;
    if (group.node_type == SlurmNodeType::Login) logins = &group;
    const api::InstanceType* type = api::find_instance_type(group.type);
    gpus = gpus || (type != nullptr && type->gpus > 0);
  }
  const auto jail = [] { return Json::object({{"volumeSourceName", "jail"}}); };
  role("controller", "slurmctld", controllers, Json::object({{"spool", Json::object({{"volumeSourceName", "controller-spool"}})}, {"jail", jail()}}));
  role("login", "sshd", logins, Json::object({{"jail", jail()}}));
  const auto source = [](const char* name, const char* claim_name) { return Json::object({{"name", name}, {"persistentVolumeClaim", Json::object({{"claimName", claim_name}})}}); };
  Json extensions = Json::object({{"scaleDown", Json::object({{"strictOrdinals", false}})}});
  if (options.local_machines) {
    extensions.set("bindCores", false);
    if (gpus) extensions.set("mockGpus", true);
  }
  Json lines = Json::array();
  std::string names;
  for (const auto& [name, line] : partitions_of(cluster, options.ending)) {
    lines.push(line);
    names += (names.empty() ? "" : ",") + name;
  }
  out.child("metadata").set("annotations", Json::object({{api::kPartitionsNote, names}, {api::node_identity::pods_note, "true"}}));
  // What scripts install is on all nodes, and stays when a node's pod is made anew. Any machine of the cluster may fill it.
  if (cluster.has_scripts()) filters.push(Json::object({{"name", kJailFilter}, {"nodeSelector", Json::object({{api::kClusterLabel, cluster.name}})}}));
  out.set("spec", Json::object({{"k8sNodeFilters", std::move(filters)}, {"volumeSources", Json::array({source("controller-spool", kSpoolClaim), source("jail", kJailClaim)})}, {"slurmNodes", std::move(nodes)},
                                {"partitionConfiguration", Json::object({{"configType", "custom"}, {"rawConfig", std::move(lines)}})}, {"extensions", std::move(extensions)}}));
  if (cluster.has_scripts()) out.child("spec").set("populateJail", Json::object({{"image", options.jail_image}, {"k8sNodeFilterName", kJailFilter}}));
  return out;
}

Json laid_over(Json there, const Json& wanted) {
  if (!there.is_object() || !wanted.is_object()) return wanted;
  for (const auto& [name, value] : wanted.members()) there.set(name, laid_over(there[name], value));
  return there;
}

Json shaped(const Json& there, const Json& wanted, int nodes, api::SlurmConfigStrategy strategy) {
  Json want = Json::object({{"metadata", Json::object({{"annotations", wanted["metadata"]["annotations"]}})}, {"spec", wanted["spec"]}});
  Json& spec = want.child("spec");
  for (const char* const list : {"k8sNodeFilters", "volumeSources"}) spec.set(list, by_name(there["spec"][list], wanted["spec"][list]));
  // Partitions of people stay; those that were ours and are no more go.
  Json lines = wanted["spec"]["partitionConfiguration"]["rawConfig"];
  if (strategy != api::SlurmConfigStrategy::Overwrite)
    for (std::string& line : api::lines_of_people(there, wanted["metadata"]["annotations"][api::kPartitionsNote].string())) lines.push(std::move(line));
  spec.child("partitionConfiguration").set("rawConfig", std::move(lines));
  if (!there["spec"]["populateJail"].is_null()) spec.erase("populateJail");  // as somebody chose it, or as it was filled
  const std::string& custom = there["spec"]["customSlurmConfig"].string();
  if (const std::string text = with_max_nodes(custom, nodes); text != custom) spec.set("customSlurmConfig", text);
  return laid_over(there, want);
}

}  // namespace fairlead::fleet
