// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/order.h"

#include <map>

namespace fairlead::governance {
namespace {

int compare_times(Instant a, Instant b) { return a < b ? -1 : b < a ? 1 : 0; }

struct Tournament {
  World& world;
  const std::vector<Head>& heads;
  std::map<NodeId, std::size_t> head_of;  // leaf -> head
  std::map<std::pair<std::size_t, NodeId>, std::pair<Share, bool>> shares;  // (head, cohort): of the child of the cohort on the head's path, and whether it borrows what is asked

  // With the head's use in place, the shares of all nodes of its path but the root.
  void weigh(std::size_t h) {
    const Head& head = heads[h];
    const NodeId leaf = world.queues[head.queue].node;
    Ledger::Trial trial(world.ledger);
    world.ledger.add(leaf, head.uses);
    for (NodeId node = leaf; world.ledger.has_parent(node); node = world.ledger.parent(node))
      shares[{h, world.ledger.parent(node)}] = {world.ledger.share(node), world.ledger.borrowing_on(node, head.uses)};
  }

  bool before(std::size_t a, std::size_t b, NodeId cohort) {
    const Gates& gates = world.rules.gates;
    if (gates.prioritize_preemptors && heads[a].preemptor != heads[b].preemptor) return heads[a].preemptor;
    const auto& [a_share, a_borrows] = shares.at({a, cohort});
    const auto& [b_share, b_borrows] = shares.at({b, cohort});
    if (gates.prioritize_non_borrowing && a_borrows != b_borrows) return !a_borrows;
    if (const int order = compare(a_share, b_share); order != 0) return order < 0;
    const Workload& wa = world.workloads[heads[a].workload];
    const Workload& wb = world.workloads[heads[b].workload];
    if (gates.priority_sorting_within_cohort && world.priority(wa) != world.priority(wb)) return world.priority(wa) > world.priority(wb);
    if (const int order = compare_times(world.queue_time(wa.spec), world.queue_time(wb.spec)); order != 0) return order < 0;
    return wa.spec.uid < wb.spec.uid;
  }

  std::size_t nominate(NodeId cohort) {
    std::size_t best = none;
    for (const NodeId child : world.ledger.children(cohort)) {
      std::size_t nominee = none;
      if (!world.ledger.is_leaf(child)) nominee = nominate(child);
      else if (const auto at = head_of.find(child); at != head_of.end()) nominee = at->second;
      if (nominee != none && (best == none || before(nominee, best, cohort))) best = nominee;
    }
    return best;
  }
};

}  // namespace

int compare_in_queue(const World& world, WorkloadId ai, WorkloadId bi, WorkloadId sticky) {
  if ((ai == sticky) != (bi == sticky)) return ai == sticky ? -1 : 1;
  const Workload& a = world.workloads[ai];
  const Workload& b = world.workloads[bi];
  if (const auto pa = world.priority(a), pb = world.priority(b); pa != pb) return pa > pb ? -1 : 1;
  if (const int order = compare_times(world.queue_time(a.spec), world.queue_time(b.spec)); order != 0) return order;
  return a.spec.uid.compare(b.spec.uid);
}

int compare_heads(const World& world, const Head& a, const Head& b) {
  if (a.has_quota != b.has_quota) return a.has_quota ? -1 : 1;
  const Gates& gates = world.rules.gates;
  if (gates.prioritize_preemptors && a.preemptor != b.preemptor) return a.preemptor ? -1 : 1;
  if (a.borrow_level != b.borrow_level) return a.borrow_level < b.borrow_level ? -1 : 1;
  const Workload& wa = world.workloads[a.workload];
  const Workload& wb = world.workloads[b.workload];
  if (gates.priority_sorting_within_cohort && world.priority(wa) != world.priority(wb)) return world.priority(wa) > world.priority(wb) ? -1 : 1;
  if (const int order = compare_times(world.queue_time(wa.spec), world.queue_time(wb.spec)); order != 0) return order;
  return wa.spec.uid.compare(wb.spec.uid);
}

std::size_t fairest(World& world, const std::vector<Head>& heads, const std::vector<bool>& open) {
  std::size_t first = 0;
  while (!open[first]) ++first;
  const NodeId leaf = world.queues[heads[first].queue].node;
  if (!world.ledger.has_parent(leaf)) return first;
  const NodeId root = world.ledger.root(leaf);
  Tournament tournament{world, heads, {}, {}};
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const NodeId node = world.queues[heads[h].queue].node;
    if (!open[h] || world.ledger.root(node) != root) continue;
    tournament.head_of[node] = h;
    tournament.weigh(h);
  }
  return tournament.nominate(root);
}

}  // namespace fairlead::governance
