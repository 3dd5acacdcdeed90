// SPDX-License-Identifier: Apache-2.0
// {"nodes": [...], "levels": [...], "podSets": [{"topologyRequest", "count", "spec", "requests", "topologyAssignment"}], "unhealthy"}: whatever it says, readers and search
// end, what is placed adds up, and both spellings of an assignment read back as it was.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "governance/plan/topology.h"

using namespace fairlead;
using namespace fairlead::governance;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = kube::parse_json({reinterpret_cast<const char*>(data), size});
  if (!input) return 0;
  auto ids = std::make_shared<ResourceIds>();
  TopologyShape shape{.name = "t", .levels = {}, .flavor_labels = read_labels((*input)["labels"]), .tolerations = read_tolerations((*input)["tolerations"])};
  for (const kube::Json& level : (*input)["levels"].items()) shape.levels.push_back(level.string());
  std::vector<TopologyNode> nodes;
  for (const kube::Json& node : (*input)["nodes"].items()) nodes.push_back(read_topology_node(node));
  TopologyGates gates;
  gates.balanced = (*input)["balanced"].boolean();
  gates.node_preference = (*input)["liking"].boolean();
  gates.elastic = (*input)["elastic"].boolean();
  Topology topology(shape, nodes, ids, gates);

  std::vector<TopologyPodSet> sets;
  for (const kube::Json& one : (*input)["podSets"].items()) {
    TopologyPodSet set;
    set.name = std::to_string(sets.size());
    set.ask = read_topology_ask(one["topologyRequest"]);
    set.implied = !set.ask.present;
    set.count = static_cast<std::int32_t>(std::clamp<std::int64_t>(one["count"].integer(), 0, 1'000));
    set.needs = read_node_needs(one["spec"]);
    NamedAmounts requests;
    for (const auto& [name, value] : one["requests"].members()) requests[name] = value.integer();
    set.per_pod = amounts_of(requests, *ids);
    if (one.has("topologyAssignment")) {
      set.current = read_topology_assignment(one["topologyAssignment"]);
      if (set.current->domains.size() < 1'000) {
        INVARIANT(read_topology_assignment(v1beta1_json(*set.current)) == *set.current);
        INVARIANT(read_topology_assignment(v1beta2_json(*set.current)) == *set.current);
      }
      topology.add(uses_of(*set.current, set.per_pod));
    }
    sets.push_back(std::move(set));
  }
  const std::string& unhealthy = (*input)["unhealthy"].string();
  const auto answers = topology.find({.pod_sets = sets, .unhealthy_node = unhealthy});
  for (const TopologyAnswer& answer : answers) {
    INVARIANT(answer.reason.none() || !text(answer.reason).empty());
    if (!answer.assignment || !unhealthy.empty() || gates.elastic) continue;
    INVARIANT(read_topology_assignment(v1beta2_json(*answer.assignment)) == *answer.assignment);
    const auto set = std::find_if(sets.begin(), sets.end(), [&](const TopologyPodSet& one) { return one.name == answer.pod_set; });
    // A leader is one pod whatever its count; slices hold whole groups alone.
    if (!set->ask.group && set->ask.slices.empty()) INVARIANT(pods_in(*answer.assignment) == set->count);
  }
  return 0;
}
