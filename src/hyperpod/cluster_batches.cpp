// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/encoding.h"
#include "hyperpod/made_cluster.h"
#include "hyperpod/paging.h"

namespace fairlead::hyperpod {
namespace {

constexpr std::chrono::hours token_holds{8};
constexpr int most_at_once = 50, most_in_group = 6758;

// ---- BatchAddClusterNodes

constexpr std::size_t most_tokens = 500;  // an object has its bounds; a caller that adds one node every minute needs 480

// The nodes of an earlier call of this token, as they are now.
Json replayed(const Sources& sources, const Json& cluster, const Json& addition) {
  std::vector<std::pair<std::string, int>> numbers;  // group and number
  std::set<std::string> ids;
  for (const Json& entry : addition["groups"].items())
    for (int i = 0; i < entry["count"].integer(); ++i) {
      numbers.emplace_back(entry["instanceGroupName"].string(), static_cast<int>(entry["first"].integer()) + i);
      ids.insert(api::logical_id_of(kube::uid_of(cluster), numbers.back().first, numbers.back().second));
    }
  const auto there = instances_by_logical_id(sources, cluster, ids);
  const api::Cluster now = api::read_cluster(cluster);
  Json out = Json::array();
  for (const auto& [group, number] : numbers) {
    const std::string logical = api::logical_id_of(kube::uid_of(cluster), group, number);
    const auto instance = there.find(logical);
    // One that the controller has not come to is on its way; one that was retired is gone.
    const api::InstanceGroup* of = now.group(group);
    const bool gone = of == nullptr || of->retired.contains(number);
    out.push(Json::object({{"NodeLogicalId", logical}, {"InstanceGroupName", group}, {"Status", instance != there.end() ? instance->second["status"]["phase"].string_or("Pending") : gone ? "NotFound" : "Pending"}}));
  }
  return out;
}

Answer<Json> batch_add(const Sources& sources, const Call& call, const Json& input) {
  const auto cluster = cluster_to_change(sources, call, "BatchAddClusterNodes", input);
  if (!cluster) return cluster;
  if ((*cluster)["spec"]["nodeProvisioningMode"].string() != "Continuous") return invalid(fmt::format("Cluster {} has not NodeProvisioningMode Continuous: use UpdateCluster", name_of_entity(*cluster)));
  const auto& asked = input["NodesToAdd"].items();
  std::int64_t all = 0;
  for (const Json& one : asked) all += one["IncrementTargetCountBy"].integer();
  if (all > most_at_once) return invalid(fmt::format("NodesToAdd: {} nodes; {} can be added at once", all, most_at_once));
  for (std::size_t i = 0; i < asked.size(); ++i)
    for (const char* const member : {"AvailabilityZones", "InstanceTypes"})
      if (asked[i].has(member)) return invalid(fmt::format("NodesToAdd[{}].{} is not served yet: groups have one type", i, member));
  const std::string token = input["ClientToken"].string().empty() ? "" : hex(sha256(input["ClientToken"].string()));
  const std::string request = hex(sha256(kube::print_json(input["NodesToAdd"])));

  Json made, failed;
  const auto done = change_cluster(sources, *cluster, "BatchAddClusterNodes", [&](Json& now) -> Answer<void> {
    made = Json::array(), failed = Json::array();
    now.set("spec", api::spec_in_force(now));
    Json& spec = now.child("spec");
    auto& additions = spec.child("additions").items();
    std::erase_if(additions, [&](const Json& one) { return parse_time(one["at"].string()).value_or(Instant()) + token_holds <= call.now; });
    if (!token.empty())
      for (const Json& before : additions) {
        if (before["token"].string() != token) continue;
        if (before["request"].string() != request) return invalid("ClientToken was used for another request within the last eight hours");
        made = replayed(sources, now, before), failed = before["failed"].is_array() ? before["failed"] : Json::array();
        return refuse("replayed", "");
      }
    const api::Cluster read = api::read_cluster(now);
    Json groups = Json::array();
    std::map<std::string, int> issued;
    for (const Json& one : asked) {
      const std::string& name = one["InstanceGroupName"].string();
      const int count = static_cast<int>(one["IncrementTargetCountBy"].integer());
      const api::InstanceGroup* group = read.group(name);
      if (group == nullptr) {
        failed.push(Json::object({{"InstanceGroupName", name}, {"ErrorCode", "InstanceGroupNotFound"}, {"FailedCount", count}, {"Message", fmt::format("Instance group {} not found", name)}}));
        continue;
      }
      for (Json& of : spec.child("instanceGroups").items()) {
        if (of["instanceGroupName"].string() != name) continue;
        const std::int64_t target = of["instanceCount"].integer() + count;
        if (target > most_in_group) return refuse("ResourceLimitExceeded", fmt::format("Group {} would have {} instances; {} are possible", name, target, most_in_group));
        if (!issued.contains(name)) issued[name] = group->issued;
        groups.push(Json::object({{"instanceGroupName", name}, {"first", issued[name] + 1}, {"count", count}}));
        for (int i = 0; i < count; ++i) made.push(Json::object({{"NodeLogicalId", api::logical_id_of(read.uid, name, ++issued[name])}, {"InstanceGroupName", name}, {"Status", "Pending"}}));
        of.set("instanceCount", target).set("issued", issued[name]);
      }
    }
    if (made.items().empty()) return refuse("replayed", "");  // nothing to write
    if (!token.empty() && additions.size() >= most_tokens) return refuse("ThrottlingException", fmt::format("{} calls with a ClientToken within eight hours; their answers are kept so long", most_tokens));
    if (!token.empty()) additions.push_back(Json::object({{"token", token}, {"request", request}, {"at", print_time(call.now)}, {"groups", std::move(groups)}, {"failed", failed}}));
    if (const api::Cluster after = api::read_cluster(now); !after.problems.empty()) return invalid(after.problems.front());
    return {};
  });
  if (!done && done.error().code != "replayed") return done;
  return Json::object({{"Successful", std::move(made)}, {"Failed", std::move(failed)}});
}

// ---- of nodes that are there

struct Refused {
  const char* code;
  std::string message;
};
// What is wrong with doing it to this instance; nothing: it is done.
using Judge = std::function<std::optional<Refused>(const std::optional<Json>& instance)>;

struct Chosen {
  std::vector<Json> instances;  // each once
  Json out = Json::object();    // the answer, so far as it is known
};
// Both lists of the input, each answered by lists of its own.
Chosen choose(const Sources& sources, const Json& cluster, const Json& input, const char* code_member, const Judge& judge) {
  Chosen out;
  std::set<std::string> seen;
  std::set<std::string> logical;
  for (const Json& id : input["NodeLogicalIds"].items()) logical.insert(id.string());
  const auto by_logical = instances_by_logical_id(sources, cluster, logical);
  const auto go = [&](const char* list, const char* id_member, const char* good, const char* bad, const auto& find) {
    if (!input.has(list)) return;
    Json fine = Json::array(), failed = Json::array();
    for (const Json& id : input[list].items()) {
      const std::optional<Json> instance = find(id.string());
      if (const auto refused = judge(instance)) {
        failed.push(Json::object({{id_member, id}, {code_member, refused->code}, {"Message", refused->message}}));
        continue;
      }
      fine.push(id);
      if (seen.insert(kube::name_of(*instance)).second) out.instances.push_back(*instance);
    }
    // Lists of the model have at least one member.
    if (!fine.items().empty()) out.out.set(good, std::move(fine));
    if (!failed.items().empty()) out.out.set(bad, std::move(failed));
  };
  go("NodeIds", "NodeId", "Successful", "Failed", [&](const std::string& id) { return instance_by_id(sources, cluster, id); });
  go("NodeLogicalIds", "NodeLogicalId", "SuccessfulNodeLogicalIds", "FailedNodeLogicalIds", [&](const std::string& id) {
    const auto found = by_logical.find(id);
    return found == by_logical.end() ? std::nullopt : std::optional(found->second);
  });
  return out;
}

bool is_controller(const Json& cluster, const Json& instance) {
  const Json spec = api::spec_in_force(cluster);
  for (const Json& group : spec["instanceGroups"].items())
    if (group["instanceGroupName"] == instance["spec"]["instanceGroupName"]) return group["slurmConfig"]["nodeType"].string() == "Controller";
  return false;
}
bool goes(const Json& instance) { return kube::deleting(instance) || instance["status"]["phase"].string() == "ShuttingDown"; }

Answer<void> check_lists(const Json& cluster, const Json& input) {
  if (!input.has("NodeIds") && !input.has("NodeLogicalIds")) return invalid("At least one of NodeIds and NodeLogicalIds has to be given");
  if (input.has("NodeLogicalIds") && cluster["spec"]["nodeProvisioningMode"].string() != "Continuous") return invalid("NodeLogicalIds: only clusters with NodeProvisioningMode Continuous have them");
  return {};
}

Answer<Json> batch_delete(const Sources& sources, const Call& call, const Json& input) {
  const auto cluster = cluster_to_change(sources, call, "BatchDeleteClusterNodes", input);
  if (!cluster) return cluster;
  if (auto done = check_lists(*cluster, input); !done) return std::unexpected(done.error());
  Json out;
  const auto done = change_cluster(sources, *cluster, "BatchDeleteClusterNodes", [&](Json& now) -> Answer<void> {
    if (const std::string status = cluster_status(now); now["spec"]["nodeProvisioningMode"].string() != "Continuous" && status != "InService") return refuse("ConflictException", fmt::format("Cluster {} is {}: nodes can be deleted when it is InService", name_of_entity(now), status));
    Chosen chosen = choose(sources, now, input, "Code", [&](const std::optional<Json>& instance) -> std::optional<Refused> {
      if (!instance) return Refused{"NodeIdNotFound", "Node not found"};
      if (goes(*instance)) return Refused{"NodeIdInUse", "The node is shutting down already"};
      if (is_controller(now, *instance)) return Refused{"InvalidNodeStatus", "A Slurm controller is not deleted: change InstanceCount of its group"};
      return std::nullopt;
    });
    out = std::move(chosen.out);
    bool changed = false;
    const api::Cluster read = api::read_cluster(now);  // the controller may have retired one by itself
    now.set("spec", api::spec_in_force(now));
    for (const Json& instance : chosen.instances)
      for (Json& group : now.child("spec").child("instanceGroups").items()) {
        if (group["instanceGroupName"] != instance["spec"]["instanceGroupName"]) continue;
        auto retired = api::NumberSet::parse(group["retired"].string());
        const int number = static_cast<int>(instance["spec"]["number"].integer());
        const api::InstanceGroup* of = read.group(group["instanceGroupName"].string());
        if (!retired || of == nullptr || of->retired.contains(number)) continue;
        retired->add(number);
        const std::int64_t target = std::max<std::int64_t>(0, group["instanceCount"].integer() - 1);
        group.set("retired", retired->text()).set("instanceCount", target);
        // A number that the controller gave out is of the spec from now on, too.
        if (group["issued"].integer() < number) group.set("issued", number);
        if (group["minInstanceCount"].integer() > target) group.set("minInstanceCount", target);
        changed = true;
      }
    if (!changed) return refuse("nothing", "");
    return {};
  });
  if (!done && done.error().code != "nothing") return done;
  return out;
}

// A request at the instance, by this call; one that went meanwhile needs none.
Answer<void> ask_instance(const Sources& sources, const Call& call, const Json& instance, const char* request, const char* action, const Json& checks = {}) {
  for (int attempt = 0;; ++attempt) {
    auto now = sources.api.get(api::kInstances, kube::key_of(instance));
    if (!now && now.error().code == Code::NotFound) return {};
    if (!now) return std::unexpected(aws_error(now.error(), action));
    if ((*now)["spec"][request]["id"].string() == call.once) return {};  // it was sent again
    Json asked = Json::object({{"id", call.once}, {"by", cut(call.who.arn, 600)}});
    if (checks.is_array()) asked.set("checks", checks);
    now->child("spec").set(request, std::move(asked));
    const auto done = sources.api.update(api::kInstances, *now);
    if (done || done.error().code == Code::NotFound) return {};
    if (done.error().code != Code::Conflict || attempt >= 20) return std::unexpected(aws_error(done.error(), action));
  }
}

// Reboot or replace: a request at the instance, which the controller takes up.
Answer<Json> batch_ask(const Sources& sources, const Call& call, const Json& input, const char* action, const char* request) {
  const auto cluster = cluster_to_change(sources, call, action, input);
  if (!cluster) return cluster;
  if (auto done = check_lists(*cluster, input); !done) return std::unexpected(done.error());
  const bool replace = std::string_view(request) == "replace";
  // While its software is updated, too: a node that has failed may be what the update waits for.
  if (const std::string status = cluster_status(*cluster); replace && status != "InService" && status != "SystemUpdating") return refuse("ConflictException", fmt::format("Cluster {} is {}: nodes are replaced when it is InService", name_of_entity(*cluster), cluster_status(*cluster)));
  Chosen chosen = choose(sources, *cluster, input, "ErrorCode", [&](const std::optional<Json>& instance) -> std::optional<Refused> {
    if (!instance) return Refused{"InstanceIdNotFound", "Node not found"};
    if ((*instance)["spec"][request]["id"].string() == call.once || (replace && (*instance)["spec"]["replaces"].string() == call.once)) return std::nullopt;  // sent again: it is asked for, or done
    if (goes(*instance) || (*instance)["status"]["node"].string().empty()) return Refused{"InvalidInstanceStatus", fmt::format("The node is {}", (*instance)["status"]["phase"].string_or("Pending"))};
    if (replace && is_controller(*cluster, *instance)) return Refused{"InvalidInstanceStatus", "A Slurm controller is not replaced"};
    if (!(*instance)["spec"]["replace"].is_null()) return Refused{"InstanceIdInUse", "The node is being replaced"};
    const Json &asked = (*instance)["spec"]["reboot"], &told = (*instance)["status"]["reboot"];
    const bool rebooting = !asked.is_null() && (asked["id"] != told["id"] || (told["stage"].string() != "Done" && told["stage"].string() != "Failed"));
    if (rebooting) return Refused{"InstanceIdInUse", "The node is being rebooted"};
    return std::nullopt;
  });
  for (const Json& instance : chosen.instances)
    if (const bool done_before = replace && instance["spec"]["replaces"].string() == call.once; done_before) continue;
    else if (auto done = ask_instance(sources, call, instance, request, action); !done) return std::unexpected(done.error());
  return std::move(chosen.out);
}

// Each entry names a group, and instances of it, or none: then all of it that are in use. What two entries name is checked once.
Answer<Json> start_health_check(const Sources& sources, const Call& call, const Json& input) {
  const char* const action = "StartClusterHealthCheck";
  const auto cluster = cluster_to_change(sources, call, action, input);
  if (!cluster) return cluster;
  if (const std::string status = cluster_status(*cluster); status != "InService") return invalid(fmt::format("Cluster {} is {}: nodes are checked when it is InService", name_of_entity(*cluster), status));
  const api::Cluster read = api::read_cluster(*cluster);
  std::map<std::string, std::pair<Json, std::set<std::string>>> chosen;  // with the checks that it is to pass
  const auto& entries = input["DeepHealthCheckConfigurations"].items();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto wrong = [&](const std::string& why) { return invalid(fmt::format("DeepHealthCheckConfigurations[{}].{}", i, why)); };
    const std::string& name = entries[i]["InstanceGroupName"].string();
    const api::InstanceGroup* group = read.group(name);
    if (group == nullptr) return wrong(fmt::format("InstanceGroupName: cluster {} has no group {}", name_of_entity(*cluster), name));
    if (read.orchestrator == api::Orchestrator::Slurm && group->node_type != api::SlurmNodeType::Compute) return wrong(fmt::format("InstanceGroupName: {} has no compute nodes: its work cannot be moved", name));
    const auto choose_one = [&](const Json& instance) {
      auto& checks = chosen.emplace(kube::name_of(instance), std::pair(instance, std::set<std::string>())).first->second.second;
      for (const Json& check : entries[i]["DeepHealthChecks"].items()) checks.insert(check.string());
    };
    const auto usable = [](const Json& instance) { return !goes(instance) && instance["spec"]["replace"].is_null() && (instance["status"]["phase"].string() == "Running" || instance["status"]["healthCheck"]["stage"].string() == "Failed"); };
    if (entries[i]["InstanceIds"].items().empty()) {
      sources.instances.each("", [&](const Json& instance) {
        if (instance["spec"]["clusterUid"].string() == kube::uid_of(*cluster) && instance["spec"]["instanceGroupName"].string() == name && usable(instance)) choose_one(instance);
      });
      continue;
    }
    for (const Json& id : entries[i]["InstanceIds"].items()) {
      auto instance = instance_by_id(sources, *cluster, id.string());
      if (!instance || (*instance)["spec"]["instanceGroupName"].string() != name) return wrong(fmt::format("InstanceIds: group {} has no instance {}", name, id.string()));
      if (!usable(*instance)) return wrong(fmt::format("InstanceIds: {} is {}: one that is Running can be checked", id.string(), (*instance)["status"]["phase"].string_or("Pending")));
      choose_one(*instance);
    }
  }
  for (const auto& [id, one] : chosen) {
    Json checks = Json::array();
    for (const std::string& check : one.second) checks.push(check);
    if (auto done = ask_instance(sources, call, one.first, "healthCheck", action, checks); !done) return std::unexpected(done.error());
  }
  return Json::object({{"ClusterArn", cluster_arn(call.site, *cluster)}});
}

}  // namespace

void add_batch_operations(Operations& operations, const Sources& sources) {
  operations["BatchAddClusterNodes"] = [sources](const Call& call, const Json& input) { return batch_add(sources, call, input); };
  operations["BatchDeleteClusterNodes"] = [sources](const Call& call, const Json& input) { return batch_delete(sources, call, input); };
  operations["BatchRebootClusterNodes"] = [sources](const Call& call, const Json& input) { return batch_ask(sources, call, input, "BatchRebootClusterNodes", "reboot"); };
  operations["StartClusterHealthCheck"] = [sources](const Call& call, const Json& input) { return start_health_check(sources, call, input); };
  operations["BatchReplaceClusterNodes"] = [sources](const Call& call, const Json& input) { return batch_ask(sources, call, input, "BatchReplaceClusterNodes", "replace"); };
}

}  // namespace fairlead::hyperpod
