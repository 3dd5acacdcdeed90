// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "api/instance_types.h"
#include "api/network_ways.h"
#include "api/node_set.h"
#include "api/slurm_cluster.h"
#include "base/encoding.h"
#include "hyperpod/made_cluster.h"
#include "hyperpod/paging.h"
#include "hyperpod/plan_view.h"
#include "kube/pod_words.h"

namespace fairlead::hyperpod {
namespace {

constexpr const char* unknown_type = "unknown";  // of a machine whose node has no such label

struct Instance {
  std::string group, id, logical_id, type, status, message, address, address6;
  Instant launched;
};
struct Group {
  std::string name, node_type, type;
  std::int64_t target = 0, ready = 0;
};
struct Cluster {
  Json object;
  std::string status, failure;
  std::vector<Group> groups;
  std::vector<Instance> instances;  // by group and name
};

// The same for as long as the node of this name lives on this machine: a pod that starts again keeps it, a node on another machine has another.
std::string instance_id(const Json& cluster, const std::string& name, const std::string& machine_uid) { return "i-" + hex(sha256(kube::uid_of(cluster) + "/" + name + "/" + machine_uid)).substr(0, 17); }

std::string status_of(const Json& pod) {
  if (kube::deleting(pod)) return "ShuttingDown";
  const std::string& phase = pod["status"]["phase"].string();
  if (phase == "Failed") return "Failure";
  return phase == "Running" && kube::condition_is_true(pod, "Ready") ? "Running" : "Pending";
}

std::string group_of(const Json& pod) {
  const Json& labels = pod["metadata"]["labels"];
  const std::string& role = labels[api::kSlurmRoleLabel].string();
  return role == "worker" ? labels[api::kNodeSetLabel].string_or("worker") : role;
}

// What the object and its pods say. Each Slurm node is an instance.
Answer<Cluster> read_cluster(const Sources& sources, Json object) {
  Cluster out;
  const std::string space = kube::space_of(object);
  const auto pods = sources.api.list(kube::resources::pods, space, {.label_selector = fmt::format("{}={}", api::kSlurmClusterLabel, kube::name_of(object)), .field_selector = {}, .limit = 0, .continue_token = {}, .resource_version = "0"});
  if (!pods) return std::unexpected(aws_error(pods.error(), "read the nodes of the cluster"));

  const Json& spec = object["spec"]["slurmNodes"];
  const auto add_group = [&](const std::string& name, const char* node_type, std::int64_t target) { out.groups.push_back({name, node_type, "", target, 0}); };
  add_group("controller", "Controller", spec["controller"]["size"].integer(1));
  if (spec.has("login")) add_group("login", "Login", spec["login"]["size"].integer(1));
  if (spec.has("worker")) add_group("worker", "Compute", spec["worker"]["size"].integer(1));

  for (const Json& pod : pods->items) {
    const std::string group = group_of(pod);
    const std::string& role = pod["metadata"]["labels"][api::kSlurmRoleLabel].string();
    if (role != "controller" && role != "login" && role != "worker") continue;  // accounting, exporter: no instances of the cluster
    const std::string& name = kube::name_of(pod);
    const std::string& machine = pod["spec"]["nodeName"].string();
    const std::optional<Json> node = machine.empty() ? std::nullopt : sources.nodes.get({"", machine});
    Instance instance{.group = group, .id = instance_id(object, name, node ? kube::uid_of(*node) : ""), .logical_id = name, .type = node ? (*node)["metadata"]["labels"][api::kInstanceTypeLabel].string_or(unknown_type) : unknown_type, .status = status_of(pod), .message = {}, .address = {}, .address6 = {}, .launched = parse_time(pod["status"]["startTime"].string()).value_or(created_at(pod))};
    if (instance.status != "Running") {
      const kube::PodWords words = kube::words_of_pod(pod);
      instance.message = cut(fmt::format("{} on {}: {}", name, node ? kube::name_of(*node) : "no machine yet", words.status), 1024);
    }
    for (const Json& one : pod["status"]["podIPs"].items()) {
      const std::string& address = one["ip"].string();
      (address.find(':') == address.npos ? instance.address : instance.address6) = address;
    }
    auto found = std::find_if(out.groups.begin(), out.groups.end(), [&](const Group& one) { return one.name == group; });
    if (found == out.groups.end()) {
      add_group(group, "Compute", 0);
      found = out.groups.end() - 1;
    }
    if (instance.status == "Running") ++found->ready;
    if (found->type.empty() && instance.type != unknown_type) found->type = instance.type;
    out.instances.push_back(std::move(instance));
  }
  std::sort(out.instances.begin(), out.instances.end(), [](const Instance& a, const Instance& b) { return std::tie(a.group, a.logical_id) < std::tie(b.group, b.logical_id); });

  out.status = cluster_status(object);
  if (out.status == "Failed") out.failure = (*kube::find_condition(object, "SpecValid"))["message"].string();
  out.object = std::move(object);
  return out;
}

// NodeSets of a cluster say how many they should be.
Answer<void> add_sets(const Sources& sources, Cluster& cluster) {
  const auto sets = sources.api.list(api::kNodeSets, kube::space_of(cluster.object), {.label_selector = {}, .field_selector = {}, .limit = 0, .continue_token = {}, .resource_version = "0"});
  if (!sets && sets.error().code == Code::NotFound) return {};  // the kind is not installed: there are none
  if (!sets) return std::unexpected(aws_error(sets.error(), "read the NodeSets of the cluster"));
  const bool only = sources.index.in_space(kube::space_of(cluster.object)) == 1;
  for (const Json& set : sets->items) {
    const std::string of = api::cluster_of_node_set(set);
    if (of.empty() ? !only : of != kube::name_of(cluster.object)) continue;
    const auto found = std::find_if(cluster.groups.begin(), cluster.groups.end(), [&](const Group& one) { return one.name == kube::name_of(set); });
    const std::int64_t target = set["spec"]["replicas"].integer(1);
    if (found == cluster.groups.end()) cluster.groups.push_back({kube::name_of(set), "Compute", "", target, 0});
    else found->target = target;
  }
  return {};
}

Json group_details(const Cluster& cluster, const Group& group) {
  const bool lacks = cluster.status == "InService" && group.ready < group.target;
  const std::string status = lacks ? "Degraded" : cluster.status;
  Json out = Json::object({{"InstanceGroupName", group.name}, {"CurrentCount", group.ready}, {"TargetCount", group.target}, {"Status", status}, {"SlurmConfig", Json::object({{"NodeType", group.node_type}})}});
  if (!group.type.empty()) out.set("InstanceType", group.type);
  return out;
}

Json status_details(const Instance& one) {
  Json out = Json::object({{"Status", one.status}});
  if (!one.message.empty()) out.set("Message", one.message);
  return out;
}

// ARNs of the plans of a cluster's groups.
std::set<std::string> plans_of(const Sources& sources, const Site& site, const ClusterRow& row) {
  std::set<std::string> out;
  const auto cluster = row.key.space.empty() ? sources.made.get(row.key) : std::nullopt;
  if (!cluster) return out;
  const Json spec = api::spec_in_force(*cluster);
  for (const Json& group : spec["instanceGroups"].items())
    if (const std::string& named = group["trainingPlanArn"].string(); !named.empty()) out.insert(plan_arn(site, named));
  return out;
}

Answer<Json> list_clusters(const Sources& sources, const Call& call, const Json& input) {
  if (auto done = call.allow("sagemaker:ListClusters", "*"); !done) return std::unexpected(done.error());
  std::vector<Entry> entries;
  std::vector<ClusterRow> rows = sources.index.all();
  const std::string& wanted = input["TrainingPlanArn"].string();
  entries.reserve(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (const ClusterRow& row = rows[i]; wanted.empty() || plans_of(sources, call.site, row).contains(wanted)) entries.push_back({.name = row.name, .id = row.id, .created = row.created, .status = row.status, .cluster = {}, .at = i});
  auto page = page_of(std::move(entries), input, [&](const Entry& one) {
    Json told = Json::object({{"ClusterArn", arn_of(call.site, "cluster", one.id)}, {"ClusterName", one.name}, {"CreationTime", epoch(one.created)}, {"ClusterStatus", one.status}});
    if (const std::set<std::string> plans = plans_of(sources, call.site, rows[one.at]); !plans.empty()) {
      Json arns = Json::array();
      for (const std::string& arn : plans) arns.push(arn);
      told.set("TrainingPlanArns", std::move(arns));
    }
    return told;
  });
  if (!page) return std::unexpected(page.error());
  Json out = Json::object({{"ClusterSummaries", std::move(page->items)}});
  if (!page->next.empty()) out.set("NextToken", page->next);
  return out;
}

Answer<Json> describe_cluster(const Sources& sources, const Call& call, const Json& input) {
  auto object = allowed_cluster(sources, call, "DescribeCluster", input);
  if (!object) return object;
  if (is_made(*object)) return describe_made(sources, call.site, *object, call.now);
  auto cluster = read_cluster(sources, std::move(*object));
  if (!cluster) return std::unexpected(cluster.error());
  if (auto done = add_sets(sources, *cluster); !done) return std::unexpected(done.error());
  Json groups = Json::array();
  for (const Group& group : cluster->groups) groups.push(group_details(*cluster, group));
  Json out = Json::object({{"ClusterArn", cluster_arn(call.site, cluster->object)}, {"ClusterName", kube::name_of(cluster->object)}, {"ClusterStatus", cluster->status}, {"CreationTime", epoch(created_at(cluster->object))}, {"InstanceGroups", std::move(groups)},
                           {"Orchestrator", Json::object({{"Slurm", Json::object()}})}, {"NodeRecovery", "None"}, {"NodeProvisioningMode", "Continuous"}});
  if (!cluster->failure.empty()) out.set("FailureMessage", cluster->failure);
  return out;
}

Answer<Json> list_nodes(const Sources& sources, const Call& call, const Json& input) {
  auto object = allowed_cluster(sources, call, "ListClusterNodes", input);
  if (!object) return object;
  if (is_made(*object)) return list_made_nodes(sources, *object, input);
  const auto cluster = read_cluster(sources, std::move(*object));
  if (!cluster) return std::unexpected(cluster.error());
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < cluster->instances.size(); ++i)
    if (const Instance& one = cluster->instances[i]; one.group.find(input["InstanceGroupNameContains"].string()) != std::string::npos) entries.push_back({.name = one.logical_id, .id = one.id, .created = one.launched, .status = one.status, .cluster = {}, .at = i});
  auto page = page_of(std::move(entries), input, [&](const Entry& entry) {
    const Instance& one = cluster->instances[entry.at];
    return Json::object({{"InstanceGroupName", one.group}, {"InstanceId", one.id}, {"NodeLogicalId", one.logical_id}, {"InstanceType", one.type}, {"LaunchTime", epoch(one.launched)}, {"InstanceStatus", status_details(one)}});
  });
  if (!page) return std::unexpected(page.error());
  Json out = Json::object({{"ClusterNodeSummaries", std::move(page->items)}});
  if (!page->next.empty()) out.set("NextToken", page->next);
  return out;
}

Answer<Json> describe_node(const Sources& sources, const Call& call, const Json& input) {
  const std::string &id = input["NodeId"].string(), &logical = input["NodeLogicalId"].string();
  if (id.empty() == logical.empty()) return invalid("Exactly one of NodeId and NodeLogicalId has to be given");
  auto object = allowed_cluster(sources, call, "DescribeClusterNode", input);
  if (!object) return object;
  if (is_made(*object)) return describe_made_node(sources, *object, input);
  const auto cluster = read_cluster(sources, std::move(*object));
  if (!cluster) return std::unexpected(cluster.error());
  const auto found = std::find_if(cluster->instances.begin(), cluster->instances.end(), [&](const Instance& one) { return id.empty() ? one.logical_id == logical : one.id == id; });
  if (found == cluster->instances.end()) return refuse("ResourceNotFound", fmt::format("Node {} not found in cluster {}", id.empty() ? logical : id, kube::name_of(cluster->object)));
  Json node = Json::object({{"InstanceGroupName", found->group}, {"InstanceId", found->id}, {"NodeLogicalId", found->logical_id}, {"InstanceStatus", status_details(*found)}, {"InstanceType", found->type}, {"LaunchTime", epoch(found->launched)}});
  if (!found->address.empty()) node.set("PrivatePrimaryIp", found->address);
  if (!found->address6.empty()) node.set("PrivatePrimaryIpv6", found->address6);
  return Json::object({{"NodeDetails", std::move(node)}});
}

}  // namespace

Answer<Json> find_fresh(const Sources& sources, const Site& site, const std::string& name_or_arn) {
  if (!name_or_arn.starts_with("arn:")) {
    auto now = sources.api.get(api::kClusters, {"", object_name_of(name_or_arn)});
    if (now && name_of_entity(*now) == name_or_arn) return std::move(*now);
    if (!now && now.error().code != Code::NotFound) return std::unexpected(aws_error(now.error(), "read the cluster"));
  } else if (name_or_arn.starts_with(arn_of(site, "cluster", ""))) {
    auto list = sources.api.list(api::kClusters, "");
    if (!list) return std::unexpected(aws_error(list.error(), "read the clusters"));
    for (Json& one : list->items)
      if (cluster_arn(site, one) == name_or_arn) return std::move(one);
  }
  return refuse("ResourceNotFound", fmt::format("Cluster {} not found", name_or_arn));
}

Answer<Json> allowed_cluster(const Sources& sources, const Call& call, const char* action, const Json& input) {
  const std::string& name = input["ClusterName"].string();
  auto cluster = find_cluster(sources, call.site, name);
  // Who may not see clusters is not told which there are: a name that is nobody's is asked for as an ARN with no id, and a refusal has the name alone.
  const auto allow = [&] {
    const std::string arn = cluster ? cluster_arn(call.site, *cluster) : name.starts_with("arn:") ? name : arn_of(call.site, "cluster", "");
    iam::Keys keys = cluster ? tag_keys({}, tags_of(*cluster)) : iam::Keys();
    set_request_keys(keys, input);
    return call.allow(std::string("sagemaker:") + action, arn, keys, name);
  };
  if (auto done = allow(); !done) return std::unexpected(done.error());
  if (cluster || cluster.error().code != "ResourceNotFound") return cluster;
  // Only for who may is the API itself asked.
  cluster = find_fresh(sources, call.site, name);
  if (!cluster) return cluster;
  if (auto done = allow(); !done) return std::unexpected(done.error());
  return cluster;
}

Answer<Json> cluster_to_change(const Sources& sources, const Call& call, const char* action, const Json& input) {
  auto cluster = allowed_cluster(sources, call, action, input);
  if (!cluster) return cluster;
  if (!is_made(*cluster)) return invalid(fmt::format("Cluster {} was not made by CreateCluster: change SlurmCluster {}", kube::name_of(*cluster), kube::key_of(*cluster).text()));
  auto now = sources.api.get(api::kClusters, kube::key_of(*cluster));
  if (!now && now.error().code != Code::NotFound) return std::unexpected(aws_error(now.error(), action));
  if (!now || kube::uid_of(*now) != kube::uid_of(*cluster)) return refuse("ResourceNotFound", fmt::format("Cluster {} not found", input["ClusterName"].string()));
  if (kube::deleting(*now)) return refuse("ConflictException", fmt::format("Cluster {} is being deleted", name_of_entity(*now)));
  return std::move(*now);
}

Answer<Json> change_cluster(const Sources& sources, const Json& cluster, const char* action, const std::function<Answer<void>(Json& cluster)>& apply) {
  for (int attempt = 0;; ++attempt) {
    auto now = sources.api.get(api::kClusters, kube::key_of(cluster));
    if (!now) return std::unexpected(aws_error(now.error(), action));
    if (kube::uid_of(*now) != kube::uid_of(cluster) || kube::deleting(*now)) return refuse("ConflictException", fmt::format("Cluster {} is being deleted", name_of_entity(cluster)));
    if (auto done = apply(*now); !done) return std::unexpected(done.error());
    auto done = sources.api.update(api::kClusters, *now);
    if (done) return std::move(*done);
    if (done.error().code != Code::Conflict || attempt >= 20) return std::unexpected(aws_error(done.error(), action));
  }
}

std::string cluster_arn(const Site& site, const Json& cluster) { return arn_of(site, "cluster", entity_id(kube::uid_of(cluster))); }

Answer<Json> find_cluster(const Sources& sources, const Site& site, const std::string& name_or_arn) {
  std::vector<ClusterRow> rows;
  if (name_or_arn.starts_with("arn:")) {
    const std::string begin = arn_of(site, "cluster", "");
    if (name_or_arn.starts_with(begin))
      if (auto row = sources.index.with_id(std::string_view(name_or_arn).substr(begin.size()))) rows.push_back(std::move(*row));
  } else {
    rows = sources.index.named(name_or_arn);
  }
  // A Cluster comes before SlurmClusters of its name: nobody takes it away from its users by making one.
  if (const auto made = std::find_if(rows.begin(), rows.end(), [](const ClusterRow& row) { return row.key.space.empty(); }); made != rows.end()) rows = {*made};
  if (rows.size() > 1) return invalid(fmt::format("There are clusters {} in namespaces {} and {}: name it by its ARN (ListClusters)", name_or_arn, rows[0].key.space, rows[1].key.space));
  auto object = rows.empty() ? std::nullopt : (rows.front().key.space.empty() ? sources.made : sources.clusters).get(rows.front().key);
  if (!object || entity_id(kube::uid_of(*object)) != rows.front().id) return refuse("ResourceNotFound", fmt::format("Cluster {} not found", name_or_arn));
  return std::move(*object);
}

void add_cluster_operations(Operations& operations, const Sources& sources) {
  operations["ListClusters"] = [sources](const Call& call, const Json& input) { return list_clusters(sources, call, input); };
  operations["DescribeCluster"] = [sources](const Call& call, const Json& input) { return describe_cluster(sources, call, input); };
  operations["ListClusterNodes"] = [sources](const Call& call, const Json& input) { return list_nodes(sources, call, input); };
  operations["DescribeClusterNode"] = [sources](const Call& call, const Json& input) { return describe_node(sources, call, input); };
}

}  // namespace fairlead::hyperpod
