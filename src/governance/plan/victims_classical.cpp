// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "governance/plan/victims_search.h"

namespace fairlead::governance {
namespace {

enum class Class {
  Hierarchy,         // holds capacity of a subtree that the newcomer belongs to and would fit in
  WithoutBorrowing,  // only if the newcomer ends within its own quota
  WhileBorrowing,    // even if it does not
  Own,               // of the newcomer's queue
};

struct Candidate {
  WorkloadId workload = none;
  Class kind = Class::Own;
  NodeId common = no_node;  // the lowest cohort of both
};

VictimReason reason_of(Class kind) {
  switch (kind) {
    case Class::Hierarchy:
    case Class::WithoutBorrowing: return VictimReason::InCohortReclamation;
    case Class::WhileBorrowing: return VictimReason::InCohortReclaimWhileBorrowing;
    case Class::Own: break;
  }
  return VictimReason::InClusterQueue;
}

class Candidates {
 public:
  Candidates(Search& search) : search_(search), world_(search.world), queue_(world_.queues[search.need.queue]), asker_(world_.workloads[search.need.workload]) {
    collect_own();
    collect_others();
    const auto order = [&](const Candidate& a, const Candidate& b) { return compare_victims(world_, a.workload, b.workload, search_.need.queue, search_.by_history()) < 0; };
    for (auto* list : {&hierarchy_, &priority_, &own_}) std::sort(list->begin(), list->end(), order);
    for (const bool evicted : {true, false})
      for (const auto* list : {&hierarchy_, &priority_, &own_})
        for (const Candidate& candidate : *list)
          if (world_.workloads[candidate.workload].spec.evicted.is == evicted) all_.push_back(candidate);
  }

  bool none_elsewhere() const { return hierarchy_.empty() && priority_.empty(); }
  bool none_by_hierarchy() const { return hierarchy_.empty(); }
  const std::vector<Candidate>& all() const { return all_; }

  // What was taken before may have ended somebody's borrowing.
  bool still_valid(const Candidate& candidate, bool may_borrow) const {
    if (candidate.kind == Class::Own) return true;
    if (may_borrow && candidate.kind == Class::WithoutBorrowing) return false;
    for (NodeId node = world_.queues[world_.workloads[candidate.workload].queue].node; node != candidate.common; node = world_.ledger.parent(node))
      if (search_.within_quota(node)) return false;
    return true;
  }

 private:
  void collect_own() {
    if (queue_.spec.policies.within_queue == PreemptionPolicy::Never) return;
    for (const WorkloadId w : queue_.held)
      if (uses_any(world_.workloads[w], search_.need.contested) && policy_allows(world_, queue_.spec.policies.within_queue, asker_.spec, world_.workloads[w].spec)) own_.push_back({w, Class::Own, no_node});
  }

  void collect_others() {
    if (!world_.ledger.has_parent(queue_.node) || queue_.spec.policies.reclaim == PreemptionPolicy::Never) return;
    std::vector<Use> rest = search_.need.uses;
    bool advantage = world_.ledger.holds(queue_.node, rest);
    NodeId done = queue_.node;
    for (NodeId subtree = world_.ledger.parent(queue_.node); subtree != no_node; subtree = world_.ledger.parent(subtree)) {
      collect_below(subtree, subtree, done, advantage);
      const bool fits = world_.ledger.holds(subtree, rest);
      advantage = advantage || fits;
      done = subtree;
    }
  }

  void collect_below(NodeId cohort, NodeId common, NodeId done, bool advantage) {
    for (const NodeId child : world_.ledger.children(cohort)) {
      if (child == done || child == queue_.node || search_.within_quota(child)) continue;
      if (!world_.ledger.is_leaf(child)) {
        collect_below(child, common, done, advantage);
        continue;
      }
      for (const WorkloadId w : world_.queues[world_.queue_at(child)].held) {
        const Workload& held = world_.workloads[w];
        if (!uses_any(held, search_.need.contested) || !policy_allows(world_, queue_.spec.policies.reclaim, asker_.spec, held.spec)) continue;
        (advantage ? hierarchy_ : priority_).push_back({w, advantage ? Class::Hierarchy : by_priority(held), common});
      }
    }
  }

  Class by_priority(const Workload& held) const {
    const QueuePolicies& policies = queue_.spec.policies;
    if (!policies.borrow_within_cohort || world_.priority(held) >= world_.priority(asker_)) return Class::WithoutBorrowing;
    return policies.borrow_threshold && world_.priority(held) > *policies.borrow_threshold ? Class::WithoutBorrowing : Class::WhileBorrowing;
  }

  Search& search_;
  World& world_;
  const Queue& queue_;
  const Workload& asker_;
  std::vector<Candidate> hierarchy_, priority_, own_, all_;
};

}  // namespace

std::vector<Victim> Search::classical() {
  const Candidates candidates(*this);
  const Queue& queue = world.queues[need.queue];
  const bool forbidden = !queue.spec.policies.borrow_within_cohort;
  const bool below_nominal = std::all_of(need.contested.begin(), need.contested.end(), [&](Column c) { return world.ledger.limits(queue.node, c).nominal > world.ledger.usage(queue.node, c); });
  std::vector<bool> attempts{true, false};  // may it borrow?
  if (candidates.none_elsewhere() || (forbidden && !below_nominal)) attempts = {true};
  else if (forbidden && candidates.none_by_hierarchy()) attempts = {false, true};

  for (const bool may_borrow : attempts) {
    WorldTrial attempt(world);
    std::vector<Victim> victims;
    for (const Candidate& candidate : candidates.all()) {
      if (!candidates.still_valid(candidate, may_borrow)) continue;
      world.take_usage(candidate.workload);
      victims.push_back({candidate.workload, reason_of(candidate.kind)});
      if (!fits(may_borrow)) continue;
      give_back(victims, may_borrow);
      return victims;
    }
  }
  return {};
}

}  // namespace fairlead::governance
