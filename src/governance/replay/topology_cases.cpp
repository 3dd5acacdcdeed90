// SPDX-License-Identifier: Apache-2.0
// Single placements: nodes, what uses them, pod sets, and where these go.
#include <fmt/format.h>

#include <map>
#include <memory>

#include "governance/plan/kueue_read.h"
#include "governance/plan/topology.h"
#include "governance/replay/case_io.h"
#include "governance/replay/groups.h"

namespace fairlead::governance {
namespace {

using kube::Json;

NamedAmounts plain_amounts(const Json& requests) {  // cpu in thousandths already
  NamedAmounts amounts;
  for (const auto& [name, value] : requests.members()) amounts[name] = value.integer();
  for (const Json& entry : requests.items()) amounts[entry["name"].string()] = entry["value"].integer();
  return amounts;
}

}  // namespace

Result<std::string> replay_topology(const Json& one) {
  const Json& input = one["input"];
  auto ids = std::make_shared<ResourceIds>();
  WorldSpec spec;
  read_gates(input["featureGates"], spec.rules.gates);
  TopologyGates gates = spec.rules.gates.placement;
  gates.elastic = input["featureGates"]["ElasticJobsViaWorkloadSlicesWithTAS"].boolean();
  TopologyShape shape{.name = "default", .levels = {}, .flavor_labels = read_labels(input["nodeLabels"]), .tolerations = read_tolerations(input["tolerations"])};
  for (const Json& level : input["levels"].items()) shape.levels.push_back(level.string());
  if (shape.levels.empty()) return fail(Code::Invalid, "input.levels: a list of node labels is expected");
  read_nodes(input["nodes"], input["pods"], spec);
  Topology topology(shape, spec.nodes, ids, gates);
  for (const WorldSpec::OtherPod& pod : spec.other_pods) topology.add_other(pod.node, pod.requests);
  if (gates.overlapping_flavors && topology.by_host() && input.has("aggregatedDomainUsages")) {
    for (const auto& [domain, sums] : input["aggregatedDomainUsages"].members()) {
      NamedAmounts amounts = plain_amounts(sums);
      amounts["pods"] -= 1;  // counted by the pod that is added
      const DomainUse use{.values = {domain}, .per_pod = amounts_of(amounts, *ids), .count = 1};
      topology.add(std::span(&use, 1));
    }
  } else {
    for (const Json& prior : input["priorOwnUsage"].items()) {
      DomainUse use{.values = {}, .per_pod = amounts_of(plain_amounts(prior["singlePodRequests"]), *ids), .count = static_cast<std::int32_t>(prior["count"].integer())};
      for (const Json& value : prior["values"].items()) use.values.push_back(value.string());
      topology.add(std::span(&use, 1));
    }
  }
  const Json& workload = input["workload"];
  std::vector<TopologyPodSet> pod_sets;
  std::map<std::string, Json> want, got;
  for (const Json& row : input["podSets"].items()) {
    TopologyPodSet pods;
    pods.name = row["podSetName"].string();
    pods.ask = read_topology_ask(row["topologyRequest"]);
    pods.implied = !pods.ask.present;
    pods.ask.group = row["podSetGroupName"].is_string() ? std::optional(row["podSetGroupName"].string()) : std::nullopt;
    pods.count = static_cast<std::int32_t>(row["count"].integer());
    pods.per_pod = amounts_of(plain_amounts(row["requests"]), *ids);
    pods.needs.tolerations = read_tolerations(row["tolerations"]);
    pods.needs.selector = read_labels(row["nodeSelector"]);
    read_node_affinity(row["nodeAffinity"], pods.needs);
    if (row["previousAssignment"].is_object()) pods.current = read_topology_assignment(row["previousAssignment"]);
    for (const Json& assigned : workload["status"]["admission"]["podSetAssignments"].items())
      if (assigned["name"].string() == pods.name && assigned["topologyAssignment"].is_object()) pods.current = read_topology_assignment(assigned["topologyAssignment"]);
    Json answer = Json::object({{"reason", row["wantReason"].string()}});
    if (row["wantAssignment"].is_object()) answer.set("assignment", v1beta1_json(read_topology_assignment(row["wantAssignment"])));
    want[pods.name] = std::move(answer);
    pod_sets.push_back(std::move(pods));
  }
  const auto& owners = workload["metadata"]["ownerReferences"].items();
  const auto& lost = workload["status"]["unhealthyNodes"].items();
  const TopologyQuestion question{.pod_sets = pod_sets, .unhealthy_node = lost.empty() ? "" : lost[0]["name"].string(), .owned_by_single_pod = owners.size() == 1 && owners[0]["kind"].string() == "Pod"};
  for (const TopologyAnswer& answer : topology.find(question)) {
    Json told = Json::object({{"reason", text(answer.reason)}});
    if (answer.assignment) told.set("assignment", v1beta1_json(*answer.assignment));
    got[answer.pod_set] = std::move(told);
  }
  for (const auto& [name, answer] : want)
    if (auto found = difference(answer, got[name], name); !found.empty()) return found;
  return std::string();
}

}  // namespace fairlead::governance
