// SPDX-License-Identifier: Apache-2.0
#include "placement/plan/ask.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "placement/plan/match.h"

namespace fairlead::placement {

int Reasons::number(const std::string& text) {
  const auto [found, fresh] = numbers_.emplace(text, static_cast<int>(texts_.size()));
  if (fresh) texts_.push_back(text);
  return found->second;
}

namespace {

void append_term(std::string& out, const NodeTerm& term) {
  for (const NodeRequirement& one : term) {
    out += fmt::format("{}{}{}", one.field ? "f" : "l", static_cast<int>(one.op), one.key);
    for (const std::string& value : one.values) out.append(",").append(value);
    out += ';';
  }
  out += '|';
}

int refusal_of(const Pod& pod, const Node& node, Reasons& reasons, const Pools& pools) {
  static const Taint cordoned{.key = "node.kubernetes.io/unschedulable", .value = "", .effect = Effect::NoSchedule, .added = std::nullopt};
  if (node.unschedulable && !tolerates(pod, cordoned)) return reasons.number("node(s) were unschedulable");
  if (node.deleting) return reasons.number("node(s) were being deleted");
  if (const Taint* taint = first_forbidding_taint(pod, node)) return reasons.number(fmt::format("node(s) had untolerated taint {{{}: {}}}", taint->key, taint->value));
  if (!node.ready) return reasons.number("node(s) were not ready");
  if (!selects(pod, node)) return reasons.number("node(s) didn't match Pod's node affinity/selector");
  if (std::string why; !pod.pools.empty() && !pools_for(pod.pools, node, pools, why)) return reasons.number(why);
  return 0;
}

}  // namespace

std::string fixed_text(const Pod& pod) {
  std::string out;
  for (const auto& [key, value] : pod.node_selector) out.append(key).append("=").append(value).append(";");
  out += '\n';
  if (pod.required) {
    out += 'r';
    for (const NodeTerm& term : *pod.required) append_term(out, term);
  }
  out += '\n';
  for (const PreferredTerm& preferred : pod.preferred) {
    out += std::to_string(preferred.weight);
    append_term(out, preferred.term);
  }
  out += '\n';
  for (const Toleration& one : pod.tolerations)
    out.append(one.key).append(one.exists ? "?" : "=").append(one.value).append(std::to_string(one.effect ? static_cast<int>(*one.effect) : -1)).append(";");
  for (const PoolNeed& need : pod.pools) out += fmt::format("\npool {} {} {} {}", need.pool, fmt::join(need.classes, ","), need.bytes, need.bound);
  return out;
}

std::optional<std::vector<std::string>> pools_for(const std::vector<PoolNeed>& needs, const Node& node, const Pools& pools, std::string& why) {
  why.clear();
  std::vector<std::string> out;
  const auto left_of = [&](const std::string& pool) {
    const auto said = pools.find(pool);
    std::int64_t left = said == pools.end() ? std::numeric_limits<std::int64_t>::max() : said->second.left.value_or(std::numeric_limits<std::int64_t>::max());
    for (std::size_t i = 0; i < out.size(); ++i)
      if (out[i] == pool) left -= needs[i].bytes;
    return left;
  };
  const auto has = [&](const std::string& pool, const std::string& klass) {
    const auto said = pools.find(pool);
    return said == pools.end() || said->second.classes.empty() || std::find(said->second.classes.begin(), said->second.classes.end(), klass) != said->second.classes.end();
  };
  for (const PoolNeed& need : needs) {
    const std::string* best = nullptr;
    const auto look = [&](const std::string* klass) {
      for (const std::string& pool : node.pools) {
        if ((!need.pool.empty() && pool != need.pool) || (klass != nullptr && !has(pool, *klass))) continue;
        if (best == nullptr || left_of(pool) > left_of(*best) || (left_of(pool) == left_of(*best) && pool < *best)) best = &pool;
      }
    };
    if (need.bound) look(nullptr);
    for (std::size_t i = 0; i < need.classes.size() && best == nullptr; ++i) look(&need.classes[i]);
    if (best == nullptr) why = need.bound ? "node(s) had volume node affinity conflict" : node.pools.empty() ? "node(s) reached no pool of volumes" : need.pool.empty() ? fmt::format("node(s) reached no pool with class {}", fmt::join(need.classes, " or ")) : fmt::format("node(s) did not reach pool {}, where the volume is to be", need.pool);
    else if (left_of(*best) < need.bytes) why = "node(s) did not have enough free storage";
    if (!why.empty()) return std::nullopt;
    out.push_back(*best);
  }
  return out;
}

Fixed fix(const Board& board, const Pod& pod, Reasons& reasons, const Pools& pools) {
  Fixed out;
  const std::size_t count = board.bins().size();
  out.refusal.resize(count);
  out.selected.resize(count);
  out.tolerated.resize(count);
  out.preferred.resize(count);
  out.disliked.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Node& node = *board.bins()[i].node;
    out.refusal[i] = refusal_of(pod, node, reasons, pools);
    out.selected[i] = selects(pod, node);
    out.tolerated[i] = first_forbidding_taint(pod, node) == nullptr;
    out.preferred[i] = preference(pod, node);
    out.disliked[i] = disliked_taints(pod, node);
  }
  return out;
}

