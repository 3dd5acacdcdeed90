// SPDX-License-Identifier: Apache-2.0
// Something was given back that would do for many that wait, each alone. To wake them all, nominate them, admit one and park the others again is most of the work of a release on a full site. Instead it is worked out who
// among them is first, and that one alone is woken; where there is room for more of them after it, the others wake as they would have been. The decisions are the same (tests compare them with the slow model's).
#include <algorithm>
#include <utility>

#include "governance/plan/engine_state.h"

namespace fairlead::governance {

ContinuousEngine::State::Fit ContinuousEngine::State::fit(const Class& k) const {
  const NodeId leaf = queues[k.queue].leaf;
  const Option& option = k.options.front();
  Fit out;
  for (std::uint32_t u = option.first_use; u < option.first_use + option.uses; ++u) {
    const Use& use = k.uses[u];
    if (const auto tight = ledger.tight(leaf, use.column); use.amount > tight.available) return {.fits = false, .lacks = use, .at = tight};
    out.level = std::max(out.level, ledger.borrow_level(leaf, use.column, use.amount).height);
  }
  return out;
}

// Those in the cell for whom its use is low enough become candidates. Those whose queue has somebody awake, and those of whom more than numbers is to be asked, are woken. False: nobody became one.
bool ContinuousEngine::State::look_into(const CellAt& at) {
  Cell& cell = cells[base[at.node] + at.column];
  const auto is_stale = [this](const Waiter& one) { return classes[one.what].generation != one.generation; };
  while (!cell.exact.empty() && is_stale(cell.exact.front())) {
    std::pop_heap(cell.exact.begin(), cell.exact.end(), needs_less_use);
    cell.exact.pop_back();
  }
  const Amount used = ledger.usage(at.node, at.column);
  const std::size_t before = candidates.size();
  std::size_t stale = 0;
  woken.clear(), in_heap.clear();
  if (!cell.exact.empty()) in_heap.push_back(0);
  for (std::size_t next = 0; next < in_heap.size(); ++next) {  // the heap's upper part
    const std::uint32_t place = in_heap[next];
    const Waiter one = cell.exact[place];
    if (one.threshold < used) continue;
    for (std::uint32_t below = 2 * place + 1; below <= 2 * place + 2 && below < cell.exact.size(); ++below) in_heap.push_back(below);
    Class& k = classes[one.what];
    if (k.generation != one.generation) {
      ++stale;
      continue;
    }
    const Queue& queue = queues[k.queue];
    if (!k.simple || !queue.classes.empty() || queue.nominates) {
      woken.push_back(one.what);
      ++stale;
      continue;
    }
    if (!std::exchange(k.retold, true)) restless.push_back(one.what);
    candidates.push_back(one.what);
  }
  for (const ClassId c : woken) {
    ++classes[c].generation;
    if (!goes_on_waiting(c)) wake(c);
  }
  if (stale > 8 + cell.exact.size() / 4) {
    std::erase_if(cell.exact, is_stale);
    std::make_heap(cell.exact.begin(), cell.exact.end(), needs_less_use);
  }
  return candidates.size() > before;
}

// It fits; or it finds another limit, and waits at that.
bool ContinuousEngine::State::fits_or_moves(ClassId c, int& level) {
  Class& k = classes[c];
  const Fit found = fit(k);
  level = found.level;
  if (found.fits) return true;
  ++k.generation;
  k.lacks = found.lacks.column, k.wants = found.lacks.amount;
  if (!wait_at(found.at.node, k.lacks, minus(k.wants, found.at.available), c)) wake(c);
  return false;
}

// Not where more than these decides, or would have to be undone: what is kept for others, victims; by share, several nominees.
bool ContinuousEngine::State::may_look(std::uint32_t rival) const {
  if (!claims.empty()) return false;
  return rival == nothing || (!queues[rival].found.preempts && alone(rival));
}

// By share: no other queue of its tree nominates. Else whose turn it is does not depend on who does not fit.
bool ContinuousEngine::State::alone(std::uint32_t q) const {
  for (NodeId node = queues[q].leaf; fair && ledger.has_parent(node); node = ledger.parent(node))
    if (by_cohort[ledger.parent(node)].size() != 1) return false;
  return true;
}

ContinuousEngine::State::Bid ContinuousEngine::State::bid_of(std::uint32_t q, NodeId node) {
  const Queue& queue = queues[q];
  const std::vector<Use>& uses = classes[queue.found.shape].choices[queue.found.choice].uses;
  const Ledger::Trial trial(ledger);
  ledger.add(queue.leaf, uses);
  return {ledger.borrowing_on(node, uses), ledger.share(node), q};
}

// As reorder() and first() would tell if all of these nominated. By share: the least bid of a cohort's children goes up; children have larger numbers than their parents.
std::uint32_t ContinuousEngine::State::first_of(const std::vector<std::uint32_t>& bidding) {
  if (bidding.size() == 1) return bidding.front();
  if (!fair) return *std::min_element(bidding.begin(), bidding.end(), [this](std::uint32_t a, std::uint32_t b) { return queue_first(a, b); });
  std::vector<NodeId> nodes;
  for (const std::uint32_t q : bidding) {
    looked_at[queues[q].leaf] = looks;
    best_of[queues[q].leaf].queue = q;
    nodes.push_back(queues[q].leaf);
  }
  std::make_heap(nodes.begin(), nodes.end());
  while (true) {
    const NodeId node = nodes.front();
    if (!ledger.has_parent(node)) return best_of[node].queue;
    std::pop_heap(nodes.begin(), nodes.end());
    nodes.pop_back();
    const Bid bid = bid_of(best_of[node].queue, node);
    const NodeId above = ledger.parent(node);
    if (std::exchange(looked_at[above], looks) != looks) {
      nodes.push_back(above);
      std::push_heap(nodes.begin(), nodes.end());
    } else if (!bid_first(bid, best_of[above])) {
      continue;
    }
    best_of[above] = bid;
  }
}

// rival: whose turn it is among those awake, or nothing. Whose turn it is, if some come before others; nothing: nobody fits, or others are to be looked at first.
std::uint32_t ContinuousEngine::State::wake_first(std::uint32_t tree, std::uint32_t rival) {
  ++looks;
  candidates.clear(), bidders.clear(), passed_over.clear();
  std::vector<CellAt> still;
  for (const CellAt& at : std::exchange(open_cells[tree], {})) {
    if (look_into(at)) still.push_back(at);
    else cells[base[at.node] + at.column].open = false;
  }
  open_cells[tree].insert(open_cells[tree].end(), still.begin(), still.end());
  if (candidates.empty() || !dirty[tree].empty()) return nothing;
  int level = 0;
  for (const ClassId c : candidates) {
    const Class& k = classes[c];
    Queue& queue = queues[k.queue];
    if (queue.looked_at == looks && !class_first(c, queue.what)) continue;
    if (!fits_or_moves(c, level)) continue;
    if (std::exchange(queue.looked_at, looks) != looks) bidders.push_back(k.queue);
    queue.what = c;
    queue.found = {.shape = c, .level = level};
    queue.head = k.waiting.front();
    queue.priority = k.spec.priority;
    queue.version = versions[tree];
  }
  if (bidders.empty() || !dirty[tree].empty()) {
    bidders.clear();
    return nothing;
  }
  for (const std::uint32_t q : bidders) {
    Class& k = classes[queues[q].what];
    chosen.assign(k.asks.size(), nothing);
    for (std::uint32_t i = 0; i < k.parts.front().asks; ++i) chosen[k.order[k.parts.front().first_ask + i]] = k.options.front().flavor;
    queues[q].found.choice = choice_of(k, chosen);
  }
  std::swap(passed_over, candidates);
  if (rival != nothing) bidders.push_back(rival);
  const std::uint32_t q = first_of(bidders);
  if (rival != nothing) bidders.pop_back();
  if (q == rival) return q;
  std::erase(bidders, q);
  queues[q].looked_at = 0;
  wake(queues[q].what);
  return q;
}

// After wake_first(), or instead: if anybody fits beside whom it admitted, all are woken, and those whom their queues would have nominated are nominees. By share also where several are awake: one who does not fit any more stands for his
// cohort until his turn. True: some are awake now.
bool ContinuousEngine::State::wake_rest(std::uint32_t tree) {
  candidates.clear();
  for (const CellAt& at : std::exchange(open_cells[tree], {})) {
    cells[base[at.node] + at.column].open = false;
    (void)look_into(at);
  }
  const std::vector<ClassId> over = std::exchange(passed_over, {});
  const std::vector<std::uint32_t> bidding = std::exchange(bidders, {});
  int level = 0;
  std::erase_if(candidates, [&](ClassId c) { return !fits_or_moves(c, level); });
  if (const std::uint32_t q = first(tree); candidates.empty() && (bidding.empty() || q == nothing || (alone(q) && !queues[q].found.preempts))) return !dirty[tree].empty();
  const auto less = [this](ClassId a, ClassId b) { return class_first(a, b); };
  for (const ClassId c : over) {
    Class& k = classes[c];
    if (!k.parked) continue;  // it is the one that was woken
    Queue& queue = queues[k.queue];
    k.parked = false;
    ++k.generation;
    queue.classes.put(c, class_at, less);
    if (queue.looked_at != looks) mark(k.queue);  // that of whom was admitted: it nominates anew
  }
  for (const std::uint32_t q : bidding) {
    if (queues[q].dirty) continue;
    queues[q].nominates = true;
    reorder(q);
  }
  for (const ClassId c : candidates) wake(c);
  return true;
}

}  // namespace fairlead::governance
