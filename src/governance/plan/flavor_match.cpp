// SPDX-License-Identifier: Apache-2.0
// May a pod set run on a flavor: its topology, taints and labels.
#include <fmt/format.h>

#include <algorithm>

#include "governance/plan/flavors.h"

namespace fairlead::governance {
namespace {

bool provides_any(const World& world, const Group& group, const PodSetSpec& pod_set) {
  return std::any_of(group.resources.begin(), group.resources.end(), [&](ResourceId resource) { return pod_set.raw.contains(world.resources[resource]); });
}

std::optional<Why> topology_obstacle(const World& world, std::uint32_t queue, FlavorId id, const Group& group, const PodSetSpec& pod_set) {
  const Flavor& flavor = world.flavors[id];
  const auto why = [&](Why::Kind kind) { return Why{.kind = kind, .flavor = id, .detail = {}}; };
  if (!asks_topology(world, pod_set, queue)) return flavor.spec->topology.empty() ? std::nullopt : std::optional(why(Why::Kind::TopologyOnly));
  if (!pod_set.topology.explicit_ask()) return std::nullopt;  // implied: all flavors of the queue have one
  if (flavor.spec->topology.empty()) {
    // A flavor that gives none of the pods' own resources may stand beside one with a topology.
    return provides_any(world, group, pod_set) ? std::optional(why(Why::Kind::TopologyUnsupported)) : std::nullopt;
  }
  if (flavor.topology == nullptr) return why(Why::Kind::TopologyUnknown);
  return flavor.topology->has_levels(pod_set.topology) ? std::nullopt : std::optional(why(Why::Kind::LevelUnknown));
}

}  // namespace

bool affinity_allows(const NodeNeeds& needs, const NodeFacts& flavor) {
  for (const auto& [key, value] : needs.selector)
    if (const auto label = flavor.labels.find(key); label != flavor.labels.end() && label->second != value) return false;
  if (!needs.required) return true;
  std::vector<NodeTerm> terms;
  for (const NodeTerm& term : *needs.required) {
    NodeTerm known;
    for (const NodeRequirement& requirement : term)
      if (!requirement.field && flavor.labels.contains(requirement.key)) known.push_back(requirement);
    if (known.empty()) return true;  // one of the alternatives says nothing about this flavor
    terms.push_back(std::move(known));
  }
  return terms.empty() || matches_any(terms, flavor);
}

bool asks_topology(const World& world, const PodSetSpec& pod_set, std::uint32_t queue) {
  return world.rules.gates.topology && (pod_set.topology.explicit_ask() || world.queues[queue].topology_only);
}

std::optional<Why> obstacle(const World& world, std::uint32_t queue, FlavorId id, const Group& group, const PodSetSpec& pod_set) {
  const Flavor& flavor = world.flavors[id];
  if (!flavor.spec) return Why{.kind = Why::Kind::FlavorNotFound, .flavor = id, .detail = {}};
  if (world.rules.gates.topology)
    if (auto why = topology_obstacle(world, queue, id, group, pod_set)) return why;
  if (const Taint* taint = forbidding_taint(flavor.spec->node.taints, pod_set.needs.tolerations, flavor.spec->tolerations))
    return Why{.kind = Why::Kind::UntoleratedTaint, .flavor = id, .detail = fmt::format("{{{} {} {} <nil>}}", taint->key, taint->value, taint->effect)};
  if (!affinity_allows(pod_set.needs, flavor.spec->node)) return Why{.kind = Why::Kind::NodeAffinity, .flavor = id, .detail = {}};
  return std::nullopt;
}

}  // namespace fairlead::governance
