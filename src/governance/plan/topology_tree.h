// SPDX-License-Identifier: Apache-2.0
// The domains of one flavor's topology as a dense tree. Level by level, each level in order of the values from the coarsest down, so that a smaller id is a smaller
// name, the children of a domain are one range, and so are its leaves.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "governance/plan/topology.h"

namespace fairlead::governance {

using DomainId = std::int32_t;  // dense over all levels
using LeafIndex = std::int32_t;  // 0 .. leaves-1, in order
inline constexpr std::int32_t no_domain = -1;

struct DomainRange {
  DomainId begin = 0, end = 0;
  std::int32_t size() const { return end - begin; }
};

class TopologyTree {
 public:
  TopologyTree(const std::vector<std::string>& levels, const kube::Labels& flavor_labels, std::span<const TopologyNode> nodes);

  const std::vector<std::string>& levels() const { return levels_; }
  int depth() const { return static_cast<int>(levels_.size()); }
  int level_of(std::string_view key) const;  // -1: not one of ours
  bool by_host() const { return by_host_; }
  bool empty() const { return leaf_count_ == 0; }

  std::int32_t domains() const { return static_cast<std::int32_t>(parent_.size()); }
  std::int32_t leaf_count() const { return leaf_count_; }
  DomainRange level(int level) const { return levels_of_[static_cast<std::size_t>(level)]; }
  DomainId parent(DomainId domain) const { return parent_[at(domain)]; }
  DomainRange children(DomainId domain) const { return children_[at(domain)]; }  // empty for leaves
  bool is_leaf(DomainId domain) const { return domain >= leaf_base_; }
  LeafIndex leaf(DomainId domain) const { return domain - leaf_base_; }
  DomainId domain(LeafIndex leaf) const { return leaf_base_ + leaf; }
  DomainId ancestor(DomainId domain, int from_level, int to_level) const;
  // All descendants of the domains [range) of a level at a finer one.
  DomainRange descend(DomainRange range) const;

  // The domain's values from level `from` down to its own.
  std::vector<std::string> values(DomainId domain, int from = 0) const;
  // As an assignment writes them: the host alone where the finest level is the host. no_domain: not here.
  DomainId find_leaf(std::span<const std::string> values) const;
  LeafIndex leaf_of_node(std::string_view name) const;  // -1: the node has no place
  // By host only: the node behind a leaf.
  const NodeFacts& node(LeafIndex leaf) const { return nodes_[static_cast<std::size_t>(leaf)]; }
  // Allocatable, summed over the nodes of the leaf.
  const NamedAmounts& capacity(LeafIndex leaf) const { return capacity_[static_cast<std::size_t>(leaf)]; }

 private:
  static std::size_t at(DomainId domain) { return static_cast<std::size_t>(domain); }
  struct Placed;
  void add_leaves(std::vector<Placed>& placed);
  void add_inner(const std::vector<std::vector<std::string>>& paths);

  std::vector<std::string> levels_;
  bool by_host_ = false;
  std::int32_t leaf_count_ = 0;
  DomainId leaf_base_ = 0;
  std::vector<DomainRange> levels_of_;
  std::vector<DomainId> parent_;
  std::vector<DomainRange> children_;
  std::vector<std::string> value_;  // the domain's own, of its level
  std::vector<NodeFacts> nodes_;
  std::vector<NamedAmounts> capacity_;
  std::unordered_map<std::string, LeafIndex> by_values_;  // joined as an assignment writes them
  std::unordered_map<std::string, LeafIndex> by_node_;
};

}  // namespace fairlead::governance
