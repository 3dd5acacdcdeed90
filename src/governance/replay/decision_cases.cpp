// SPDX-License-Identifier: Apache-2.0
// Flavors of a workload, and victims for one whose flavors are chosen.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "governance/replay/case_io.h"
#include "governance/replay/groups.h"

namespace fairlead::governance {
namespace {

using kube::Json;

Result<Possibility> possibility(const Json& value, const std::string& path) {
  const std::string& text = value.string();
  if (text == "NoCandidates" || text == "0") return Possibility::NoCandidates;
  if (text == "Preempt") return Possibility::Preempt;
  if (text == "Reclaim") return Possibility::Reclaim;
  return fail(Code::Invalid, fmt::format("{}: \"{}\" is none of NoCandidates, Preempt, Reclaim", path, text));
}

// What one row of the flavor tables says, whatever it calls it.
struct FlavorRow {
  const Json& one;
  const Json& input = one["input"];
  const Json& first(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (!input[name].is_null()) return input[name];
      if (!one[name].is_null()) return one[name];
    }
    return one["nothing"];
  }
};

}  // namespace

Result<std::string> replay_assign_flavors(const Json& one) {
  const FlavorRow row{one};
  WorldSpec spec;
  if (auto done = read_flavors(row.first({"resourceFlavors"}), "resourceFlavors", spec); !done) return std::unexpected(std::move(done.error()));
  Json queue = row.first({"clusterQueue", "cq"});
  if (!queue.is_object()) return fail(Code::Invalid, "input.clusterQueue: a ClusterQueue is expected");
  if (!row.input["flavorFungibility"].is_null()) queue.child("spec").set("flavorFungibility", row.input["flavorFungibility"]);
  if (auto done = read_queues(queue, "clusterQueue", spec); !done) return std::unexpected(std::move(done.error()));
  for (const char* name : {"secondaryClusterQueue", "otherClusterQueue", "siblingCQs", "clusterQueues"})
    if (auto done = read_queues(row.first({name}), name, spec); !done) return std::unexpected(std::move(done.error()));
  if (auto done = read_cohorts(row.first({"cohorts"}), "cohorts", spec); !done) return std::unexpected(std::move(done.error()));
  if (auto done = read_topologies(row.first({"topologies"}), "topologies", spec); !done) return std::unexpected(std::move(done.error()));
  read_nodes(row.first({"nodes"}), Json(), spec);
  read_gates(row.first({"featureGates"}), spec.rules.gates);
  read_gates(one["config"]["featureGates"], spec.rules.gates);
  spec.rules.fair = one["config"]["fairSharing"].boolean() || row.input["enableFairSharing"].boolean();
  spec.rules.gates.ignore_undeclared = row.first({"quotaCheckStrategy"}).string() == "IgnoreUndeclared" || one["config"]["quotaCheckStrategy"].string() == "IgnoreUndeclared" ||
                                       one["expected"]["assignment"]["quotaCheckStrategy"].string() == "IgnoreUndeclared";

  const std::string name = queue["metadata"]["name"].string();
  Json pod_sets = row.first({"wlPods", "podSets", "workloadRequests", "podSet"});
  if (pod_sets.is_object()) pod_sets = Json::array({pod_sets});
  Json object = Json::object({{"metadata", Json::object({{"name", "workload"}, {"namespace", "default"}})}, {"spec", Json::object({{"podSets", pod_sets}, {"queueName", "local"}})}});
  std::string allowed;
  for (const Json& flavor : row.input["allowedFlavors"].items()) allowed += (allowed.empty() ? "" : ",") + flavor.string();
  if (!allowed.empty()) object.child("metadata").set("annotations", Json::object({{"kueue.x-k8s.io/workload-allowed-resource-flavors", allowed}}));
  Json status = Json::object();
  if (!row.input["wlReclaimablePods"].is_null()) status.set("reclaimablePods", row.input["wlReclaimablePods"]);
  object.set("status", std::move(status));
  if (auto done = read_workloads(object, "input.wlPods", {}, spec); !done) return std::unexpected(std::move(done.error()));
  spec.local_queues.push_back({.space = "default", .name = "local", .queue = name});

  World world = build_world(std::move(spec));
  const auto used = [&](const char* field, const std::string& by) -> Result<void> {
    auto usage = read_usage(row.first({field}), std::string("input.") + field);
    if (!usage) return std::unexpected(std::move(usage.error()));
    use(world, by, *usage);
    return {};
  };
  const std::string& other = row.first({"secondaryClusterQueue", "otherClusterQueue"})["metadata"]["name"].string();
  for (const auto& [field, by] : {std::pair<const char*, std::string>{"clusterQueueUsage", name}, {"testClusterQueueUsage", name}, {"cqUsage", name}, {"secondaryClusterQueueUsage", other}, {"otherClusterQueueUsage", other}})
    if (auto done = used(field, by); !done) return std::unexpected(std::move(done.error()));
  for (const auto& [sibling, usage] : row.input["siblingCQUsage"].members()) {
    auto read = read_usage(usage, "input.siblingCQUsage." + sibling);
    if (!read) return std::unexpected(std::move(read.error()));
    use(world, sibling, *read);
  }
  std::map<std::string, Foreseen> simulated;
  for (const auto& [key, result] : row.input["simulationResult"].members()) {
    auto read = possibility(result["preemptionPossiblity"].is_null() ? result["preemptionPossibility"] : result["preemptionPossiblity"], "input.simulationResult." + key);
    if (!read) return std::unexpected(std::move(read.error()));
    simulated[key] = {*read, static_cast<int>(result["borrowingAfterSimulation"].integer())};
  }
  const std::uint32_t q = world.queue_named(name);
  AssignInput input{.workload = 0, .queue = q, .oracle = [&](Column c, Amount) {
    const FlavorResource& column = world.ledger.name(world.queues[q].node, c);
    const auto at = simulated.find(column.flavor + "/" + column.resource);
    return at == simulated.end() ? Foreseen{Possibility::Preempt, 0} : at->second;
  }};
  const Assignment assignment = assign_flavors(world, input);
  Json got = assignment_json(world, assignment);
  Json usage = Json::object();
  for (const Use& u : assignment.uses) usage.set(usage_key(world.ledger.name(world.queues[q].node, u.column).flavor, world.ledger.name(world.queues[q].node, u.column).resource), u.amount);
  got.set("usage", Json::object({{"quota", Json::object({{"assigned", std::move(usage)}})}}));
  got.set("representativeMode", text(assignment.mode()));

  const Json& expected = one["expected"];
  Json wanted = expected["assignment"];
  for (const char* left_out : {"quotaCheckStrategy", "replaceWorkloadSlice", "usage"}) {
    if (std::string_view(left_out) == "usage" && !wanted["usage"].is_null()) continue;
    wanted.erase(left_out);
    if (std::string_view(left_out) == "usage") got.erase("usage");
  }
  if (wanted.has("usage")) {
    Json only = Json::object({{"quota", Json::object({{"assigned", wanted["usage"]["quota"]["assigned"]}})}});
    wanted.set("usage", std::move(only));
  }
  wanted.set("lastState", Json::object({{"lastTriedFlavorIdx", wanted["lastState"]["lastTriedFlavorIdx"]}}));
  if (!wanted.has("representativeMode")) wanted.set("representativeMode", expected["representativeMode"].is_null() ? got["representativeMode"] : expected["representativeMode"]);
  for (std::size_t i = 0; i < wanted["podSets"].items().size() && i < got["podSets"].items().size(); ++i) {
    Json* want_status = wanted.find("podSets")->items()[i].find("status");
    Json* got_status = got.find("podSets")->items()[i].find("status");
    if (want_status == nullptr || got_status == nullptr || !(*want_status)["err"].is_object()) continue;  // an error that is no text is told by its presence
    want_status->set("err", true);
    got_status->set("err", got_status->has("err"));
  }
  if (auto found = difference(wanted, got, "assignment"); !found.empty()) return found;
  if (!expected["representativeMode"].is_null())
    if (auto found = difference(expected["representativeMode"], got["representativeMode"], "representativeMode"); !found.empty()) return found;
  if (expected.has("wantNoFitReason") && expected["wantNoFitReason"].string() != text(assignment.no_fit))
    return fmt::format("wantNoFitReason: want {}, got {}", expected["wantNoFitReason"].string(), text(assignment.no_fit));
  return std::string();
}

