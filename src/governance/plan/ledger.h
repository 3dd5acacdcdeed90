// SPDX-License-Identifier: Apache-2.0
// The quota trees: who has, lends, may borrow and uses how much of each (flavor, resource). Single writer, no clock, no I/O.
// Questions and changes cost O(depth) for a column and allocate nothing; building costs O(nodes x columns).
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "governance/plan/amount.h"

namespace fairlead::governance {

using NodeId = std::uint32_t;  // dense; a leaf is a queue, an inner node a cohort
using Column = std::uint32_t;  // a (flavor, resource) of one tree; dense within the tree
inline constexpr NodeId no_node = 0xffffffffU;
inline constexpr Column no_column = 0xffffffffU;

struct FlavorResource {
  std::string flavor, resource;
  friend auto operator<=>(const FlavorResource&, const FlavorResource&) = default;
};

struct Limits {
  Amount nominal = 0;
  Amount borrow = unlimited;  // most that is taken from others
  Amount lend = unlimited;    // most that others see of it
  friend bool operator==(const Limits&, const Limits&) = default;
};

struct NodeSpec {
  std::string name;
  std::string parent;  // a cohort; empty: a root. Need not exist: then it does, with zero quota.
  bool leaf = true;
  double weight = 1;
  std::vector<std::pair<FlavorResource, Limits>> quotas;
};

// How much of what could be lent a node has borrowed: the largest of its resources, in thousandths, over its weight.
struct Share {
  double ratio = 0;  // before the weight
  double weight = 1;
  bool borrowing = false;       // above its subtree's quota on any column
  std::uint32_t resource = 0;   // the dominant one, as Ledger::resource_names of its tree; meaningless if ratio is 0

  bool infinite() const { return weight == 0 && ratio != 0; }
  double weighted() const;  // infinity if infinite()
  // Rounded up for statuses; the largest int64 if infinite.
  std::int64_t rounded() const;
};
// Two infinite shares compare by ratio. Negative, 0, positive.
int compare(const Share& a, const Share& b);
inline Share no_share() { return Share{.ratio = -1}; }  // below every other

struct Use {
  Column column = no_column;
  Amount amount = 0;
  friend bool operator==(const Use&, const Use&) = default;
};

class Ledger {
 public:
  Ledger() = default;
  // Names are unique among leaves and among cohorts; a repeated one replaces the earlier. Amounts below zero count as zero.
  explicit Ledger(const std::vector<NodeSpec>& specs);

  std::size_t size() const { return nodes_.size(); }
  NodeId leaf(std::string_view name) const;    // no_node: unknown. O(log n), for edges.
  NodeId cohort(std::string_view name) const;
  const std::string& name(NodeId node) const { return names_[node]; }
  bool is_leaf(NodeId node) const { return nodes_[node].leaf; }
  NodeId parent(NodeId node) const { return nodes_[node].parent; }
  bool has_parent(NodeId node) const { return nodes_[node].parent != no_node; }
  NodeId root(NodeId node) const { return trees_[nodes_[node].tree].root; }
  std::uint32_t tree(NodeId node) const { return nodes_[node].tree; }
  double weight(NodeId node) const { return nodes_[node].weight; }
  // Cohorts of a cycle, and all below them, are inactive: they have no quota.
  bool active(NodeId node) const { return trees_[nodes_[node].tree].active; }
  std::span<const NodeId> children(NodeId node) const;  // cohorts before queues, each by name
  std::span<const NodeId> leaves(std::uint32_t tree) const { return trees_[tree].leaves; }
  int height(NodeId node) const { return nodes_[node].height; }  // edges to the farthest leaf

  Column column(NodeId node, std::string_view flavor, std::string_view resource) const;  // no_column: no node of its tree names it
  Column width(NodeId node) const { return trees_[nodes_[node].tree].width; }
  const FlavorResource& name(NodeId node, Column column) const { return trees_[nodes_[node].tree].columns[column]; }
  const std::vector<std::string>& resource_names(NodeId node) const { return trees_[nodes_[node].tree].resources; }
  // Does the node (for a cohort: it or any below) name a quota of the column?
  bool defined(NodeId node, Column column) const { return defined_[nodes_[node].row / rows + column] != 0; }

