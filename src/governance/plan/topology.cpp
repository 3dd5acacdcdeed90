// SPDX-License-Identifier: Apache-2.0
// The rows: what each leaf has and what is used of it.
#include "governance/plan/topology.h"

#include <algorithm>
#include <limits>

#include "base/result.h"
#include "governance/plan/amount.h"
#include "governance/plan/topology_state.h"

namespace fairlead::governance {
namespace {

constexpr std::size_t most_known = 64;
constexpr std::int64_t most_pods = std::numeric_limits<std::int32_t>::max();

}  // namespace

int ResourceIds::id(std::string_view name) {
  if (const auto found = ids_.find(name); found != ids_.end()) return found->second;
  const int fresh = count();
  names_.emplace_back(name);
  ids_.emplace(name, fresh);
  return fresh;
}

int ResourceIds::find(std::string_view name) const {
  const auto found = ids_.find(name);
  return found == ids_.end() ? -1 : found->second;
}

PodAmounts amounts_of(const NamedAmounts& named, ResourceIds& ids) {
  PodAmounts out;
  for (const auto& [name, amount] : named) out.of.emplace_back(ids.id(name), amount);
  return out;
}

PodFit count_in(const std::int64_t* row, std::span<const RowNeed> needs) {
  PodFit fit{.count = needs.empty() ? 0 : most_pods};
  for (const RowNeed& need : needs) {
    std::int64_t count = most_pods;
    if (need.amount != 0) {
      const std::int64_t has = need.column < 0 ? 0 : row[need.column];
      // More used than there is (a device was lost) holds nothing, and nothing is asked for in negative amounts.
      count = has <= 0 || need.amount < 0 ? 0 : std::min(has / need.amount, most_pods);
    }
    if (fit.limiting < 0 || count < fit.count) fit = {count, need.id};
  }
  return fit;
}

Topology::State::State(TopologyShape shape_in, std::span<const TopologyNode> nodes, std::shared_ptr<ResourceIds> ids_in, TopologyGates gates_in)
    : shape(std::move(shape_in)), tree(shape.levels, shape.flavor_labels, nodes), ids(std::move(ids_in)), gates(gates_in) {
  pods_id = ids->id("pods");
  for (LeafIndex leaf = 0; leaf < tree.leaf_count(); ++leaf) {
    for (const auto& [name, amount] : tree.capacity(leaf)) {
      const auto id = static_cast<std::size_t>(ids->id(name));
      if (id >= column_of_id.size()) column_of_id.resize(id + 1, -1);
      if (column_of_id[id] < 0) column_of_id[id] = static_cast<int>(columns++);
    }
    bare_nodes = bare_nodes && tree.node(leaf).taints.empty();
  }
  free.assign(static_cast<std::size_t>(tree.leaf_count()) * columns, 0);
  for (LeafIndex leaf = 0; leaf < tree.leaf_count(); ++leaf) {
    for (const auto& [name, amount] : tree.capacity(leaf)) free[cell(leaf, column_of(ids->find(name)))] = amount;
  }
  left = free;
  rooms.resize(static_cast<std::size_t>(tree.domains()));
  assumed_slot.assign(static_cast<std::size_t>(tree.leaf_count()), 0);
}

std::vector<RowNeed> Topology::State::needs_of(const PodAmounts& per_pod, bool with_pod) const {
  std::vector<RowNeed> needs;
  for (const auto& [id, amount] : per_pod.of) needs.push_back({column_of(id), amount, id});
  if (!with_pod) return needs;
  const auto own = std::find_if(needs.begin(), needs.end(), [&](const RowNeed& need) { return need.id == pods_id; });
  if (own != needs.end()) {
    own->amount = plus(own->amount, 1);
    return needs;
  }
  const auto after = std::find_if(needs.begin(), needs.end(), [&](const RowNeed& need) { return ids->name(need.id) > ids->name(pods_id); });
  needs.insert(after, {column_of(pods_id), 1, pods_id});
  return needs;
}

void Topology::State::write(std::vector<std::int64_t>& row, std::size_t at, std::int64_t value) {
  if (trials > 0) journal.push_back({&row == &left, at, row[at]});
  row[at] = value;
}

void Topology::State::change(std::span<const DomainUse> uses, bool add) {
  for (const DomainUse& use : uses) {
    const DomainId domain = tree.find_leaf(use.values);
    if (domain == no_domain) continue;
    for (const RowNeed& need : needs_of(use.per_pod, true)) {
      if (need.column < 0) continue;
      const std::size_t at = cell(tree.leaf(domain), need.column);
      const std::int64_t amount = times(need.amount, use.count);
      write(left, at, add ? minus(left[at], amount) : plus(left[at], amount));
    }
  }
}

void Topology::State::change_other(std::string_view node, const NamedAmounts& requests, std::int32_t pods, bool add) {
  const LeafIndex leaf = tree.leaf_of_node(node);
  if (leaf < 0) return;
  const auto one = [&](std::string_view name, std::int64_t amount) {
    const int id = ids->find(name);
    const int column = id < 0 ? -1 : column_of(id);
    if (column < 0) return;
    const std::size_t at = cell(leaf, column);
    write(free, at, add ? minus(free[at], amount) : plus(free[at], amount));
    write(left, at, add ? minus(left[at], amount) : plus(left[at], amount));
  };
  for (const auto& [name, amount] : requests) one(name, amount);
  one("pods", pods);
}

const Topology::State::Eligible& Topology::State::eligible(const NodeNeeds& needs) {
  const auto same = std::find_if(known.begin(), known.end(), [&](const Eligible& one) { return one.needs == needs; });
  if (same != known.end()) {
    known.splice(known.begin(), known, same);
    return known.front();
  }
  if (known.size() >= most_known) known.pop_back();
  Eligible& fresh = known.emplace_front(Eligible{.needs = needs, .leaves = {}, .liking = {}, .exclusions = {.nodes = tree.leaf_count(), .taints = {}, .resources = {}}});
  for (LeafIndex leaf = 0; leaf < tree.leaf_count(); ++leaf) {
    std::int64_t liking = 0;
    if (tree.by_host()) {  // a rack is not a node: it has no taints or labels of its own
      const NodeFacts& node = tree.node(leaf);
      if (const Taint* taint = forbidding_taint(node.taints, needs.tolerations, shape.tolerations)) {
        ++fresh.exclusions.taints[text(*taint)];
        continue;
      }
      if (!has_labels(node.labels, needs.selector)) {
        ++fresh.exclusions.selector;
        continue;
      }
      if (needs.required && !matches_any(*needs.required, node)) {
        ++fresh.exclusions.affinity;
        continue;
      }
      if (gates.node_preference) liking = preference(needs.preferred, node);
    }
    fresh.leaves.push_back(leaf);
    fresh.liking.push_back(liking);
  }
  return fresh;
}

Topology::Topology(TopologyShape shape, std::span<const TopologyNode> nodes, std::shared_ptr<ResourceIds> ids, TopologyGates gates)
    : state_(std::make_unique<State>(std::move(shape), nodes, std::move(ids), gates)) {}
Topology::~Topology() = default;
Topology::Topology(Topology&&) noexcept = default;
Topology& Topology::operator=(Topology&&) noexcept = default;
Topology::Topology(const Topology& other) : state_(std::make_unique<State>(*other.state_)) { INVARIANT(state_->trials == 0); }
Topology& Topology::operator=(const Topology& other) {
  if (this != &other) *this = Topology(other);
  return *this;
}
void Topology::rebind(std::shared_ptr<ResourceIds> ids) { state_->ids = std::move(ids); }

const std::string& Topology::name() const { return state_->shape.name; }
bool Topology::by_host() const { return state_->tree.by_host(); }
bool Topology::has_domain(const std::vector<std::string>& values) const { return state_->tree.find_leaf(values) != no_domain; }
std::size_t Topology::leaves() const { return static_cast<std::size_t>(state_->tree.leaf_count()); }

bool Topology::has_levels(const TopologyAsk& ask) const {
  const auto known = [&](const std::string& level) { return state_->tree.level_of(level) >= 0; };
  if (!ask.explicit_ask() || state_->tree.depth() == 0) return false;
  if (ask.required ? !known(*ask.required) : ask.preferred && !known(*ask.preferred)) return false;
  return std::all_of(ask.slices.begin(), ask.slices.end(), [&](const SliceLayer& layer) { return known(layer.level); });
}

void Topology::add_other(std::string_view node, const NamedAmounts& requests, std::int32_t pods) { state_->change_other(node, requests, pods, true); }
void Topology::remove_other(std::string_view node, const NamedAmounts& requests, std::int32_t pods) { state_->change_other(node, requests, pods, false); }
void Topology::add(std::span<const DomainUse> uses) { state_->change(uses, true); }
void Topology::remove(std::span<const DomainUse> uses) { state_->change(uses, false); }

std::size_t Topology::mark() {
  ++state_->trials;
  return state_->journal.size();
}

void Topology::undo(std::size_t mark) {
  INVARIANT(state_->trials > 0 && mark <= state_->journal.size());
  for (std::size_t i = state_->journal.size(); i-- > mark;) {
    const State::Old& old = state_->journal[i];
    (old.of_left ? state_->left : state_->free)[old.cell] = old.value;
  }
  state_->journal.resize(mark);
  --state_->trials;
}

void Topology::keep(std::size_t mark) {
  INVARIANT(state_->trials > 0 && mark <= state_->journal.size());
  if (--state_->trials == 0) state_->journal.clear();
}

bool Topology::fits(std::span<const DomainUse> uses, bool with_pods) const {
  return std::all_of(uses.begin(), uses.end(), [&](const DomainUse& use) {
    const DomainId domain = state_->tree.find_leaf(use.values);
    if (domain == no_domain) return false;
    const auto needs = state_->needs_of(use.per_pod, with_pods);
    return count_in(state_->left.data() + state_->cell(state_->tree.leaf(domain), 0), needs).count >= use.count;
  });
}

std::vector<DomainUse> uses_of(const TopologyAssignment& assignment, const PodAmounts& per_pod) {
  std::vector<DomainUse> uses;
  for (const DomainPods& domain : assignment.domains) uses.push_back({domain.values, per_pod, domain.count});
  return uses;
}

const TopologyAnswer* failure(const std::vector<TopologyAnswer>& answers) {
  const auto found = std::find_if(answers.begin(), answers.end(), [](const TopologyAnswer& answer) { return !answer.reason.none(); });
  return found == answers.end() ? nullptr : &*found;
}

}  // namespace fairlead::governance
