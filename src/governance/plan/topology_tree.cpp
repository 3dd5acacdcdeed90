// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/topology_tree.h"

#include <algorithm>

#include "governance/plan/amount.h"

namespace fairlead::governance {
namespace {

constexpr std::string_view host_label = "kubernetes.io/hostname";

bool has_place(const TopologyNode& node, const std::vector<std::string>& levels, const kube::Labels& flavor_labels) {
  if (!node.ready || node.unschedulable || !has_labels(node.labels, flavor_labels)) return false;
  return std::all_of(levels.begin(), levels.end(), [&](const std::string& level) { return node.labels.contains(level); });
}

// No label value holds a comma.
std::string joined(std::span<const std::string> values) {
  std::string key;
  for (const std::string& value : values) {
    if (!key.empty()) key += ',';
    key += value;
  }
  return key;
}

}  // namespace

struct TopologyTree::Placed {
  const TopologyNode* node;
  std::vector<std::string> path;
};

TopologyTree::TopologyTree(const std::vector<std::string>& levels, const kube::Labels& flavor_labels, std::span<const TopologyNode> nodes)
    : levels_(levels), by_host_(!levels.empty() && levels.back() == host_label) {
  std::vector<Placed> placed;
  for (const TopologyNode& node : nodes) {
    if (levels_.empty() || !has_place(node, levels_, flavor_labels)) continue;
    Placed one{&node, {}};
    for (const std::string& level : levels_) one.path.push_back(node.labels.at(level));
    placed.push_back(std::move(one));
  }
  // By name first, so that of two nodes with one host label it is always the same that names the place.
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.node->name < b.node->name; });
  add_leaves(placed);
}

void TopologyTree::add_leaves(std::vector<Placed>& placed) {
  std::unordered_map<std::string, std::size_t> first_of;
  std::vector<std::vector<std::string>> paths;
  std::vector<std::size_t> leaf_of(placed.size());
  const auto key_of = [&](const std::vector<std::string>& path) { return by_host_ ? path.back() : joined(path); };
  for (std::size_t i = 0; i < placed.size(); ++i) {
    const auto [slot, fresh] = first_of.try_emplace(key_of(placed[i].path), paths.size());
    if (fresh) paths.push_back(placed[i].path);
    leaf_of[i] = slot->second;
  }
  std::vector<std::size_t> order(paths.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return paths[a] < paths[b]; });
  std::vector<LeafIndex> rank(paths.size());
  std::vector<std::vector<std::string>> sorted;
  for (std::size_t i = 0; i < order.size(); ++i) {
    rank[order[i]] = static_cast<LeafIndex>(i);
    sorted.push_back(std::move(paths[order[i]]));
  }

  leaf_count_ = static_cast<std::int32_t>(sorted.size());
  nodes_.resize(sorted.size());
  capacity_.resize(sorted.size());
  std::vector<bool> named(sorted.size());
  for (std::size_t i = 0; i < placed.size(); ++i) {
    const auto leaf = static_cast<std::size_t>(rank[leaf_of[i]]);
    const TopologyNode& node = *placed[i].node;
    by_node_.try_emplace(node.name, rank[leaf_of[i]]);
    if (!named[leaf]) nodes_[leaf] = node;
    named[leaf] = true;
    for (const auto& [resource, amount] : node.allocatable) {
      std::int64_t& sum = capacity_[leaf][resource];
      sum = plus(sum, amount);
    }
  }
  for (std::size_t leaf = 0; leaf < sorted.size(); ++leaf) by_values_.emplace(key_of(sorted[leaf]), static_cast<LeafIndex>(leaf));
  add_inner(sorted);
}

// `paths`: of the leaves, sorted. A domain begins wherever the path up to its level changes.
void TopologyTree::add_inner(const std::vector<std::vector<std::string>>& paths) {
  const auto depth = levels_.size();
  levels_of_.assign(depth, {});
  std::vector<DomainId> open(paths.size(), no_domain);  // per leaf: the domain above, of the level last done
  for (std::size_t level = 0; level < depth; ++level) {
    levels_of_[level].begin = domains();
    for (std::size_t leaf = 0; leaf < paths.size(); ++leaf) {
      const bool same = leaf > 0 && level + 1 < depth && std::equal(paths[leaf].begin(), paths[leaf].begin() + static_cast<long>(level) + 1, paths[leaf - 1].begin());
      if (!same) {
        const DomainId fresh = domains();
        const DomainId above = open[leaf];
        parent_.push_back(above);
        children_.push_back({});
        value_.push_back(paths[leaf][level]);
        if (above != no_domain) {
          DomainRange& range = children_[at(above)];
          if (range.size() == 0) range.begin = fresh;
          range.end = fresh + 1;
        }
      }
      open[leaf] = domains() - 1;
    }
    levels_of_[level].end = domains();
  }
  if (depth > 0) leaf_base_ = levels_of_.back().begin;
}

int TopologyTree::level_of(std::string_view key) const {
  const auto found = std::find(levels_.begin(), levels_.end(), key);
  return found == levels_.end() ? -1 : static_cast<int>(found - levels_.begin());
}

DomainId TopologyTree::ancestor(DomainId domain, int from_level, int to_level) const {
  for (int level = from_level; level > to_level; --level) domain = parent(domain);
  return domain;
}

DomainRange TopologyTree::descend(DomainRange range) const {
  if (range.size() <= 0 || is_leaf(range.begin)) return range;
  return {children(range.begin).begin, children(range.end - 1).end};
}

std::vector<std::string> TopologyTree::values(DomainId domain, int from) const {
  std::vector<std::string> path;
  for (DomainId one = domain; one != no_domain; one = parent(one)) path.push_back(value_[at(one)]);
  std::reverse(path.begin(), path.end());
  path.erase(path.begin(), path.begin() + std::min<long>(from, static_cast<long>(path.size())));
  return path;
}

DomainId TopologyTree::find_leaf(std::span<const std::string> values) const {
  const auto found = values.size() == 1 ? by_values_.find(values[0]) : by_values_.find(joined(values));
  return found == by_values_.end() ? no_domain : domain(found->second);
}

LeafIndex TopologyTree::leaf_of_node(std::string_view name) const {
  const auto found = by_node_.find(std::string(name));
  return found == by_node_.end() ? -1 : found->second;
}

}  // namespace fairlead::governance