Result<std::string> replay_preemption_targets(const Json& one) {
  const Json& config = one["config"];
  WorldSpec spec;
  if (auto done = read_flavors(one["resourceFlavors"], "resourceFlavors", spec); !done) return std::unexpected(std::move(done.error()));
  if (auto done = read_queues(one["clusterQueues"], "clusterQueues", spec); !done) return std::unexpected(std::move(done.error()));
  if (auto done = read_cohorts(one["cohorts"], "cohorts", spec); !done) return std::unexpected(std::move(done.error()));
  if (auto done = read_workloads(one["admitted"], "admitted", {}, spec); !done) return std::unexpected(std::move(done.error()));
  const auto incoming_id = static_cast<WorkloadId>(spec.workloads.size());
  auto incoming = read_workload(one["incoming"]);
  if (!incoming) return pass(std::move(incoming.error()), "incoming");
  spec.workloads.push_back(std::move(*incoming));
  read_gates(config["featureGates"], spec.rules.gates);
  spec.rules.fair = config["fairSharing"].boolean();
  auto now = parse_time(config["now"].string());
  if (!now) return pass(std::move(now.error()), "config.now");
  spec.rules.now = *now;
  if (const auto& strategies = config["preemptionStrategies"].items(); !strategies.empty()) {
    spec.rules.final_share = spec.rules.initial_share = false;
    for (std::size_t i = 0; i < strategies.size(); ++i) {
      const std::string& name = strategies[i].string();
      if (name == "LessThanOrEqualToFinalShare") spec.rules.final_share = true;
      else if (name == "LessThanInitialShare") spec.rules.initial_share = true;
      else return fail(Code::Invalid, fmt::format("config.preemptionStrategies[{}]: \"{}\" is none of LessThanOrEqualToFinalShare, LessThanInitialShare", i, name));
    }
    spec.rules.initial_first = strategies[0].string() == "LessThanInitialShare";
  }
  World world = build_world(std::move(spec));
  const std::uint32_t q = world.queue_named(one["targetClusterQueue"].string());
  if (q == none) return fail(Code::Invalid, fmt::format("targetClusterQueue: \"{}\" is no ClusterQueue of the case", one["targetClusterQueue"].string()));

  if (world.workloads[incoming_id].counted) {  // it tells an admission, and has none here
    world.take_usage(incoming_id);
    world.leave(incoming_id);
  }

  Need need{.workload = incoming_id, .queue = q, .uses = {}, .contested = {}, .places = {}, .placed = {}};
  const Workload& workload = world.workloads[incoming_id];
  const Json& assigned = one["assignment"].is_array() ? one["assignment"] : one["assignment"]["podSets"];
  for (std::size_t i = 0; i < workload.asks.size(); ++i) {
    const Json& pod_set = i < assigned.items().size() ? assigned.items()[i] : assigned["none"];
    const std::int64_t count = pod_set["count"].integer(workload.asks[i].count);
    for (const auto& [resource, total] : workload.asks[i].total) {
      const Json& flavor = pod_set["flavors"][world.resources[resource]];
      const Column c = world.ledger.column(world.queues[q].node, flavor["name"].string(), world.resources[resource]);
      if (c == no_column) continue;
      const Amount amount = count == workload.asks[i].count || workload.asks[i].count == 0 ? total : times(total / workload.asks[i].count, count);
      if (amount != 0) {
        const auto use = std::find_if(need.uses.begin(), need.uses.end(), [&](const Use& u) { return u.column == c; });
        if (use != need.uses.end()) use->amount = plus(use->amount, amount);
        else need.uses.push_back({c, amount});
      }
    }
    for (const auto& [resource, flavor] : pod_set["flavors"].members()) {
      const Column c = world.ledger.column(world.queues[q].node, flavor["name"].string(), resource);
      if (c != no_column && flavor["mode"].string() == "Preempt" && std::find(need.contested.begin(), need.contested.end(), c) == need.contested.end()) need.contested.push_back(c);
    }
  }
  std::vector<std::string> got, want;
  for (const Victim& victim : find_victims(world, need)) got.push_back(world.workloads[victim.workload].spec.key() + " " + std::string(text(victim.reason)));
  for (const Json& target : one["expected"]["targets"].items()) {
    const std::string& key = target["workload"].string();
    want.push_back((key.find('/') == std::string::npos ? "/" + key : key) + " " + target["reason"].string());
  }
  std::sort(got.begin(), got.end());
  std::sort(want.begin(), want.end());
  if (got == want) return std::string();
  return fmt::format("targets: want [{}], got [{}]", fmt::join(want, ", "), fmt::join(got, ", "));
}

}  // namespace fairlead::governance
