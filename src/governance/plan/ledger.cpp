// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/ledger.h"

#include <cmath>

#include "base/result.h"

namespace fairlead::governance {
namespace {

NodeId find_name(const std::vector<std::pair<std::string, NodeId>>& names, std::string_view name) {
  const auto at = std::lower_bound(names.begin(), names.end(), name, [](const auto& entry, std::string_view wanted) { return entry.first < wanted; });
  return at != names.end() && at->first == name ? at->second : no_node;
}

bool by_resource(const FlavorResource& a, const FlavorResource& b) {
  return a.resource != b.resource ? a.resource < b.resource : a.flavor < b.flavor;
}

}  // namespace

double Share::weighted() const {
  if (ratio == 0) return 0;
  return weight == 0 ? std::numeric_limits<double>::infinity() : ratio / weight;
}

std::int64_t Share::rounded() const {
  const double value = infinite() ? std::numeric_limits<double>::infinity() : std::ceil(weighted());
  return value >= 9.2e18 ? std::numeric_limits<std::int64_t>::max() : static_cast<std::int64_t>(value);
}

int compare(const Share& a, const Share& b) {
  if (a.infinite() != b.infinite()) return a.infinite() ? 1 : -1;
  const double left = a.infinite() ? a.ratio : a.weighted();
  const double right = b.infinite() ? b.ratio : b.weighted();
  return left < right ? -1 : left > right ? 1 : 0;
}

Ledger::Ledger(const std::vector<NodeSpec>& specs) {
  shape(specs);
  fill(specs);
  derive();
}

// Names to dense ids, parents before children; one tree for each root.
void Ledger::shape(const std::vector<NodeSpec>& specs) {
  struct Draft {
    const NodeSpec* spec = nullptr;  // the last of the name; null: named as a parent only
    std::string parent;
    bool leaf = true;
    std::vector<std::size_t> children;
    std::size_t up = 0;
    bool has_up = false, placed = false;
  };
  std::vector<std::pair<std::string, std::size_t>> cohorts, leaves;
  std::vector<const NodeSpec*> sorted;
  for (const NodeSpec& spec : specs) sorted.push_back(&spec);
  std::stable_sort(sorted.begin(), sorted.end(), [](const NodeSpec* a, const NodeSpec* b) { return a->leaf != b->leaf ? a->leaf < b->leaf : a->name < b->name; });
  // Cohorts that exist or are named, by name; then queues by name.
  std::vector<std::string> cohort_names;
  for (const NodeSpec& spec : specs) {
    if (!spec.leaf) cohort_names.push_back(spec.name);
    if (!spec.parent.empty()) cohort_names.push_back(spec.parent);
  }
  std::sort(cohort_names.begin(), cohort_names.end());
  cohort_names.erase(std::unique(cohort_names.begin(), cohort_names.end()), cohort_names.end());
  std::vector<Draft> drafts(cohort_names.size());
  const auto index_of = [&](std::string_view cohort) {
    return static_cast<std::size_t>(std::lower_bound(cohort_names.begin(), cohort_names.end(), cohort) - cohort_names.begin());
  };
  for (Draft& draft : drafts) draft.leaf = false;
  std::vector<std::string> draft_names = cohort_names;
  for (const NodeSpec* spec : sorted) {
    if (!spec->leaf) {
      drafts[index_of(spec->name)].spec = spec;
    } else if (draft_names.size() > cohort_names.size() && draft_names.back() == spec->name) {
      drafts.back().spec = spec;
    } else {
      drafts.push_back({.spec = spec, .leaf = true});
      draft_names.push_back(spec->name);
    }
  }
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    if (drafts[i].spec == nullptr || drafts[i].spec->parent.empty()) continue;
    drafts[i].up = index_of(drafts[i].spec->parent);
    drafts[i].has_up = true;
  }
  // A cycle is cut at its first member by name; the tree that comes out of it is inactive.
  std::vector<unsigned char> cyclic(drafts.size(), 0), seen(drafts.size(), 0);
  for (std::size_t start = 0; start < drafts.size(); ++start) {
    std::vector<std::size_t> path;
    std::size_t i = start;
    while (seen[i] == 0) {
      seen[i] = 1;
      path.push_back(i);
      if (!drafts[i].has_up) break;
      i = drafts[i].up;
    }
    const auto loop = std::find(path.begin(), path.end(), i);
    if (loop != path.end() && drafts[i].has_up && drafts[path.back()].has_up && drafts[path.back()].up == i) {
      const std::size_t cut = *std::min_element(loop, path.end());
      drafts[cut].has_up = false;
      cyclic[cut] = 1;
    }
  }
  for (std::size_t i = 0; i < drafts.size(); ++i)
    if (drafts[i].has_up) drafts[drafts[i].up].children.push_back(i);  // cohorts first: they come first in drafts