  Amount usage(NodeId node, Column c) const { return at(node, Row::usage, c); }
  Amount subtree(NodeId node, Column c) const { return at(node, Row::subtree, c); }
  Amount local(NodeId node, Column c) const { return at(node, Row::local, c); }
  Limits limits(NodeId node, Column c) const { return {at(node, Row::nominal, c), at(node, Row::borrow, c), at(node, Row::lend, c)}; }
  // The most that could ever be had: nobody else uses anything.
  Amount potential(NodeId node, Column c) const { return at(node, Row::potential, c); }
  // What can be had now; negative after a cut of quotas.
  Amount available(NodeId node, Column c) const;
  // The same, with the node whose limit it is: it grows when something is given back below that node, or when quotas change.
  struct Tight {
    Amount available = 0;
    NodeId node = no_node;
  };
  Tight tight(NodeId node, Column c) const;
  Amount local_available(NodeId node, Column c) const { return std::max<Amount>(0, minus(local(node, c), usage(node, c))); }
  // Would the node use more than its subtree has, with `more` on top?
  bool borrowing(NodeId node, Column c, Amount more = 0) const { return subtree(node, c) < plus(usage(node, c), more); }
  // The lowest node of the path that holds `amount` more without borrowing, and its height; the root's if none does.
  struct Level {
    int height = 0;
    bool below_root = false;  // it is not the whole tree: others may hold what belongs here
  };
  Level borrow_level(NodeId leaf, Column c, Amount amount) const;

  Share share(NodeId node) const;
  // The same with `more` of this node's columns on top.
  Share share_with(NodeId node, std::span<const Use> more) const;
  bool borrowing_on(NodeId node, std::span<const Use> requested) const;  // above quota on a column that is asked for

  // Would the node's subtree hold `rest` without borrowing? What the node can give of its own is taken off `rest`: what is left is asked of the node above.
  bool holds(NodeId node, std::span<Use> rest) const;

  void add(NodeId leaf, Column c, Amount amount);
  void remove(NodeId leaf, Column c, Amount amount);
  void add(NodeId leaf, std::span<const Use> uses) { for (const Use& use : uses) add(leaf, use.column, use.amount); }
  void remove(NodeId leaf, std::span<const Use> uses) { for (const Use& use : uses) remove(leaf, use.column, use.amount); }

  // Changes made while it is open are undone, exactly, when it closes. Trials nest; the last opened closes first.
  class Trial {
   public:
    explicit Trial(Ledger& ledger) : ledger_(&ledger), mark_(ledger.journal_.size()) { ++ledger.trials_; }
    Trial(const Trial&) = delete;
    Trial& operator=(const Trial&) = delete;
    ~Trial() { close(); }
    void close();  // now instead of later
    void keep();   // close, but leave the changes in place

   private:
    Ledger* ledger_;
    std::size_t mark_;
  };

 private:
  enum class Row : std::uint32_t { usage, subtree, local, borrow, lend, nominal, potential };
  static constexpr std::size_t rows = 7;
  struct Node {
    NodeId parent = no_node;
    std::uint32_t tree = 0;
    std::size_t row = 0;       // of cells_: for each column of the tree its `rows` numbers, which are asked for together
    std::size_t lendable = 0;  // of lendable_: one for each resource of the tree
    std::uint32_t first_child = 0, child_count = 0;
    int height = 0;
    bool leaf = true;
    double weight = 1;
  };
  struct Tree {
    NodeId root = no_node;
    Column width = 0;
    bool active = true;
    std::vector<FlavorResource> columns;  // by resource, then flavor
    std::vector<std::string> resources;
    std::vector<Column> first_column;     // of each resource, and one past the end
    std::vector<NodeId> leaves;           // by name
  };
  struct Old {
    std::size_t cell;
    Amount value;
  };

  std::size_t cell(NodeId node, Row row, Column c) const { return nodes_[node].row + std::size_t{c} * rows + static_cast<std::size_t>(row); }
  Amount at(NodeId node, Row row, Column c) const { return cells_[cell(node, row, c)]; }
  Amount& set(NodeId node, Row row, Column c) { return cells_[cell(node, row, c)]; }
  void write_usage(NodeId node, Column c, Amount value);
  void shape(const std::vector<NodeSpec>& specs);
  void fill(const std::vector<NodeSpec>& specs);
  void derive();

  std::vector<Node> nodes_;
  std::vector<std::string> names_;
  std::vector<Tree> trees_;
  std::vector<NodeId> children_;
  std::vector<Amount> cells_;
  std::vector<Amount> lendable_;
  std::vector<unsigned char> defined_;
  std::vector<std::pair<std::string, NodeId>> leaf_names_, cohort_names_;  // sorted
  std::vector<Old> journal_;
  int trials_ = 0;
};

}  // namespace fairlead::governance
