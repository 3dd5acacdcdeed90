// SPDX-License-Identifier: Apache-2.0
// One head: flavors, victims, fewer pods if that helps, and where the pods go.
#include <algorithm>

#include "governance/plan/cycle.h"
#include "governance/plan/partial.h"

namespace fairlead::governance {
namespace {

std::vector<Victim> victims_for(World& world, WorkloadId id, std::uint32_t queue, Assignment& assignment) {
  Need need{.workload = id, .queue = queue, .uses = {}, .contested = {}, .places = {}, .placed = {}};
  const ResourceId pods = world.resource_named("pods");
  const Workload& workload = world.workloads[id];
  for (const PodSetFlavors& one : assignment.pod_sets) {
    bool asks_pods = world.rules.victims_for_pods;
    for (std::size_t i = 0; i < workload.asks.size(); ++i)
      if (workload.spec.pod_sets[i].name == one.name)
        asks_pods = asks_pods || std::any_of(workload.asks[i].total.begin(), workload.asks[i].total.end(), [&](const auto& entry) { return entry.first == pods; });
    for (const FlavorChoice& choice : one.flavors) {
      const bool asked = choice.resource != pods || asks_pods;
      const Column c = world.queues[queue].column(choice.flavor, choice.resource);
      const Amount amount = amount_of(one.requests, choice.resource);
      if (!asked || c == no_column || amount == 0) continue;
      const auto use = std::find_if(need.uses.begin(), need.uses.end(), [&](const Use& u) { return u.column == c; });
      if (use != need.uses.end()) use->amount = plus(use->amount, amount);
      else need.uses.push_back({c, amount});
    }
  }
  for (const PodSetFlavors& one : assignment.pod_sets)
    for (const FlavorChoice& choice : one.flavors) {
      const Column c = world.queues[queue].column(choice.flavor, choice.resource);
      if (choice.mode == Mode::Preempt && c != no_column && std::find(need.contested.begin(), need.contested.end(), c) == need.contested.end()) need.contested.push_back(c);
    }
  std::vector<FlavorQuestion> questions;
  if (world.rules.gates.topology) questions = placement_questions(world, id, queue, assignment);
  if (!questions.empty()) need.placed = [&] { return place(world, id, questions, false).ok(); };
  return find_victims(world, need);
}

Assigned with_victims(World& world, const AssignInput& input) {
  Assigned full{assign_flavors(world, input), {}};
  if (full.assignment.mode() == Mode::Fit) return full;
  if (full.assignment.mode() == Mode::Preempt) {
    full.victims = victims_for(world, input.workload, input.queue, full.assignment);
    if (!full.victims.empty()) return full;
  }
  const WorkloadSpec& spec = world.workloads[input.workload].spec;
  if (!world.rules.gates.partial_admission) return full;
  std::vector<CountRange> ranges;
  for (const PodSetSpec& pod_set : spec.pod_sets) ranges.push_back({pod_set.count, pod_set.min_count.value_or(pod_set.count)});
  auto fewer = largest_that_fits(ranges, [&](const std::vector<std::int32_t>& counts) -> std::optional<Assigned> {
    AssignInput reduced = input;
    reduced.counts = &counts;
    Assigned candidate{assign_flavors(world, reduced), {}};
    if (candidate.assignment.mode() == Mode::Fit) return candidate;
    if (candidate.assignment.mode() != Mode::Preempt) return std::nullopt;
    candidate.victims = victims_for(world, input.workload, input.queue, candidate.assignment);
    if (candidate.victims.empty()) return std::nullopt;
    return candidate;
  });
  return fewer ? std::move(*fewer) : full;
}

// What is to pre-empt is placed where its victims are now; without victims it holds a place as if all were empty, so that nobody behind it takes it.
void place_ahead(World& world, WorkloadId id, std::uint32_t queue, Assigned& assigned) {
  const WorkloadSpec& spec = world.workloads[id].spec;
  if (!world.rules.gates.topology || assigned.assignment.mode() != Mode::Preempt || has_unhealthy_place(spec)) return;
  const bool asked = std::any_of(spec.pod_sets.begin(), spec.pod_sets.end(), [](const PodSetSpec& pod_set) { return pod_set.topology.explicit_ask(); });
  if (!asked && !world.queues[queue].topology_only) return;
  const std::vector<FlavorQuestion> questions = placement_questions(world, id, queue, assigned.assignment);
  WorldTrial trial(world);
  for (const Victim& victim : assigned.victims) world.take_usage(victim.workload);
  const Placement placement = place(world, id, questions, assigned.victims.empty());
  trial.close();
  take_placement(world, id, assigned.assignment, placement);
  assigned.assignment.places = new_places(world, id, queue, assigned.assignment, false);
}

bool outdated(const World& world, const Progress& last, const Workload& workload, std::int64_t generation, std::int64_t cycle) {
  if (world.rules.gates.preserve_scan) {
    if (last.kind != workload.kind) return true;
    if (cycle - last.cycle <= 1) return false;
  }
  return generation > last.generation;
}

}  // namespace

Assigned assign(World& world, WorkloadId id, std::uint32_t queue, std::int64_t cycle, const Nomination* nominated) {
  Workload& workload = world.workloads[id];
  if (workload.progress && outdated(world, *workload.progress, workload, world.queues[queue].generation, cycle)) workload.progress.reset();
  const Gates& gates = world.rules.gates;
  const bool pinned = nominated != nullptr && (gates.recompute_overlaps || (gates.topology && gates.recompute_topology));
  Assigned assigned = with_victims(world, {.workload = id, .queue = queue, .nominated = pinned ? nominated : nullptr, .cycle = cycle, .oracle = {}});
  place_ahead(world, id, queue, assigned);
  return assigned;
}

Admission admission_of(const World& world, std::uint32_t queue, const Assignment& assignment) {
  Admission admission{.queue = world.queues[queue].spec.name, .pod_sets = {}};
  for (const PodSetFlavors& one : assignment.pod_sets) {
    HeldPodSet held{.name = one.name, .flavors = {}, .usage = {}, .count = one.count, .topology = one.topology, .topology_pending = one.topology_pending};
    for (const FlavorChoice& choice : one.flavors) {
      held.flavors[world.resources[choice.resource]] = world.flavors[choice.flavor].name;
      held.usage[world.resources[choice.resource]] = amount_of(one.requests, choice.resource);
    }
    admission.pod_sets.push_back(std::move(held));
  }
  return admission;
}

}  // namespace fairlead::governance