  std::vector<std::size_t> order;  // drafts, parents first, trees one after another
  std::vector<NodeId> id(drafts.size(), no_node);
  for (std::size_t root = 0; root < drafts.size(); ++root) {
    if (drafts[root].has_up) continue;
    Tree tree;
    tree.root = static_cast<NodeId>(order.size());
    tree.active = cyclic[root] == 0;
    const std::size_t first = order.size();
    order.push_back(root);
    for (std::size_t at = first; at < order.size(); ++at) {
      const std::size_t d = order[at];
      id[d] = static_cast<NodeId>(at);
      Node node;
      node.parent = drafts[d].has_up ? id[drafts[d].up] : no_node;
      node.tree = static_cast<std::uint32_t>(trees_.size());
      node.leaf = drafts[d].leaf;
      node.weight = drafts[d].spec != nullptr ? drafts[d].spec->weight : 1;
      if (!(node.weight >= 0)) node.weight = 0;
      nodes_.push_back(node);
      names_.push_back(draft_names[d]);
      order.insert(order.end(), drafts[d].children.begin(), drafts[d].children.end());
      if (drafts[d].spec != nullptr)
        for (const auto& [column, limits] : drafts[d].spec->quotas) tree.columns.push_back(column);
      if (drafts[d].leaf) tree.leaves.push_back(static_cast<NodeId>(at));
    }
    std::sort(tree.columns.begin(), tree.columns.end(), by_resource);
    tree.columns.erase(std::unique(tree.columns.begin(), tree.columns.end()), tree.columns.end());
    tree.width = static_cast<Column>(tree.columns.size());
    for (Column c = 0; c < tree.width; ++c) {
      if (c != 0 && tree.columns[c].resource == tree.columns[c - 1].resource) continue;
      tree.resources.push_back(tree.columns[c].resource);
      tree.first_column.push_back(c);
    }
    tree.first_column.push_back(tree.width);
    std::sort(tree.leaves.begin(), tree.leaves.end(), [&](NodeId a, NodeId b) { return names_[a] < names_[b]; });
    trees_.push_back(std::move(tree));
  }
  std::size_t row = 0, lendable = 0;
  for (NodeId n = 0; n < nodes_.size(); ++n) {
    Node& node = nodes_[n];
    node.row = row;
    row += rows * trees_[node.tree].width;
    node.lendable = lendable;
    lendable += trees_[node.tree].resources.size();
    node.first_child = static_cast<std::uint32_t>(children_.size());
    for (const std::size_t child : drafts[order[n]].children) children_.push_back(id[child]);
    node.child_count = static_cast<std::uint32_t>(children_.size() - node.first_child);
    (node.leaf ? leaf_names_ : cohort_names_).emplace_back(names_[n], n);
  }
  cells_.assign(row, 0);
  lendable_.assign(lendable, 0);
  defined_.assign(row / rows, 0);
  std::sort(leaf_names_.begin(), leaf_names_.end());
  std::sort(cohort_names_.begin(), cohort_names_.end());
}