Ask::Ask(const Board& board, Board::PodIndex pod, const Fixed& fixed, Reasons& reasons)
    : board_(board), index_(pod), entry_(board.entry(pod)), pod_(*entry_.pod), fixed_(fixed), reasons_(reasons) {
  recount();
}

void Ask::recount() {
  about_ = board_.terms_about(index_);
  counts_.clear();
  for (const Board::Constraint& constraint : entry_.constraints) {
    Count count{.constraint = &constraint, .per_domain = std::vector<int>(static_cast<std::size_t>(board_.domains(constraint.key)), -1)};
    prefers_spread_ = prefers_spread_ || !constraint.spread->required;
    for (int node = 0; node < static_cast<int>(board_.bins().size()); ++node) {
      const auto at = static_cast<std::size_t>(node);
      if (constraint.spread->honor_affinity && !fixed_.selected[at]) continue;
      if (constraint.spread->honor_taints && !fixed_.tolerated[at]) continue;
      // A node counts only if it has the labels of all constraints of its kind.
      const bool labelled = std::all_of(entry_.constraints.begin(), entry_.constraints.end(),
                                        [&](const auto& other) { return other.spread->required != constraint.spread->required || board_.domain(other.key, node) >= 0; });
      if (!labelled) continue;
      int& in_domain = count.per_domain[static_cast<std::size_t>(board_.domain(constraint.key, node))];
      in_domain = std::max(in_domain, 0) + board_.count(constraint.counter, node);
    }
    int domains = 0;
    count.least = std::numeric_limits<int>::max();
    for (const int one : count.per_domain) {
      if (one < 0) continue;
      ++domains;
      count.least = std::min(count.least, one);
      count.most = std::max(count.most, one);
    }
    if (domains == 0 || domains < constraint.spread->min_domains) count.least = 0;
    counts_.push_back(std::move(count));
  }
}

int Ask::refuse_ports(Board::NodeIndex node) const {
  if (pod_.host_ports.empty()) return 0;
  for (const auto* port : board_.bin(node).ports)
    if (pod_.host_ports.contains(*port)) return Reasons::Ports;
  return 0;
}

bool Ask::short_of_anything(const Board::Bin& bin) const {
  const Resources& want = pod_.requests;
  if (bin.pods < 1 || (want.cpu.value > 0 && want.cpu.value > bin.cpu) || (want.memory.value > 0 && want.memory.value > bin.memory)) return true;
  for (const auto& [number, amount] : entry_.extended)
    if (amount > bin.extended[static_cast<std::size_t>(number)]) return true;
  return false;
}

void Ask::shortages(const Board::Bin& bin, std::vector<int>& out) const {
  const Resources& want = pod_.requests;
  if (bin.pods < 1) out.push_back(Reasons::Pods);
  if (want.cpu.value > 0 && want.cpu.value > bin.cpu) out.push_back(Reasons::Cpu);
  if (want.memory.value > 0 && want.memory.value > bin.memory) out.push_back(Reasons::Memory);
  for (const auto& [number, amount] : entry_.extended)
    if (amount > bin.extended[static_cast<std::size_t>(number)]) out.push_back(reasons_.number("Insufficient " + board_.resource(number)));
}

int Ask::refuse_spread(Board::NodeIndex node) const {
  for (const Count& count : counts_) {
    if (!count.constraint->spread->required) continue;
    const int domain = board_.domain(count.constraint->key, node);
    if (domain < 0) return Reasons::SpreadLabel;
    const int there = std::max(count.per_domain[static_cast<std::size_t>(domain)], 0);
    if (there + (count.constraint->counts_itself ? 1 : 0) - count.least > count.constraint->spread->max_skew)
      return Reasons::SpreadSkew;
  }
  return 0;
}

int Ask::refuse_neighbours(Board::NodeIndex node) const {
  const auto at = [&](const Board::Term& term) { return board_.domain(term.key, node); };
  bool lonely = false;
  for (const int number : entry_.near) {
    const Board::Term& term = board_.term(number);
    const int domain = at(term);
    if (domain < 0) return Reasons::Near;
    lonely = lonely || term.means[static_cast<std::size_t>(domain)] == 0;
  }
  if (lonely) {
    // The first of pods that want to be near each other has nobody to be near to.
    const bool first = std::all_of(entry_.near.begin(), entry_.near.end(),
                                   [&](int number) { return board_.term(number).total == 0 && board_.means(board_.term(number).counter, index_); });
    if (!first) return Reasons::Near;
  }
  for (const int number : entry_.apart) {
    const Board::Term& term = board_.term(number);
    if (const int domain = at(term); domain >= 0 && term.means[static_cast<std::size_t>(domain)] > 0) return Reasons::Apart;
  }
  for (const int number : about_) {
    const Board::Term& term = board_.term(number);
    if (const int domain = at(term); domain >= 0 && term.kept_apart[static_cast<std::size_t>(domain)] > 0)
      return Reasons::TheyApart;
  }
  return 0;
}

