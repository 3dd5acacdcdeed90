// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/made_cluster.h"

#include <fmt/format.h>

#include <algorithm>

#include "hyperpod/paging.h"
#include "hyperpod/plan_view.h"

namespace fairlead::hyperpod {
namespace {

// Of a group: what became of the last update of its software; null: it was never updated.
Json software_update(const Json& cluster, const std::string& group) {
  if (software_update_waits(cluster) && api::read_cluster(cluster).software.of(group)) return Json("Pending");
  for (const Json& one : cluster["status"]["softwareUpdate"]["instanceGroups"].items())
    if (one["instanceGroupName"].string() == group) return one["status"];
  return Json();
}

Json group_details(const Sources& sources, const Json& group, const Json& status) {
  Json told = spec_to_cluster(group);
  const Json min = told["MinInstanceCount"];
  // Both are the same: a change counts at once.
  if (const Json config = told["KubernetesConfig"]; !config.is_null()) {
    Json details = Json::object();
    for (const char* const what : {"Labels", "Taints"})
      if (config.has(what)) details.set(std::string("Current") + what, config[what]).set(std::string("Desired") + what, config[what]);
    told.set("KubernetesConfig", std::move(details));
  }
  Json out = only_known(sources.model, sources.model.shape("ClusterInstanceGroupDetails"), told);
  if (!min.is_null()) out.set("MinCount", min);
  return out.set("CurrentCount", status["current"].integer()).set("TargetCount", group["instanceCount"].integer()).set("Status", status["status"].string_or("Creating"));
}

Json instance_status(const Json& instance) {
  Json out = Json::object({{"Status", instance["status"]["phase"].string_or("Pending")}});
  if (const std::string& message = instance["status"]["message"].string(); !message.empty()) out.set("Message", cut(message, 1024));
  return out;
}

Json summary(const Json& instance) {
  const Json& spec = instance["spec"];
  // A node that has no machine yet has no instance: AWS gives it no id.
  const bool has_machine = !instance["status"]["node"].string().empty();
  return Json::object({{"InstanceGroupName", spec["instanceGroupName"]}, {"InstanceId", has_machine ? kube::name_of(instance) : ""}, {"NodeLogicalId", spec["nodeLogicalId"]}, {"InstanceType", spec["instanceType"]}, {"LaunchTime", epoch(created_at(instance))}, {"InstanceStatus", instance_status(instance)}});
}

// A node that was updated; null: it is as it was made.
Json updated_at(const Json& instance) {
  const Json& software = instance["status"]["software"];
  const auto at = parse_time(software["updated"].string());
  return at ? epoch(*at) : Json();
}

}  // namespace

Answer<Json> describe_made(const Sources& sources, const Site& site, const Json& cluster, Instant now) {
  const Json spec = api::spec_in_force(cluster);
  const Json& status = cluster["status"];
  Json groups = Json::array();
  const auto state_of = [&](const std::string& group) -> const Json& {
    for (const Json& one : status["instanceGroups"].items())
      if (one["instanceGroupName"].string() == group) return one;
    static const Json none;
    return none;
  };
  for (const Json& group : spec["instanceGroups"].items()) {
    const std::string& name = group["instanceGroupName"].string();
    Json told = group_details(sources, group, state_of(name));
    if (Json update = software_update(cluster, name); !update.is_null()) {
      if (update.string() == "InProgress" || update.string() == "Pending" || update.string() == "RollbackInProgress")
        if (const Json& config = spec["softwareUpdate"]["deploymentConfig"]; config.is_object()) told.set("ActiveSoftwareUpdateConfig", upper_names(config));
      told.set("SoftwareUpdateStatus", std::move(update));
    }
    if (const std::string& named = group["trainingPlanArn"].string(); !named.empty()) {
      told.set("TrainingPlanArn", plan_arn(site, named));
      if (Json plan = plan_status(sources, site, named, now); !plan.is_null()) told.set("TrainingPlanStatus", std::move(plan));
    }
    groups.push(std::move(told));
  }
  for (const Json& left : status["instanceGroups"].items())
    if (left["status"].string() == "Deleting") groups.push(Json::object({{"InstanceGroupName", left["instanceGroupName"]}, {"CurrentCount", left["current"].integer()}, {"TargetCount", 0}, {"Status", "Deleting"}}));
  Json out = Json::object({{"ClusterArn", cluster_arn(site, cluster)}, {"ClusterName", name_of_entity(cluster)}, {"ClusterStatus", cluster_status(cluster)}, {"CreationTime", epoch(created_at(cluster))}, {"InstanceGroups", std::move(groups)}});
  const Json told = spec_to_cluster(spec);
  out.set("Orchestrator", told.has("Orchestrator") ? told["Orchestrator"] : Json::object({{"Slurm", Json::object()}}));
  for (const char* const member : {"VpcConfig", "NodeProvisioningMode", "ClusterRole"})
    if (told.has(member)) out.set(member, told[member]);
  out.set("NodeRecovery", spec["nodeRecovery"].string_or("Automatic"));
  if (const std::string& message = status["message"].string(); !message.empty()) out.set("FailureMessage", message);
  return only_known(sources.model, sources.model.shape("DescribeClusterResponse"), out);
}

Answer<Json> list_made_nodes(const Sources& sources, const Json& cluster, const Json& input) {
  const bool with_logical = input["IncludeNodeLogicalIds"].boolean();
  const std::string& contains = input["InstanceGroupNameContains"].string();
  const std::string& uid = kube::uid_of(cluster);
  std::vector<Json> found;
  std::vector<Entry> entries;
  sources.instances.each("", [&](const Json& instance) {
    const Json& spec = instance["spec"];
    if (spec["clusterUid"].string() != uid || spec["instanceGroupName"].string().find(contains) == std::string::npos) return;
    if (!with_logical && instance["status"]["node"].string().empty()) return;
    entries.push_back({.name = fmt::format("{}-{:08}", spec["instanceGroupName"].string(), spec["number"].integer()), .id = kube::name_of(instance), .created = created_at(instance), .status = {}, .cluster = {}, .at = found.size()});
    found.push_back(instance);
  });
  auto page = page_of(std::move(entries), input, [&](const Entry& entry) {
    Json told = summary(found[entry.at]);
    if (Json at = updated_at(found[entry.at]); !at.is_null()) told.set("LastSoftwareUpdateTime", std::move(at));
    return told;
  });
  if (!page) return std::unexpected(page.error());
  Json out = Json::object({{"ClusterNodeSummaries", std::move(page->items)}});
  if (!page->next.empty()) out.set("NextToken", page->next);
  return out;
}

std::optional<Json> instance_by_id(const Sources& sources, const Json& cluster, const std::string& id) {
  auto found = sources.instances.get({"", id});
  if (!found || (*found)["spec"]["clusterUid"].string() != kube::uid_of(cluster)) return std::nullopt;
  return found;
}

std::map<std::string, Json> instances_by_logical_id(const Sources& sources, const Json& cluster, const std::set<std::string>& ids) {
  std::map<std::string, Json> out;
  if (ids.empty()) return out;
  sources.instances.each("", [&](const Json& instance) {
    const Json& spec = instance["spec"];
    if (spec["clusterUid"].string() != kube::uid_of(cluster) || !ids.contains(spec["nodeLogicalId"].string())) return;
    Json& there = out[spec["nodeLogicalId"].string()];
    if (there.is_null() || spec["attempt"].integer() > there["spec"]["attempt"].integer()) there = instance;
  });
  return out;
}

Answer<Json> describe_made_node(const Sources& sources, const Json& cluster, const Json& input) {
  const std::string &id = input["NodeId"].string(), &logical = input["NodeLogicalId"].string();
  std::optional<Json> instance;
  if (!id.empty()) instance = instance_by_id(sources, cluster, id);
  else if (auto found = instances_by_logical_id(sources, cluster, {logical}); !found.empty()) instance = std::move(found.begin()->second);
  if (!instance) return refuse("ResourceNotFound", fmt::format("Node {} not found in cluster {}", id.empty() ? logical : id, name_of_entity(cluster)));
  Json group;
  const Json spec = api::spec_in_force(cluster);
  for (const Json& one : spec["instanceGroups"].items())
    if (one["instanceGroupName"] == (*instance)["spec"]["instanceGroupName"]) group = spec_to_cluster(one);
  group.erase("KubernetesConfig");
  Json node = only_known(sources.model, sources.model.shape("ClusterNodeDetails"), group.is_null() ? Json::object() : group);
  const Json told = summary(*instance);
  for (const auto& [name, value] : told.members()) node.set(name, value);
  if (Json at = updated_at(*instance); !at.is_null()) node.set("LastSoftwareUpdateTime", std::move(at));
  const Json& status = (*instance)["status"];
  if (const std::string& address = status["address"].string(); !address.empty()) node.set("PrivatePrimaryIp", address);
  if (const std::string& address = status["address6"].string(); !address.empty()) node.set("PrivatePrimaryIpv6", address);
  return Json::object({{"NodeDetails", std::move(node)}});
}

}  // namespace fairlead::hyperpod
