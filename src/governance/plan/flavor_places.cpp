// SPDX-License-Identifier: Apache-2.0
// Between flavors and topologies: what of an assignment is to be placed, and what its placement uses. The one place where the two meet.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "governance/plan/flavors.h"

namespace fairlead::governance {
namespace {

// The flavor with a topology that the pod set got; an error where there is none, or more than one.
struct TopologyFlavor {
  FlavorId flavor = none;
  std::string error;
};
TopologyFlavor topology_flavor(const World& world, const PodSetFlavors& one) {
  std::set<FlavorId> found;
  for (const FlavorChoice& choice : one.flavors)
    if (choice.flavor != none && world.flavors[choice.flavor].topology != nullptr) found.insert(choice.flavor);
  if (found.size() == 1) return {*found.begin(), {}};
  if (found.empty()) return {none, "no TAS flavor assigned"};
  std::string names;
  for (const FlavorId f : found) names += (names.empty() ? "" : ", ") + world.flavors[f].name;
  return {none, "more than one TAS flavor assigned: " + names};
}

bool on_unhealthy_node(const WorkloadSpec& workload, const TopologyAssignment& assignment) {
  return std::any_of(assignment.domains.begin(), assignment.domains.end(), [&](const DomainPods& domain) {
    return !domain.values.empty() && std::find(workload.unhealthy_nodes.begin(), workload.unhealthy_nodes.end(), domain.values.back()) != workload.unhealthy_nodes.end();
  });
}

}  // namespace

bool has_unhealthy_place(const WorkloadSpec& workload) {
  if (workload.unhealthy_nodes.empty() || !workload.admitted.is || !workload.admission) return false;
  return std::any_of(workload.admission->pod_sets.begin(), workload.admission->pod_sets.end(), [&](const HeldPodSet& held) { return held.topology && on_unhealthy_node(workload, *held.topology); });
}

std::vector<FlavorQuestion> placement_questions(World& world, WorkloadId id, std::uint32_t queue_id, Assignment& assignment) {
  const WorkloadSpec& workload = world.workloads[id].spec;
  const Queue& queue = world.queues[queue_id];
  const bool any_topology = std::any_of(queue.groups.begin(), queue.groups.end(), [&](const Group& group) {
    return std::any_of(group.flavors.begin(), group.flavors.end(), [&](FlavorId f) { return world.flavors[f].topology != nullptr; });
  });
  std::map<std::string, FlavorQuestion> by_flavor;
  const auto fail_with = [&](PodSetFlavors& one, std::string error) {
    one.error = std::move(error);
    assignment.fixed_mode.reset();
  };
  for (const PodSetSpec& pod_set : workload.pod_sets) {
    if (!asks_topology(world, pod_set, queue_id)) continue;
    PodSetFlavors* one = assignment.pod_set(pod_set.name);
    if (one == nullptr || !one->error.empty() || one->count == 0) continue;
    if (one->topology && !(on_unhealthy_node(workload, *one->topology))) continue;  // placed already
    if (!any_topology) {
      fail_with(*one, "workload requires Topology, but there is no TAS cache information");
      continue;
    }
    auto [flavor, error] = topology_flavor(world, *one);
    if (flavor == none) {
      fail_with(*one, std::move(error));
      continue;
    }
    const bool provisioned = !workload.reserved.is && std::find(queue.provisioned.begin(), queue.provisioned.end(), flavor) != queue.provisioned.end();
    if (queue.delays_topology || provisioned) {
      one->topology_pending = true;
      continue;
    }
    TopologyPodSet ask{.name = pod_set.name, .ask = pod_set.topology, .implied = !pod_set.topology.explicit_ask(), .count = one->count, .per_pod = amounts_of(pod_set.raw, *world.placement_resources), .needs = pod_set.needs, .current = {}};
    for (const CheckState& check : workload.checks) {
      const auto update = check.updates.find(pod_set.name);
      if (check.state != "Ready" || update == check.updates.end()) continue;
      std::string conflict = merge_update(ask.needs, update->second);
      if (ask.conflict.empty()) ask.conflict = std::move(conflict);
    }
    if (!workload.unhealthy_nodes.empty() && workload.admission)
      for (const HeldPodSet& held : workload.admission->pod_sets)
        if (held.name == pod_set.name) ask.current = held.topology;
    FlavorQuestion& question = by_flavor[world.flavors[flavor].name];
    question.flavor = world.flavors[flavor].name;
    question.topology = world.flavors[flavor].topology.get();
    question.pod_sets.push_back(std::move(ask));
  }
  std::vector<FlavorQuestion> questions;
  for (auto& [name, question] : by_flavor) questions.push_back(std::move(question));
  return questions;
}

Placement place(World& world, WorkloadId id, const std::vector<FlavorQuestion>& questions, bool simulate_empty) {
  const WorkloadSpec& workload = world.workloads[id].spec;
  Placement placement;
  if (questions.empty()) return placement;
  const TopologyQuestion common{.pod_sets = {}, .simulate_empty = simulate_empty, .unhealthy_node = workload.unhealthy_nodes.empty() ? "" : workload.unhealthy_nodes.front(), .owned_by_single_pod = workload.owned_by_pod};
  for (FlavorAnswer& answer : find_for_workload(questions, common, world.rules.gates.placement)) {
    if (!answer.reason.none() && placement.ok()) {
      placement.failed_pod_set = answer.pod_set;
      placement.reason = text(answer.reason);
      placement.failed_flavor = world.flavor_named(answer.flavor);
    }
    placement.found.push_back({answer.pod_set, std::move(answer.assignment)});
  }
  return placement;
}

void take_placement(World&, WorkloadId, Assignment& assignment, const Placement& placement) {
  for (const Placement::Found& found : placement.found) {
    PodSetFlavors* one = assignment.pod_set(found.pod_set);
    if (one == nullptr) continue;
    one->topology = found.assignment;
    if (one->topology) one->topology_pending = false;
  }
}

std::vector<std::pair<FlavorId, DomainUse>> new_places(World& world, WorkloadId id, std::uint32_t, const Assignment& assignment, bool beyond_admission) {
  const WorkloadSpec& workload = world.workloads[id].spec;
  std::vector<std::pair<FlavorId, DomainUse>> places;
  for (const PodSetFlavors& one : assignment.pod_sets) {
    if (!one.topology) continue;
    const auto spec = std::find_if(workload.pod_sets.begin(), workload.pod_sets.end(), [&](const PodSetSpec& pod_set) { return pod_set.name == one.name; });
    const TopologyFlavor flavor = topology_flavor(world, one);
    if (spec == workload.pod_sets.end() || flavor.flavor == none) continue;
    std::map<std::vector<std::string>, std::int32_t> accounted;
    if (beyond_admission && workload.admission)
      for (const HeldPodSet& held : workload.admission->pod_sets)
        if (held.name == one.name && held.topology)
          for (const DomainPods& domain : held.topology->domains) accounted[domain.values] += domain.count;
    for (DomainUse& use : uses_of(*one.topology, amounts_of(spec->raw, *world.placement_resources))) {
      if (const auto at = accounted.find(use.values); at != accounted.end()) use.count -= at->second;
      if (use.count > 0) places.emplace_back(flavor.flavor, std::move(use));
    }
  }
  return places;
}

}  // namespace fairlead::governance
