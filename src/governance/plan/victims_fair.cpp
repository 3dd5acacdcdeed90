// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "governance/plan/victims_search.h"

namespace fairlead::governance {

FairOrder::FairOrder(World& world, std::uint32_t preemptor, const std::vector<WorkloadId>& sorted_candidates)
    : world_(&world), preemptor_(preemptor), lists_(world.queues.size()), left_(world.queues.size(), 0), pruned_(world.ledger.size(), false), on_path_(world.ledger.size(), false) {
  for (const WorkloadId w : sorted_candidates) lists_[world.workloads[w].queue].push_back(w);
  for (NodeId node = world.queues[preemptor].node; node != no_node; node = world.ledger.parent(node)) on_path_[node] = true;
}

std::uint32_t FairOrder::next() {
  const NodeId own = world_->queues[preemptor_].node;
  if (!world_->ledger.has_parent(own)) return !pruned_[own] && has(preemptor_) ? preemptor_ : none;
  const NodeId root = world_->ledger.root(own);
  while (!pruned_[root])
    if (const std::uint32_t queue = descend(root); queue != none) return queue;
  return none;
}

// The child that borrows most and still has candidates; none: a node was pruned on the way.
std::uint32_t FairOrder::descend(NodeId cohort) {
  const Ledger& ledger = world_->ledger;
  NodeId best_leaf = no_node, best_cohort = no_node;
  Share leaf_share = no_share(), cohort_share = no_share();
  for (const NodeId child : ledger.children(cohort)) {
    if (pruned_[child]) continue;
    const Share share = ledger.share(child);
    if (!ledger.is_leaf(child)) {
      // What does not borrow is left alone; on the preemptor's path there may still be an imbalance further down.
      if (!share.borrowing && !on_path_[child]) pruned_[child] = true;
      else if (compare(share, cohort_share) >= 0) cohort_share = share, best_cohort = child;
      continue;
    }
    const std::uint32_t queue = world_->queue_at(child);
    if ((!share.borrowing && queue != preemptor_) || !has(queue)) {
      pruned_[child] = true;
      continue;
    }
    const int order = compare(share, leaf_share);
    const auto first = [&](NodeId leaf) { const std::uint32_t q = world_->queue_at(leaf); return lists_[q][left_[q]]; };
    if (order > 0 || (order == 0 && compare_victims(*world_, first(child), first(best_leaf), preemptor_, false) < 0)) leaf_share = share, best_leaf = child;
  }
  if (best_leaf == no_node && best_cohort == no_node) {
    pruned_[cohort] = true;
    return none;
  }
  if (compare(cohort_share, leaf_share) >= 0) return descend(best_cohort);  // of equals the cohort: the worst within it can be chosen
  return world_->queue_at(best_leaf);
}

std::pair<NodeId, NodeId> FairOrder::below_common(std::uint32_t target) const {
  const Ledger& ledger = world_->ledger;
  NodeId there = world_->queues[target].node;
  while (!on_path_[ledger.parent(there)]) there = ledger.parent(there);
  NodeId here = world_->queues[preemptor_].node;
  while (ledger.parent(here) != ledger.parent(there)) here = ledger.parent(here);
  return {here, there};
}

namespace {

bool final_share_rule(const Share& newcomer, const Share& target_after) { return compare(newcomer, target_after) <= 0; }
bool initial_share_rule(const Share& newcomer, const Share& target_now) { return compare(newcomer, target_now) < 0; }

struct FairSearch {
  Search& search;
  World& world = search.world;
  const Need& need = search.need;
  NodeId own = world.queues[need.queue].node;
  std::vector<Victim> victims;
  std::vector<WorkloadId> again;  // failed the first rule

  // The newcomer's use stands in the ledger while shares are compared; room is asked for without it.
  bool fits() {
    WorldTrial without(world);
    world.ledger.remove(own, need.uses);
    return search.fits(true);
  }
  bool take(WorkloadId w, VictimReason reason) {
    world.take_usage(w);
    victims.push_back({w, reason});
    return fits();
  }
  Share share_after(NodeId node, WorkloadId gone) {
    WorldTrial trial(world);
    world.ledger.remove(world.queues[world.workloads[gone].queue].node, world.workloads[gone].held);
    return world.ledger.share(node);
  }

