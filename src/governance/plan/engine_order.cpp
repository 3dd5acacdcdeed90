// SPDX-License-Identifier: Apache-2.0
// Whose turn it is. Classical: one heap of queues for each tree. Fair: at each cohort a heap of its children by what they would have borrowed with their nominee; a change moves its own path alone,
// since what a branch has borrowed depends on that branch.
#include <algorithm>
#include <utility>

#include "governance/plan/engine_state.h"

namespace fairlead::governance {

int ContinuousEngine::State::compare_lines(std::uint32_t a, std::uint32_t b) const {
  if (a == b) return 0;
  const auto rank = [this](std::uint32_t line) { return line == nothing ? std::pair(false, 0.0) : std::pair(lines[line].use.last, lines[line].most); };
  const auto x = rank(a), y = rank(b);
  return x < y ? -1 : y < x ? 1 : 0;
}

// All of its classes leave their heap before any key changes, and come back behind it.
void ContinuousEngine::State::change_line(std::uint32_t line, const std::function<void(Line&)>& change) {
  const auto less = [this](ClassId a, ClassId b) { return class_first(a, b); };
  std::vector<ClassId> waiting_ones;
  for (const ClassId c : lines[line].classes) {
    if (class_at[c] == not_in_heap) continue;
    waiting_ones.push_back(c);
    queues[classes[c].queue].classes.remove(c, class_at, less);
  }
  change(lines[line]);
  lines[line].most = 0;
  for (const auto& [resource, amount] : lines[line].use.used) lines[line].most = std::max(lines[line].most, amount);
  for (const ClassId c : waiting_ones) {
    queues[classes[c].queue].classes.put(c, class_at, less);
    mark(classes[c].queue);
  }
}

void ContinuousEngine::State::set_line(const std::string& name, const LineUse& use) {
  const auto [at, fresh] = line_ids.try_emplace(name, static_cast<std::uint32_t>(lines.size()));
  if (fresh) lines.emplace_back();
  if (lines[at->second].use == use) return;
  change_line(at->second, [&](Line& line) { line.use = use; });
}

void ContinuousEngine::State::add_to_line(const Class& got) {
  if (got.line == nothing || lines[got.line].use.per_unit.empty()) return;
  change_line(got.line, [&](Line& line) {
    for (const Ask& ask : got.asks)
      if (const auto per_unit = line.use.per_unit.find(names[ask.resource]); per_unit != line.use.per_unit.end()) line.use.used[per_unit->first] += per_unit->second * static_cast<double>(ask.amount);
  });
}

bool ContinuousEngine::State::class_first(ClassId a, ClassId b) const {
  const Class &x = classes[a], &y = classes[b];
  if (const int order = compare_lines(x.line, y.line); order != 0) return order < 0;
  if (x.spec.priority != y.spec.priority) return x.spec.priority > y.spec.priority;
  return later(y.waiting.front(), x.waiting.front());
}

bool ContinuousEngine::State::queue_first(std::uint32_t a, std::uint32_t b) const {
  const Queue &x = queues[a], &y = queues[b];
  if (x.found.level != y.found.level) return x.found.level < y.found.level;
  if (x.priority != y.priority) return x.priority > y.priority;
  return later(y.head, x.head);
}

bool ContinuousEngine::State::bid_first(const Bid& x, const Bid& y) const {
  if (x.borrows != y.borrows) return y.borrows;
  if (const int order = compare(x.share, y.share); order != 0) return order < 0;
  const Queue &p = queues[x.queue], &q = queues[y.queue];
  if (p.priority != q.priority) return p.priority > q.priority;
  return later(q.head, p.head);
}

// Bids of the path from `from` to below the root, with the nominee of q counted.
void ContinuousEngine::State::weigh(std::uint32_t q, NodeId from) {
  const Queue& queue = queues[q];
  const std::vector<Use>& uses = classes[queue.found.shape].choices[queue.found.choice].uses;
  const Ledger::Trial trial(ledger);
  ledger.add(queue.leaf, uses);
  for (NodeId node = from; ledger.has_parent(node); node = ledger.parent(node)) bids[node] = {ledger.borrowing_on(node, uses), ledger.share(node), q};
}

void ContinuousEngine::State::reorder(std::uint32_t q) {
  Queue& queue = queues[q];
  if (!fair) {
    const auto less = [this](std::uint32_t a, std::uint32_t b) { return queue_first(a, b); };
    IndexedHeap& heap = by_tree[ledger.tree(queue.leaf)];
    if (queue.nominates) heap.put(q, queue_at, less);
    else heap.remove(q, queue_at, less);
    return;
  }
  const auto less = [this](NodeId a, NodeId b) { return bid_first(bids[a], bids[b]); };
  std::uint32_t nominee = queue.nominates ? q : nothing, weighed = nothing;
  for (NodeId node = queue.leaf; ledger.has_parent(node);) {
    const NodeId above = ledger.parent(node);
    IndexedHeap& heap = by_cohort[above];
    if (nominee == nothing) {
      heap.remove(node, node_at, less);
    } else {
      if (weighed != nominee) weigh(nominee, node);
      weighed = nominee;
      heap.put(node, node_at, less);
    }
    nominee = heap.empty() ? nothing : bids[heap.top()].queue;
    node = above;
  }
}

std::uint32_t ContinuousEngine::State::first(std::uint32_t tree) const {
  if (!fair) return by_tree[tree].empty() ? nothing : by_tree[tree].top();
  const NodeId root = roots[tree];
  if (ledger.is_leaf(root)) return queue_of[root] != nothing && queues[queue_of[root]].nominates ? queue_of[root] : nothing;
  return by_cohort[root].empty() ? nothing : bids[by_cohort[root].top()].queue;
}

}  // namespace fairlead::governance