void Ledger::fill(const std::vector<NodeSpec>& specs) {
  for (NodeId n = 0; n < nodes_.size(); ++n)
    for (Column c = 0; c < width(n); ++c) set(n, Row::borrow, c) = set(n, Row::lend, c) = unlimited;
  for (const NodeSpec& spec : specs) {
    const NodeId n = find_name(spec.leaf ? leaf_names_ : cohort_names_, spec.name);
    if (!active(n)) continue;
    for (Column c = 0; c < width(n); ++c) {  // an earlier spec of this name counts no more
      set(n, Row::nominal, c) = 0;
      set(n, Row::borrow, c) = set(n, Row::lend, c) = unlimited;
      defined_[nodes_[n].row / rows + c] = 0;
    }
    for (const auto& [key, limits] : spec.quotas) {
      const Column c = column(n, key.flavor, key.resource);
      set(n, Row::nominal, c) = std::max<Amount>(0, limits.nominal);
      set(n, Row::borrow, c) = std::max<Amount>(0, limits.borrow);
      set(n, Row::lend, c) = std::max<Amount>(0, limits.lend);
      defined_[nodes_[n].row / rows + c] = 1;
    }
  }
}

// What follows from quotas: subtree and local from the leaves up, potential and lendable from the roots down.
void Ledger::derive() {
  for (NodeId n = 0; n < nodes_.size(); ++n)
    for (Column c = 0; c < width(n); ++c) set(n, Row::subtree, c) = at(n, Row::nominal, c);
  for (NodeId i = static_cast<NodeId>(nodes_.size()); i-- > 0;) {
    Node& node = nodes_[i];
    for (Column c = 0; c < width(i); ++c) {
      set(i, Row::local, c) = std::max<Amount>(0, minus(subtree(i, c), at(i, Row::lend, c)));
      if (node.parent == no_node) continue;
      Amount& above = set(node.parent, Row::subtree, c);
      above = plus(above, minus(subtree(i, c), local(i, c)));
      defined_[nodes_[node.parent].row / rows + c] |= defined_[node.row / rows + c];
    }
    if (node.parent != no_node) nodes_[node.parent].height = std::max(nodes_[node.parent].height, node.height + 1);
  }
  for (NodeId n = 0; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    for (Column c = 0; c < width(n); ++c) {
      Amount most = subtree(n, c);
      if (node.parent != no_node) {
        most = plus(local(n, c), potential(node.parent, c));
        if (at(n, Row::borrow, c) != unlimited) most = std::min(most, plus(subtree(n, c), at(n, Row::borrow, c)));
      }
      set(n, Row::potential, c) = most;
    }
    const Tree& tree = trees_[node.tree];
    for (std::size_t r = 0; r < tree.resources.size(); ++r) {
      Amount sum = 0;
      for (Column c = tree.first_column[r]; c < tree.first_column[r + 1]; ++c) sum = plus(sum, potential(n, c));
      lendable_[node.lendable + r] = sum;
    }
  }
}

NodeId Ledger::leaf(std::string_view name) const { return find_name(leaf_names_, name); }
NodeId Ledger::cohort(std::string_view name) const { return find_name(cohort_names_, name); }

std::span<const NodeId> Ledger::children(NodeId node) const {
  return std::span(children_).subspan(nodes_[node].first_child, nodes_[node].child_count);
}

Column Ledger::column(NodeId node, std::string_view flavor, std::string_view resource) const {
  const std::vector<FlavorResource>& columns = trees_[nodes_[node].tree].columns;
  const auto at = std::lower_bound(columns.begin(), columns.end(), 0, [&](const FlavorResource& entry, int) {
    return entry.resource != resource ? entry.resource < resource : entry.flavor < flavor;
  });
  return at != columns.end() && at->resource == resource && at->flavor == flavor ? static_cast<Column>(at - columns.begin()) : no_column;
}

Amount Ledger::available(NodeId node, Column c) const { return tight(node, c).available; }

Ledger::Tight Ledger::tight(NodeId node, Column c) const {
  const NodeId above = nodes_[node].parent;
  if (above == no_node) return {minus(subtree(node, c), usage(node, c)), node};
  Tight out = tight(above, c);
  if (const Amount borrow = at(node, Row::borrow, c); borrow != unlimited) {
    const Amount own = local(node, c);
    const Amount lent_up = minus(subtree(node, c), own);
    const Amount taken_up = std::max<Amount>(0, minus(usage(node, c), own));
    if (const Amount most = plus(minus(lent_up, taken_up), borrow); most < out.available) out = {most, node};
  }
  out.available = plus(local_available(node, c), out.available);
  return out;
}

