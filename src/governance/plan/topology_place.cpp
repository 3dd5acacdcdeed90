// SPDX-License-Identifier: Apache-2.0
// One group of pod sets: what it asks for in numbers, how many pods each leaf could hold, and the answer in values or as a reason.
#include <algorithm>

#include "governance/plan/amount.h"
#include "governance/plan/topology_state.h"

namespace fairlead::governance {
namespace {

using Kind = TopologyReason::Kind;

TopologyReason bad_level(Kind kind, const std::string& level, const std::string& other = {}) {
  TopologyReason reason;
  reason.kind = kind;
  reason.level = level;
  reason.other = other;
  return reason;
}

// Slices alone: anywhere, as long as each slice stays together.
bool only_slices(const TopologyAsk& ask) { return !ask.required && !ask.preferred && !ask.slices.empty(); }

}  // namespace

std::string Topology::State::ask_level(const TopologyPodSet& pod_set) const {
  const TopologyAsk& ask = pod_set.ask;
  if (tree.depth() == 0) return {};
  if (ask.required) return *ask.required;
  if (ask.preferred) return *ask.preferred;
  if (only_slices(ask)) return tree.levels().front();
  return ask.unconstrained || pod_set.implied ? tree.levels().back() : std::string();
}

std::optional<TopologyReason> Topology::State::read_ask(const TopologyPodSet& workers, SearchAsk& ask) const {
  const TopologyAsk& asked = workers.ask;
  if (!workers.conflict.empty()) return bad_level(Kind::BadUpdate, workers.name, workers.conflict);
  ask.count = workers.count;
  ask.required = asked.required.has_value();
  ask.unconstrained = asked.unconstrained || workers.implied || only_slices(asked);
  ask.least_free = ask.unconstrained && gates.least_free_if_unconstrained;
  ask.by_liking = gates.node_preference;
  ask.balanced = gates.balanced;
  if (!asked.slices.empty()) ask.slice_size = asked.slices.front().size;
  if (ask.slice_size <= 0) return bad_level(Kind::NoSliceSize, {});
  const std::string level = ask_level(workers);
  if (level.empty()) return bad_level(Kind::LevelNotSpecified, {});
  ask.level = tree.level_of(level);
  if (ask.level < 0) return bad_level(Kind::NoLevel, level);
  const std::string& slice_level = asked.slices.empty() ? tree.levels().back() : asked.slices.front().level;
  ask.slice_level = tree.level_of(slice_level);
  if (ask.slice_level < 0) return bad_level(Kind::NoSliceLevel, slice_level);
  if (ask.level > ask.slice_level) return bad_level(Kind::SliceAboveAsk, slice_level, level);

  ask.inner.assign(static_cast<std::size_t>(tree.depth()), 0);
  int above = ask.slice_level;
  std::int64_t size_above = ask.slice_size;
  for (std::size_t i = 1; i < asked.slices.size(); ++i) {
    const SliceLayer& layer = asked.slices[i];
    const int at = tree.level_of(layer.level);
    if (at < 0) return bad_level(Kind::NoLayerLevel, layer.level);
    if (at <= above) return bad_level(Kind::LayerNotBelow, layer.level, tree.levels()[static_cast<std::size_t>(above)]);
    if (layer.size <= 0 || size_above % layer.size != 0) {
      TopologyReason reason = bad_level(Kind::LayerNotDividing, layer.level);
      reason.fit = layer.size;
      reason.wanted = size_above;
      return reason;
    }
    for (int between = above + 1; between <= at; ++between) ask.inner[static_cast<std::size_t>(between)] = layer.size;
    above = at;
    size_above = layer.size;
  }
  return std::nullopt;
}

void Topology::State::mark_assumed(const AssumedUse* assumed) {
  for (const LeafIndex leaf : assumed_leaves) assumed_slot[static_cast<std::size_t>(leaf)] = 0;
  assumed_leaves.clear();
  assumed_rows.clear();
  if (assumed == nullptr) return;
  for (const DomainUse& use : assumed->uses) {
    const DomainId domain = tree.find_leaf(use.values);
    if (domain == no_domain) continue;
    std::int32_t& slot = assumed_slot[static_cast<std::size_t>(tree.leaf(domain))];
    if (slot == 0) {
      assumed_leaves.push_back(tree.leaf(domain));
      slot = static_cast<std::int32_t>(assumed_leaves.size());
      assumed_rows.resize(assumed_rows.size() + columns, 0);
    }
    for (const RowNeed& need : needs_of(use.per_pod, true)) {
      if (need.column < 0) continue;
      std::int64_t& sum = assumed_rows[static_cast<std::size_t>(slot - 1) * columns + static_cast<std::size_t>(need.column)];
      sum = plus(sum, times(need.amount, use.count));
    }
  }
}

void Topology::State::fill(const Sought& sought, const SearchAsk& ask, TopologyExclusions& exclusions) {
  std::fill(rooms.begin(), rooms.end(), Room{});
  mark_assumed(sought.assumed);
  const Eligible& may = eligible(sought.workers->needs);
  exclusions = may.exclusions;
  const auto needs = needs_of(sought.workers->per_pod, true);
  const auto leader_needs = sought.leader ? needs_of(sought.leader->per_pod, true) : std::vector<RowNeed>{};
  DomainRange within{0, tree.leaf_count()};
  if (sought.within != no_domain) {
    DomainRange range{sought.within, sought.within + 1};
    while (!tree.is_leaf(range.begin)) range = tree.descend(range);
    within = {tree.leaf(range.begin), tree.leaf(range.begin) + range.size()};
  }
  const std::vector<std::int64_t>& rows = sought.simulate_empty ? free : left;
  std::vector<std::int64_t> row(columns);
  std::vector<std::int64_t> refused(static_cast<std::size_t>(ids->count()), 0);
  for (std::size_t i = 0; i < may.leaves.size(); ++i) {
    const LeafIndex leaf = may.leaves[i];
    if (leaf < within.begin || leaf >= within.end) {
      ++exclusions.domain;
      continue;
    }
    Room& room = rooms[static_cast<std::size_t>(tree.domain(leaf))];
    room.liking = may.liking[i];
    const std::int64_t* has = rows.data() + cell(leaf, 0);
    const std::int32_t slot = assumed_slot[static_cast<std::size_t>(leaf)];
    if (slot != 0 || ask.leaders > 0) {
      std::copy(has, has + columns, row.begin());
      has = row.data();
    }
    if (slot != 0) {
      for (std::size_t c = 0; c < columns; ++c) row[c] = minus(row[c], assumed_rows[static_cast<std::size_t>(slot - 1) * columns + c]);
    }
    const PodFit fit = count_in(has, needs);
    room.pods = room.led_pods = fit.count;
    if (fit.count == 0 && fit.limiting >= 0) ++refused[static_cast<std::size_t>(fit.limiting)];
    if (ask.leaders > 0 && count_in(has, leader_needs).count > 0) {
      room.leaders = 1;
      for (const RowNeed& need : leader_needs) {
        if (need.column >= 0) row[static_cast<std::size_t>(need.column)] = minus(row[static_cast<std::size_t>(need.column)], need.amount);
      }
      room.led_pods = count_in(has, needs).count;
    }
  }
  for (std::size_t id = 0; id < refused.size(); ++id) {
    if (refused[id] > 0) exclusions.resources[ids->name(static_cast<int>(id))] = refused[id];
  }
}

TopologyReason Topology::State::no_fit(const Shortage& shortage, const SearchAsk& ask, const TopologyPodSet& workers, TopologyExclusions exclusions) const {
  TopologyReason reason;
  reason.topology = shape.name;
  reason.level = tree.levels()[static_cast<std::size_t>(shortage.level)];
  if (shortage.kind == Shortage::Kind::NoDomains) {
    reason.kind = Kind::NoDomains;
    return reason;
  }
  if (shortage.kind == Shortage::Kind::Unplaceable) {
    reason.kind = Kind::Unplaceable;
    return reason;
  }
  reason.exclusions = std::move(exclusions);
  reason.kind = Kind::NoFit;
  reason.fit = shortage.fit;
  reason.wanted = ask.count / ask.slice_size;
  reason.slices = ask.slice_size != 1;
  if (workers.ask.slices.size() < 2) return reason;

  // Layers: how far the best domain gets on each of them.
  reason.kind = Kind::NoFitLayers;
  const DomainRange range = tree.level(shortage.level);
  DomainId best = range.begin;
  for (DomainId domain = range.begin; domain < range.end; ++domain) {
    if (rooms[static_cast<std::size_t>(domain)].slices > rooms[static_cast<std::size_t>(best)].slices) best = domain;
  }
  for (const SliceLayer& layer : workers.ask.slices) {
    const int at = tree.level_of(layer.level);
    DomainRange below{best, best + 1};
    for (int down = shortage.level; down < at; ++down) below = tree.descend(below);
    TopologyReason::Layer got{.level = layer.level, .fit = 0, .wanted = ask.count / layer.size};
    for (DomainId domain = below.begin; domain < below.end; ++domain) got.fit += rooms[static_cast<std::size_t>(domain)].pods / layer.size;
    reason.layers.push_back(std::move(got));
  }
  return reason;
}

TopologyAssignment Topology::State::assignment_of(std::span<const DomainId> leaves, bool of_leaders) const {
  const int from = tree.by_host() ? tree.depth() - 1 : 0;
  TopologyAssignment out;
  out.levels.assign(tree.levels().begin() + from, tree.levels().end());
  for (const DomainId leaf : leaves) {
    const Room& room = rooms[static_cast<std::size_t>(leaf)];
    const std::int64_t count = of_leaders ? room.leaders : room.pods;
    if (count > 0) out.domains.push_back({tree.values(leaf, from), static_cast<std::int32_t>(count)});
  }
  return out;
}

Topology::State::Found Topology::State::place(const Sought& sought) {
  Found found;
  SearchAsk ask;
  ask.leaders = sought.leader ? 1 : 0;
  if (auto reason = read_ask(*sought.workers, ask)) {
    found.reason = std::move(*reason);
    return found;
  }
  TopologyExclusions exclusions;
  fill(sought, ask, exclusions);
  TopologySearch search(tree, rooms, ask);
  search.roll_up();
  std::vector<DomainId> leaves;
  if (const auto shortage = search.place(leaves)) {
    found.reason = no_fit(*shortage, ask, *sought.workers, std::move(exclusions));
    return found;
  }
  found.workers = assignment_of(leaves, false);
  if (sought.leader) found.leader = assignment_of(leaves, true);
  return found;
}

}  // namespace fairlead::governance
