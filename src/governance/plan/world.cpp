// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/world.h"

#include <algorithm>
#include <set>

namespace fairlead::governance {
namespace {

template <class Named>
std::uint32_t find_by_name(const std::vector<Named>& sorted, std::string_view name, const auto& name_of) {
  const auto at = std::lower_bound(sorted.begin(), sorted.end(), name, [&](const Named& entry, std::string_view wanted) { return name_of(entry) < wanted; });
  return at != sorted.end() && name_of(*at) == name ? static_cast<std::uint32_t>(at - sorted.begin()) : none;
}

void add_amount(Amounts& sum, ResourceId resource, Amount amount) {
  const auto at = std::lower_bound(sum.begin(), sum.end(), resource, [](const auto& entry, ResourceId wanted) { return entry.first < wanted; });
  if (at != sum.end() && at->first == resource) at->second = plus(at->second, amount);
  else sum.insert(at, {resource, amount});
}

constexpr std::string_view multikueue = "kueue.x-k8s.io/multikueue";
constexpr std::string_view provisioning = "kueue.x-k8s.io/provisioning-request";

}  // namespace

std::vector<std::pair<FlavorResource, Limits>> quotas_of(const std::vector<ResourceGroup>& groups) {
  std::vector<std::pair<FlavorResource, Limits>> quotas;
  for (const ResourceGroup& group : groups)
    for (const QueueFlavor& flavor : group.flavors)
      for (const auto& [resource, limits] : flavor.resources) quotas.emplace_back(FlavorResource{flavor.name, resource}, limits);
  return quotas;
}

void Gates::set(std::string_view gate, bool on) {
  const std::pair<std::string_view, bool Gates::*> known[] = {
      {"PartialAdmission", &Gates::partial_admission},
      {"PrioritySortingWithinCohort", &Gates::priority_sorting_within_cohort},
      {"PrioritizePreemptorWorkloads", &Gates::prioritize_preemptors},
      {"FairSharingPrioritizeNonBorrowing", &Gates::prioritize_non_borrowing},
      {"FairSharingPreemptWithinNominal", &Gates::preempt_within_nominal},
      {"RecomputeAssignmentUponPreemptionTargetsOverlap", &Gates::recompute_overlaps},
      {"TASRecomputeAssignmentWithinSchedulingCycle", &Gates::recompute_topology},
      {"TopologyAwareScheduling", &Gates::topology},
      {"TASFailedNodeReplacementFailFast", &Gates::fail_fast_replacement},
      {"PriorityBoost", &Gates::priority_boost},
      {"ReclaimablePods", &Gates::reclaimable_pods},
      {"SchedulingEquivalenceHashing", &Gates::equivalence},
      {"FlavorFungibilityPreserveScanProgress", &Gates::preserve_scan},
      {"FlavorFungibility", &Gates::fungibility},
      {"AdmissionFairSharing", &Gates::usage_history},
      {"AdmissionGatedBy", &Gates::admission_gates},
      {"UnadmittedWorkloadsObservability", &Gates::observability},
  };
  for (const auto& [name, member] : known)
    if (name == gate) this->*member = on;
  if (gate == "ConcurrentAdmission" || gate == "MultiKueueOrchestratedPreemption") preemption_gates = preemption_gates || on;
  if (gate == "ConcurrentAdmission") allowed_flavors = on;
  if (gate == "TASProfileMixed") placement.least_free_if_unconstrained = on;
  if (gate == "TASBalancedPlacement") placement.balanced = on;
  if (gate == "TASRespectNodeAffinityPreferred") placement.node_preference = on;
  if (gate == "SkipReassignmentForPodOwnedWorkloads") placement.keep_pod_owned = on;
  if (gate == "TASHandleOverlappingFlavors") placement.overlapping_flavors = on;
}

const Group* Queue::group_of(ResourceId resource) const {
  for (const Group& group : groups)
    if (std::find(group.resources.begin(), group.resources.end(), resource) != group.resources.end()) return &group;
  return nullptr;
}

Amount amount_of(const Amounts& amounts, ResourceId resource) {
  for (const auto& [id, amount] : amounts)
    if (id == resource) return amount;
  return 0;
}

bool Progress::pending() const {
  for (const auto& pod_set : tried)
    for (const auto& [resource, last] : pod_set)
      if (last != -1) return true;
  return false;
}

std::uint32_t World::queue_named(std::string_view name) const { return find_by_name(queues, name, [](const Queue& queue) -> const std::string& { return queue.spec.name; }); }
FlavorId World::flavor_named(std::string_view name) const { return find_by_name(flavors, name, [](const Flavor& flavor) -> const std::string& { return flavor.name; }); }
ResourceId World::resource_named(std::string_view name) const { return find_by_name(resources, name, [](const std::string& resource) -> const std::string& { return resource; }); }

Instant World::queue_time(const WorkloadSpec& w) const {
  if (w.evicted.is && ((rules.eviction_time_orders && w.evicted.reason == "PodsReadyTimeout") || w.evicted.reason == "AdmissionCheck")) return w.evicted.since;
  if (!rules.gates.priority_sorting_within_cohort && w.preempted.is && w.preempted.reason == "InCohortReclaimWhileBorrowing") return w.preempted.since + 1ms;
  return w.created;
}

void World::take_usage(WorkloadId w) {
  const Workload& workload = workloads[w];
  ledger.remove(queues[workload.queue].node, workload.held);
  for (const auto& [flavor, use] : workload.places) flavors[flavor].topology->remove(std::span(&use, 1));
}

void World::give_usage(WorkloadId w) {
  const Workload& workload = workloads[w];
  ledger.add(queues[workload.queue].node, workload.held);
  for (const auto& [flavor, use] : workload.places) flavors[flavor].topology->add(std::span(&use, 1));
}

void World::leave(WorkloadId w) {
  std::vector<WorkloadId>& held = queues[workloads[w].queue].held;
  held.erase(std::remove(held.begin(), held.end(), w), held.end());
  workloads[w].counted = false;
}

void World::come_back(WorkloadId w) {
  queues[workloads[w].queue].held.push_back(w);
  workloads[w].counted = true;
}

void World::count_in(WorkloadId id) {
  Workload& w = workloads[id];
  const Admission& admission = *w.spec.admission;
  const Queue& queue = queues[w.queue];
  w.asks.assign(w.spec.pod_sets.size(), {});  // by the spec; what the admission names beside it counts as usage alone
  w.held.clear();
  w.places.clear();
  for (const HeldPodSet& held : admission.pod_sets) {
    const auto spec = std::find_if(w.spec.pod_sets.begin(), w.spec.pod_sets.end(), [&](const PodSetSpec& pod_set) { return pod_set.name == held.name; });
    const std::int32_t asked = spec == w.spec.pod_sets.end() ? 0 : spec->count;
    PodSetAsk ask{.count = held.count.value_or(asked), .total = {}};
    std::int32_t left = asked;
    if (const auto reclaimed = w.spec.reclaimable.find(held.name); rules.gates.reclaimable_pods && reclaimed != w.spec.reclaimable.end()) left -= std::min(reclaimed->second, left);
    for (const auto& [resource, amount] : held.usage) {
      Amount total = amount;
      if (left < ask.count) total = ask.count == 0 ? total : times(total / ask.count, left);
      if (const ResourceId r = resource_named(resource); r != none) {
        add_amount(ask.total, r, total);
        const auto flavor = held.flavors.find(resource);
        if (flavor == held.flavors.end()) continue;
        const Column c = ledger.column(queue.node, flavor->second, resource);
        if (c == no_column) continue;
        const auto use = std::find_if(w.held.begin(), w.held.end(), [&](const Use& u) { return u.column == c; });
        if (use != w.held.end()) use->amount = plus(use->amount, total);
        else w.held.push_back({c, total});
      }
    }
    if (rules.gates.topology && held.topology) {
      PodAmounts per_pod;
      if (spec != w.spec.pod_sets.end()) {
        per_pod = amounts_of(spec->raw, *placement_resources);
      } else {
        NamedAmounts each = held.usage;
        for (auto& [name, amount] : each) amount = ask.count == 0 ? 0 : amount / ask.count;
        per_pod = amounts_of(each, *placement_resources);
      }
      std::set<std::string> names;
      for (const auto& [resource, flavor] : held.flavors) names.insert(flavor);
      for (const std::string& name : names) {
        const FlavorId f = flavor_named(name);
        if (f == none || flavors[f].topology == nullptr) continue;
        for (DomainUse& use : uses_of(*held.topology, per_pod)) w.places.emplace_back(f, std::move(use));
      }
    }
    if (left < ask.count) ask.count = left;
    if (spec != w.spec.pod_sets.end()) w.asks[static_cast<std::size_t>(spec - w.spec.pod_sets.begin())] = std::move(ask);
  }
}

WorldTrial::WorldTrial(World& world) : world_(&world), ledger_(world.ledger) {
  for (const Flavor& flavor : world.flavors) marks_.push_back(flavor.topology == nullptr ? 0 : flavor.topology->mark());
}

void WorldTrial::close() {
  if (world_ == nullptr) return;
  ledger_.close();
  for (std::size_t f = 0; f < marks_.size(); ++f)
    if (world_->flavors[f].topology != nullptr) world_->flavors[f].topology->undo(marks_[f]);
  world_ = nullptr;
}

World build_world(WorldSpec spec) {
  World world;
  world.rules = spec.rules;
  // Ids, by name.
  std::set<std::string> flavor_names, resource_names{"pods"};
  for (const FlavorSpec& flavor : spec.flavors) flavor_names.insert(flavor.node.name);
  const auto collect = [&](const std::vector<ResourceGroup>& groups) {
    for (const ResourceGroup& group : groups) {
      resource_names.insert(group.resources.begin(), group.resources.end());
      for (const QueueFlavor& flavor : group.flavors) {
        flavor_names.insert(flavor.name);
        for (const auto& entry : flavor.resources) resource_names.insert(entry.first);
      }
    }
  };
  for (const QueueSpec& queue : spec.queues) collect(queue.groups);
  for (const CohortSpec& cohort : spec.cohorts) collect(cohort.groups);
  for (const WorkloadSpec& workload : spec.workloads) {
    for (const PodSetSpec& pod_set : workload.pod_sets)
      for (const auto& entry : pod_set.per_pod) resource_names.insert(entry.first);
    if (workload.admission)
      for (const HeldPodSet& held : workload.admission->pod_sets)
        for (const auto& entry : held.usage) resource_names.insert(entry.first);
  }
  world.resources.assign(resource_names.begin(), resource_names.end());
  for (const std::string& name : flavor_names) world.flavors.push_back({.name = name, .spec = {}, .topology = {}});
  for (FlavorSpec& flavor : spec.flavors) world.flavors[world.flavor_named(flavor.node.name)].spec = std::move(flavor);

  // Trees.
  std::vector<NodeSpec> nodes;
  for (const CohortSpec& cohort : spec.cohorts) nodes.push_back({.name = cohort.name, .parent = cohort.parent, .leaf = false, .weight = cohort.weight, .quotas = quotas_of(cohort.groups)});
  for (const QueueSpec& queue : spec.queues) nodes.push_back({.name = queue.name, .parent = queue.cohort, .leaf = true, .weight = queue.weight, .quotas = quotas_of(queue.groups)});
  world.ledger = Ledger(nodes);

  // Topologies of flavors.
  if (spec.rules.gates.topology) {
    for (Flavor& flavor : world.flavors) {
      if (!flavor.spec || flavor.spec->topology.empty()) continue;
      const auto shape = std::find_if(spec.topologies.begin(), spec.topologies.end(), [&](const TopologyShape& t) { return t.name == flavor.spec->topology; });
      if (shape == spec.topologies.end()) continue;
      TopologyShape with = *shape;
      with.flavor_labels = flavor.spec->node.labels;
      with.tolerations = flavor.spec->tolerations;
      flavor.topology = std::make_unique<Topology>(std::move(with), spec.nodes, world.placement_resources, spec.rules.gates.placement);
      for (const WorldSpec::OtherPod& pod : spec.other_pods) flavor.topology->add_other(pod.node, pod.requests);
    }
  }

  // Queues.
  std::sort(spec.queues.begin(), spec.queues.end(), [](const QueueSpec& a, const QueueSpec& b) { return a.name < b.name; });
  world.queue_of_node.assign(world.ledger.size(), none);
  for (QueueSpec& queue_spec : spec.queues) {
    Queue queue;
    queue.node = world.ledger.leaf(queue_spec.name);
    queue.active = !queue_spec.stopped && world.ledger.active(queue.node);
    queue.topology_only = true;
    for (const ResourceGroup& group_spec : queue_spec.groups) {
      Group group;
      for (const std::string& resource : group_spec.resources) group.resources.push_back(world.resource_named(resource));
      for (const QueueFlavor& flavor : group_spec.flavors) {
        const FlavorId f = world.flavor_named(flavor.name);
        group.flavors.push_back(f);
        const Flavor& named = world.flavors[f];
        if (!named.spec) queue.active = false;
        if (!named.spec || named.spec->topology.empty()) queue.topology_only = false;
      }
      queue.groups.push_back(std::move(group));
    }
    if (!spec.rules.gates.topology) queue.topology_only = false;
    std::vector<std::pair<std::string, std::vector<std::string>>> checks = queue_spec.checks_on;
    for (const std::string& check : queue_spec.checks) checks.emplace_back(check, std::vector<std::string>{});
    int multikueue_checks = 0;
    for (const auto& [check, on] : checks) {
      const auto controller = spec.check_controllers.find(check);
      if (controller == spec.check_controllers.end()) {
        queue.active = false;
        continue;
      }
      if (controller->second == multikueue) {
        queue.delays_topology = true;
        const bool all = on.empty() || std::all_of(queue.groups.begin(), queue.groups.end(), [&, &named = on](const Group& group) {
          return std::all_of(group.flavors.begin(), group.flavors.end(), [&](FlavorId f) { return std::find(named.begin(), named.end(), world.flavors[f].name) != named.end(); });
        });
        if (++multikueue_checks > 1 || !all) queue.active = false;  // one, and for all flavors
      }
      if (controller->second == provisioning) {
        if (on.empty())
          for (const Group& group : queue.groups) queue.provisioned.insert(queue.provisioned.end(), group.flavors.begin(), group.flavors.end());
        for (const std::string& flavor : on) queue.provisioned.push_back(world.flavor_named(flavor));
      }
    }
    if (multikueue_checks > 0 && !queue.provisioned.empty()) queue.active = false;  // the other cluster provides
    if (spec.rules.gates.topology && !queue.delays_topology)
      for (const Group& group : queue.groups)
        for (const FlavorId f : group.flavors)
          if (world.flavors[f].spec && !world.flavors[f].spec->topology.empty() && world.flavors[f].topology == nullptr) queue.active = false;
    queue.columns.assign(world.resources.size(), std::vector<Column>(world.flavors.size(), no_column));
    for (Column c = 0; c < world.ledger.width(queue.node); ++c) {
      const FlavorResource& name = world.ledger.name(queue.node, c);
      queue.columns[world.resource_named(name.resource)][world.flavor_named(name.flavor)] = c;
    }
    queue.spec = std::move(queue_spec);
    world.queue_of_node[queue.node] = static_cast<std::uint32_t>(world.queues.size());
    world.queues.push_back(std::move(queue));
  }

  // Workloads.
  std::map<std::string, std::string> queue_of_local;
  for (const LocalQueueSpec& local : spec.local_queues) queue_of_local[local.key()] = local.queue;
  std::map<std::string, std::uint32_t> kinds;
  for (WorkloadSpec& workload_spec : spec.workloads) {
    Workload w;
    w.spec = std::move(workload_spec);
    const bool counts = w.spec.admission && w.spec.active && !w.spec.finished.is && (spec.admissions_count || w.spec.reserved.is);
    if (counts) {
      w.queue = world.queue_named(w.spec.admission->queue);
    } else if (const auto local = queue_of_local.find(w.spec.space + "/" + w.spec.local_queue); local != queue_of_local.end()) {
      w.queue = world.queue_named(local->second);
    }
    world.workloads.push_back(std::move(w));
    const auto id = static_cast<WorkloadId>(world.workloads.size() - 1);
    Workload& workload = world.workloads.back();
    if (counts && workload.queue != none) {
      world.count_in(id);
      world.come_back(id);
      world.give_usage(id);
      if (spec.rules.gates.placement.overlapping_flavors)  // hosts that several flavors see
        for (const auto& [f, use] : workload.places)
          for (FlavorId other = 0; other < world.flavors.size(); ++other)
            if (other != f && world.flavors[other].topology && world.flavors[other].topology->by_host() && world.flavors[f].topology->by_host()) world.flavors[other].topology->add(std::span(&use, 1));
    } else {
      for (const PodSetSpec& pod_set : workload.spec.pod_sets) {
        PodSetAsk ask{.count = pod_set.count, .total = {}};
        if (const auto reclaimed = workload.spec.reclaimable.find(pod_set.name); world.rules.gates.reclaimable_pods && reclaimed != workload.spec.reclaimable.end())
          ask.count -= std::min(reclaimed->second, ask.count);
        for (const auto& [resource, amount] : pod_set.per_pod) add_amount(ask.total, world.resource_named(resource), times(amount, ask.count));
        workload.asks.push_back(std::move(ask));
      }
    }
    std::string kind = std::to_string(world.priority(workload));
    for (std::size_t i = 0; i < workload.spec.pod_sets.size(); ++i) {
      kind += '\n' + workload.spec.pod_sets[i].shape;
      if (i < workload.asks.size()) {
        kind += '\n' + std::to_string(workload.asks[i].count);
        for (const auto& [resource, amount] : workload.asks[i].total) kind += ' ' + std::to_string(resource) + '=' + std::to_string(amount);
      }
    }
    workload.kind = kinds.emplace(std::move(kind), static_cast<std::uint32_t>(kinds.size())).first->second;
  }
  return world;
}

}  // namespace fairlead::governance