  bool first_rule(const std::vector<WorkloadId>& candidates, bool final_share) {
    FairOrder order(world, need.queue, candidates);
    const bool within_nominal = world.rules.gates.preempt_within_nominal && search.within_quota(own);
    for (std::uint32_t queue = order.next(); queue != none; queue = order.next()) {
      if (queue == need.queue || within_nominal) {
        if (take(order.pop(queue), queue == need.queue ? VictimReason::InClusterQueue : VictimReason::InCohortReclamation)) return true;
        continue;
      }
      const auto [here, there] = order.below_common(queue);
      const Share newcomer = world.ledger.share(here), now = world.ledger.share(there);
      while (order.has(queue)) {
        const WorkloadId w = order.pop(queue);
        if (!(final_share ? final_share_rule(newcomer, share_after(there, w)) : initial_share_rule(newcomer, now))) {
          again.push_back(w);
          continue;
        }
        if (take(w, VictimReason::InCohortFairSharing)) return true;
        break;  // shares have moved: perhaps another queue's turn
      }
    }
    return false;
  }

  bool second_rule() {
    FairOrder order(world, need.queue, again);
    for (std::uint32_t queue = order.next(); queue != none; queue = order.next()) {
      const auto [here, there] = order.below_common(queue);
      const bool passed = initial_share_rule(world.ledger.share(here), world.ledger.share(there));
      const WorkloadId w = order.pop(queue);
      if (passed && take(w, VictimReason::InCohortFairSharing)) return true;
      order.drop(queue);
    }
    return false;
  }

  // Would each victim still be allowed if these alone were taken, in this order? All of them are out of the ledger now, the newcomer is not in it.
  bool legal(const std::vector<Victim>& chosen) {
    WorldTrial trial(world);
    for (const Victim& victim : chosen) world.give_usage(victim.workload);
    world.ledger.add(own, need.uses);
    FairOrder order(world, need.queue, {});
    for (const Victim& victim : chosen) {
      if (victim.reason == VictimReason::InCohortFairSharing) {
        const auto [here, there] = order.below_common(world.workloads[victim.workload].queue);
        const Share newcomer = world.ledger.share(here);
        const bool allowed = (world.rules.final_share && final_share_rule(newcomer, share_after(there, victim.workload))) ||
                             (world.rules.initial_share && initial_share_rule(newcomer, world.ledger.share(there)));
        if (!allowed) return false;
      }
      world.take_usage(victim.workload);
    }
    return true;
  }

  // Gives back one after the other, in reverse, as long as it fits and the rest stays legal; keeps the order in which they were taken.
  std::vector<Victim> give_back_legally(std::vector<Victim> chosen) {
    for (std::size_t i = chosen.size(); i-- > 0;) {
      if (i + 1 == chosen.size()) continue;
      std::vector<Victim> fewer = chosen;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      world.give_usage(chosen[i].workload);
      if (search.fits(true) && legal(fewer)) chosen = std::move(fewer);
      else world.take_usage(chosen[i].workload);
    }
    return chosen;
  }
};

}  // namespace

std::vector<Victim> Search::fair() {
  const Queue& queue = world.queues[need.queue];
  const Workload& asker = world.workloads[need.workload];
  std::vector<WorkloadId> candidates;
  const auto collect = [&](const Queue& from, PreemptionPolicy policy) {
    for (const WorkloadId w : from.held)
      if (policy_allows(world, policy, asker.spec, world.workloads[w].spec) && uses_any(world.workloads[w], need.contested)) candidates.push_back(w);
  };
  if (queue.spec.policies.within_queue != PreemptionPolicy::Never) collect(queue, queue.spec.policies.within_queue);
  if (world.ledger.has_parent(queue.node) && queue.spec.policies.reclaim != PreemptionPolicy::Never)
    for (const NodeId leaf : world.ledger.leaves(world.ledger.tree(queue.node)))
      if (leaf != queue.node && !within_quota(leaf)) collect(world.queues[world.queue_at(leaf)], queue.spec.policies.reclaim);
  if (candidates.empty()) return {};
  std::sort(candidates.begin(), candidates.end(), [&](WorkloadId a, WorkloadId b) { return compare_victims(world, a, b, need.queue, by_history()) < 0; });

  FairSearch search{*this};
  world.ledger.add(queue.node, need.uses);
  const Rules& rules = world.rules;
  const bool final_first = rules.final_share && !rules.initial_first;
  bool found = search.first_rule(candidates, final_first);
  if (!found && rules.final_share && rules.initial_share) found = search.second_rule();
  world.ledger.remove(queue.node, need.uses);
  if (!found) return {};
  std::vector<Victim> victims = search.victims;
  if (!rules.check_final) {
    give_back(victims, true);
    return victims;
  }
  return search.give_back_legally(std::move(victims));
}

}  // namespace fairlead::governance