Ledger::Level Ledger::borrow_level(NodeId leaf, Column c, Amount amount) const {
  NodeId node = leaf;
  if (!borrowing(node, c, amount) || !has_parent(node)) return {0, has_parent(node)};
  while (has_parent(node)) {
    amount = minus(amount, local_available(node, c));
    node = parent(node);
    if (!borrowing(node, c, amount)) return {height(node), has_parent(node)};
  }
  return {height(node), false};
}

Share Ledger::share(NodeId node) const { return share_with(node, {}); }

Share Ledger::share_with(NodeId node, std::span<const Use> more) const {
  const Node& n = nodes_[node];
  Share share{.weight = n.weight};
  if (n.parent == no_node) return share;
  const Tree& tree = trees_[n.tree];
  const unsigned char* defined = defined_.data() + n.row / rows;
  for (std::uint32_t r = 0; r < tree.resources.size(); ++r) {
    Amount borrowed = 0;
    for (Column c = tree.first_column[r]; c < tree.first_column[r + 1]; ++c) {
      if (defined[c] == 0) continue;
      Amount used = usage(node, c);
      for (const Use& use : more)
        if (use.column == c) used = plus(used, use.amount);
      borrowed = plus(borrowed, std::max<Amount>(0, minus(used, subtree(node, c))));
    }
    if (borrowed <= 0) continue;
    share.borrowing = true;
    const Amount lendable = lendable_[nodes_[n.parent].lendable + r];
    if (lendable <= 0) continue;
    const double ratio = static_cast<double>(borrowed) * 1000.0 / static_cast<double>(lendable);
    if (ratio > share.ratio) {
      share.ratio = ratio;
      share.resource = r;
    }
  }
  return share;
}

bool Ledger::borrowing_on(NodeId node, std::span<const Use> requested) const {
  if (!has_parent(node)) return false;
  return std::any_of(requested.begin(), requested.end(), [&](const Use& use) { return use.amount > 0 && defined(node, use.column) && borrowing(node, use.column); });
}

bool Ledger::holds(NodeId node, std::span<Use> rest) const {
  bool whole = true;
  for (Use& use : rest) {
    if (borrowing(node, use.column, use.amount)) whole = false;
    use.amount = std::max<Amount>(0, minus(use.amount, local_available(node, use.column)));
  }
  return whole;
}

void Ledger::write_usage(NodeId node, Column c, Amount value) {
  const std::size_t where = cell(node, Row::usage, c);
  if (trials_ != 0) journal_.push_back({where, cells_[where]});
  cells_[where] = value;
}

void Ledger::add(NodeId node, Column c, Amount amount) {
  while (true) {
    const Amount free = local_available(node, c);
    write_usage(node, c, plus(usage(node, c), amount));
    if (!has_parent(node) || amount <= free) return;
    amount = minus(amount, free);
    node = parent(node);
  }
}

void Ledger::remove(NodeId node, Column c, Amount amount) {
  while (true) {
    const Amount above = minus(usage(node, c), local(node, c));
    write_usage(node, c, minus(usage(node, c), amount));
    if (above <= 0 || !has_parent(node)) return;
    amount = std::min(amount, above);
    node = parent(node);
  }
}

void Ledger::Trial::close() {
  if (ledger_ == nullptr) return;
  std::vector<Old>& journal = ledger_->journal_;
  INVARIANT(journal.size() >= mark_);
  for (; journal.size() > mark_; journal.pop_back()) ledger_->cells_[journal.back().cell] = journal.back().value;
  --ledger_->trials_;
  ledger_ = nullptr;
}

void Ledger::Trial::keep() {
  if (ledger_ == nullptr) return;
  if (--ledger_->trials_ == 0) ledger_->journal_.clear();
  ledger_ = nullptr;
}

}  // namespace fairlead::governance