bool Ask::fits(Board::NodeIndex node) const {
  return !fixed(node) && refuse_ports(node) == 0 && !short_of_anything(board_.bin(node)) && refuse_spread(node) == 0 && refuse_neighbours(node) == 0;
}

std::vector<int> Ask::refusals(Board::NodeIndex node) const {
  if (const int reason = fixed_.refusal[static_cast<std::size_t>(node)]; reason != 0) return {reason};
  if (const int reason = refuse_ports(node); reason != 0) return {reason};
  std::vector<int> out;
  shortages(board_.bin(node), out);
  if (!out.empty()) return out;
  if (const int reason = refuse_spread(node); reason != 0) return {reason};
  if (const int reason = refuse_neighbours(node); reason != 0) return {reason};
  return {};
}

// Percent of CPU and memory that stays free, averaged; what the node does not tell counts as nothing free.
std::int64_t Ask::free_percent(const Board::Bin& bin) const {
  const auto percent = [](std::int64_t all, std::int64_t free) -> std::int64_t {
    if (all <= 0 || free <= 0) return 0;
    // 2^56 bytes times a hundred still fits.
    return all < (std::int64_t{1} << 56) ? free * 100 / all : free / (all / 100);
  };
  return (percent(bin.node->allocatable.cpu.value, bin.cpu - pod_.requests.cpu.value) + percent(bin.node->allocatable.memory.value, bin.memory - pod_.requests.memory.value)) / 2;
}

std::int64_t Ask::liking(Board::NodeIndex node) const {
  std::int64_t sum = 0;
  for (const auto& [number, weight] : entry_.liked) {
    const Board::Term& term = board_.term(number);
    if (const int domain = board_.domain(term.key, node); domain >= 0) sum += weight * term.means[static_cast<std::size_t>(domain)];
  }
  for (const int number : about_) {
    const Board::Term& term = board_.term(number);
    if (const int domain = board_.domain(term.key, node); domain >= 0) sum += term.liked[static_cast<std::size_t>(domain)];
  }
  return sum;
}

// How many of its like are in the node's domains; more is worse. Without constraints of its own, a pod is spread over nodes.
std::int64_t Ask::crowd(Board::NodeIndex node) const {
  if (!prefers_spread_) return board_.siblings(entry_.siblings, node);
  std::int64_t sum = 0;
  for (const Count& count : counts_) {
    if (count.constraint->spread->required) continue;
    const int domain = board_.domain(count.constraint->key, node);
    sum += domain < 0 ? count.most + 1 : std::max(count.per_domain[static_cast<std::size_t>(domain)], 0);
  }
  return sum;
}

Board::NodeIndex Ask::best() const {
  struct Fit {
    Board::NodeIndex node;
    std::int64_t free, crowd, preferred, disliked, liking;
  };
  std::vector<Fit> found;
  std::int64_t most_crowd = 0, most_preferred = 0, most_disliked = 0;
  std::int64_t least_liking = std::numeric_limits<std::int64_t>::max(), most_liking = std::numeric_limits<std::int64_t>::min();
  for (Board::NodeIndex node = 0; node < static_cast<int>(board_.bins().size()); ++node) {
    if (!fits(node)) continue;
    const auto at = static_cast<std::size_t>(node);
    found.push_back({node, free_percent(board_.bins()[at]), crowd(node), fixed_.preferred[at], fixed_.disliked[at], liking(node)});
    const Fit& fit = found.back();
    most_crowd = std::max(most_crowd, fit.crowd);
    most_preferred = std::max(most_preferred, fit.preferred);
    most_disliked = std::max(most_disliked, fit.disliked);
    least_liking = std::min(least_liking, fit.liking);
    most_liking = std::max(most_liking, fit.liking);
  }
  // The weights of Kubernetes' own scheduler: resources 1, taints 3, node affinity 2, affinity between pods 2, spreading 2; each part scaled to 0..100 over the nodes that fit.
  const auto scaled = [](std::int64_t part, std::int64_t most) { return most <= 0 ? 0 : part * 100 / most; };
  Board::NodeIndex chosen = -1;
  std::int64_t best_score = 0;
  for (const Fit& fit : found) {  // in order of names, so of equal ones the first wins
    const std::int64_t score = fit.free + 3 * (100 - scaled(fit.disliked, most_disliked)) + 2 * scaled(fit.preferred, most_preferred) +
                               2 * (100 - scaled(fit.crowd, most_crowd)) + 2 * scaled(fit.liking - least_liking, most_liking - least_liking);
    if (chosen >= 0 && score <= best_score) continue;
    chosen = fit.node;
    best_score = score;
  }
  return chosen;
}

}  // namespace fairlead::placement
