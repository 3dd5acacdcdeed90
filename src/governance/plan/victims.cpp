// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/victims.h"

#include <algorithm>

#include "governance/plan/victims_search.h"

namespace fairlead::governance {

std::string_view text(VictimReason reason) {
  switch (reason) {
    case VictimReason::InClusterQueue: return "InClusterQueue";
    case VictimReason::InCohortReclamation: return "InCohortReclamation";
    case VictimReason::InCohortReclaimWhileBorrowing: return "InCohortReclaimWhileBorrowing";
    case VictimReason::InCohortFairSharing: return "InCohortFairSharing";
  }
  return "";
}

bool policy_allows(const World& world, PreemptionPolicy policy, const WorkloadSpec& preemptor, const WorkloadSpec& candidate) {
  const auto priority = [&](const WorkloadSpec& w) { return w.priority + (world.rules.gates.priority_boost ? w.boost : 0); };
  const bool lower = priority(preemptor) > priority(candidate);
  switch (policy) {
    case PreemptionPolicy::Never: return false;
    case PreemptionPolicy::LowerPriority: return lower;
    case PreemptionPolicy::LowerOrNewerEqualPriority: return lower || (priority(preemptor) == priority(candidate) && world.queue_time(preemptor) < world.queue_time(candidate));
    case PreemptionPolicy::Any: return true;
  }
  return false;
}

int compare_victims(const World& world, WorkloadId ai, WorkloadId bi, std::uint32_t own, bool by_history) {
  const Workload& a = world.workloads[ai];
  const Workload& b = world.workloads[bi];
  if (a.spec.evicted.is != b.spec.evicted.is) return a.spec.evicted.is ? -1 : 1;
  if ((a.queue == own) != (b.queue == own)) return b.queue == own ? -1 : 1;
  if (by_history && a.queue == b.queue && a.spec.local_queue != b.spec.local_queue && a.local_use && b.local_use && *a.local_use != *b.local_use) return *a.local_use > *b.local_use ? -1 : 1;
  if (const auto pa = world.priority(a), pb = world.priority(b); pa != pb) return pa < pb ? -1 : 1;
  const auto since = [&](const Workload& w) { return w.spec.reserved.is ? w.spec.reserved.since : world.rules.now; };
  if (since(a) != since(b)) return since(a) > since(b) ? -1 : 1;
  return a.spec.uid.compare(b.spec.uid);
}

bool uses_any(const Workload& workload, const std::vector<Column>& contested) {
  return std::any_of(workload.held.begin(), workload.held.end(), [&](const Use& use) { return std::find(contested.begin(), contested.end(), use.column) != contested.end(); });
}

bool Search::fits(bool may_borrow) const {
  const NodeId node = world.queues[need.queue].node;
  for (const Use& use : need.uses) {
    if (!may_borrow && world.ledger.borrowing(node, use.column, use.amount)) return false;
    if (use.amount > std::max<Amount>(0, world.ledger.available(node, use.column))) return false;
  }
  return !need.placed || need.placed();
}

// In reverse order, all but the last: who can come back without harm does.
void Search::give_back(std::vector<Victim>& victims, bool may_borrow) {
  if (victims.size() < 2) return;
  for (std::size_t i = victims.size() - 1; i-- > 0;) {
    world.give_usage(victims[i].workload);
    if (fits(may_borrow)) {
      victims[i] = victims.back();
      victims.pop_back();
    } else {
      world.take_usage(victims[i].workload);
    }
  }
}

std::vector<Victim> find_victims(World& world, const Need& need) {
  if (!world.ledger.active(world.queues[need.queue].node)) return {};
  Search search{world, need};
  const WorldTrial trial(world);
  return world.rules.fair ? search.fair() : search.classical();
}

Foreseen foresee(World& world, WorkloadId workload, std::uint32_t queue, Column column, Amount amount) {
  const Need need{.workload = workload, .queue = queue, .uses = {{column, amount}}, .contested = {column}, .places = {}, .placed = {}};
  const NodeId node = world.queues[queue].node;
  const std::vector<Victim> victims = find_victims(world, need);
  if (victims.empty()) return {Possibility::NoCandidates, world.ledger.borrow_level(node, column, amount).height};
  Foreseen foreseen{Possibility::Reclaim, 0};
  const WorldTrial trial(world);
  for (const Victim& victim : victims) {
    world.take_usage(victim.workload);
    if (world.workloads[victim.workload].queue == queue) foreseen.possibility = Possibility::Preempt;
  }
  foreseen.borrow_level = world.ledger.borrow_level(node, column, amount).height;
  return foreseen;
}

}  // namespace fairlead::governance
