// SPDX-License-Identifier: Apache-2.0
#include "placement/plan/preempt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

namespace fairlead::placement {
namespace {

struct Candidate {
  Room room;
  std::int64_t violations = 0, highest = 0, sum = 0;
  std::size_t count = 0;
  Instant earliest{};  // when the oldest of the most important victims began
};

bool covers(const Budget& budget, const Pod& pod) { return budget.space == pod.key.space && budget.selector.matches(pod.labels); }

// Those whose leaving breaks a budget, the more important first.
std::vector<bool> violating(const Board& board, const std::vector<Board::PodIndex>& victims, const Budgets& budgets) {
  std::vector<std::int64_t> left = budgets.allowed;
  std::vector<bool> out;
  for (const Board::PodIndex victim : victims) {
    const Board::Entry& entry = board.entry(victim);
    bool breaks = false;
    for (std::size_t i = 0; i < left.size() && !entry.doomed; ++i)
      if (covers(*budgets.budgets[i], *entry.pod)) breaks = --left[i] < 0 || breaks;
    out.push_back(breaks);
  }
  return out;
}

class OneNode {
 public:
  OneNode(Board& board, Ask& ask, Board::NodeIndex node) : board_(board), ask_(ask), node_(node) {}
  ~OneNode() {
    for (const Board::PodIndex pod : off_) board_.put(pod, node_);
  }
  void take(Board::PodIndex pod) {
    board_.take(pod, node_);
    off_.push_back(pod);
  }
  void put_back(Board::PodIndex pod) {
    board_.put(pod, node_);
    off_.erase(std::find(off_.begin(), off_.end(), pod));
  }
  bool fits() {
    ask_.recount();
    return ask_.fits(node_);
  }
  std::vector<int> refusals() {
    ask_.recount();
    return ask_.refusals(node_);
  }

 private:
  Board& board_;
  Ask& ask_;
  const Board::NodeIndex node_;
  std::vector<Board::PodIndex> off_;  // put back by the destructor
};

std::optional<Candidate> look_at(Board& board, Board::PodIndex pod, Ask& ask, Board::NodeIndex node, const Budgets& budgets, std::vector<int>& refusals) {
  const std::int64_t priority = board.entry(pod).pod->priority;
  std::vector<Board::PodIndex> lower;
  for (const Board::PodIndex other : board.bin(node).on)
    if (board.entry(other).pod->priority < priority) lower.push_back(other);
  if (lower.empty()) {
    refusals.push_back(Reasons::NoVictims);
    return std::nullopt;
  }
  // More important first, then older, then by name.
  std::sort(lower.begin(), lower.end(), [&](Board::PodIndex a, Board::PodIndex b) {
    const Pod &left = *board.entry(a).pod, &right = *board.entry(b).pod;
    return std::tuple(-left.priority, left.created, std::cref(left.key)) < std::tuple(-right.priority, right.created, std::cref(right.key));
  });
  OneNode trial(board, ask, node);
  for (const Board::PodIndex other : lower) trial.take(other);
  if (refusals = trial.refusals(); !refusals.empty()) return std::nullopt;

  const std::vector<bool> breaks = violating(board, lower, budgets);
  Candidate out{.room = {.node = node, .victims = {}}};
  // Who can stay stays: first those that a budget protects, then the others; who leaves already does not come back.
  for (const bool protected_ones : {true, false}) {
    for (std::size_t i = 0; i < lower.size(); ++i) {
      if (breaks[i] != protected_ones || board.entry(lower[i]).doomed) continue;
      trial.put_back(lower[i]);
      if (trial.fits()) continue;
      trial.take(lower[i]);
      out.room.victims.push_back(lower[i]);
      if (protected_ones) ++out.violations;
    }
  }
  for (const Board::PodIndex victim : out.room.victims) {
    const Pod& one = *board.entry(victim).pod;
    if (out.count == 0 || one.priority > out.highest || (one.priority == out.highest && one.created < out.earliest)) {
      out.highest = one.priority;
      out.earliest = one.created;
    }
    out.sum += one.priority + (std::int64_t{1} << 31);
    ++out.count;
  }
  return out;
}

// Is the loss of `a` smaller than that of `b`?
bool cheaper(const Candidate& a, const Candidate& b) {
  if (a.count == 0 || b.count == 0) return a.count < b.count;
  // The youngest of the most important victims loses least.
  return std::tuple(a.violations, a.highest, a.sum, a.count, -a.earliest.time_since_epoch().count()) <
         std::tuple(b.violations, b.highest, b.sum, b.count, -b.earliest.time_since_epoch().count());
}

}  // namespace

void Budgets::charge(const Pod& victim) {
  for (std::size_t i = 0; i < budgets.size(); ++i)
    if (covers(*budgets[i], victim)) --allowed[i];
}

std::optional<Room> make_room(Board& board, Board::PodIndex pod, Ask& ask, const Budgets& budgets, Reasons& reasons, std::string& why) {
  const int nodes = static_cast<int>(board.bins().size());
  std::optional<Candidate> best;
  std::map<std::string, int> refusals;
  const bool hopeless = board.lowest_priority() >= board.entry(pod).pod->priority;
  for (Board::NodeIndex node = 0; node < nodes; ++node) {
    if (ask.fixed(node)) {
      ++refusals["Preemption is not helpful for scheduling"];
      continue;
    }
    if (hopeless) {
      ++refusals[reasons.text(Reasons::NoVictims)];
      continue;
    }
    std::vector<int> reasons_here;
    auto candidate = look_at(board, pod, ask, node, budgets, reasons_here);
    for (const int reason : reasons_here) ++refusals[reasons.text(reason)];
    if (candidate && (!best || cheaper(*candidate, *best))) best = std::move(candidate);
  }
  ask.recount();
  if (best) return std::move(best->room);
  std::vector<std::string> parts;
  for (const auto& [reason, count] : refusals) parts.push_back(fmt::format("{} {}", count, reason));
  std::sort(parts.begin(), parts.end());
  why = fmt::format("preemption: 0/{} nodes are available: {}.", nodes, fmt::join(parts, ", "));
  return std::nullopt;
}

}  // namespace fairlead::placement
