// SPDX-License-Identifier: Apache-2.0
#include "placement/plan/board.h"

#include <algorithm>
#include <limits>

namespace fairlead::placement {
namespace {

std::string class_text(const Pod& pod) {
  std::string text = pod.key.space;
  for (const auto& [key, value] : pod.labels) text.append("\n").append(key).append("=").append(value);
  return text;
}

// Pods of one owner, or with the same labels.
std::string group_text(const Pod& pod, const std::string& class_of) {
  if (!pod.owner.empty()) return "o" + pod.owner;
  return pod.labels.empty() ? std::string() : "l" + class_of;
}

std::string term_text(const PodTerm& term, bool skips_deleting) {
  std::string text = term.selector.text();
  for (const std::string& space : term.spaces) text.append("\n").append(space);
  if (term.space_selector) text.append("\n?").append(term.space_selector->text());
  if (skips_deleting) text += "\n!";
  return text;
}

}  // namespace

Board::Board(std::vector<const Node*> nodes, std::vector<const Pod*> pods, const Spaces& spaces) {
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->name < b->name; });
  bins_.reserve(nodes.size());
  for (const Node* node : nodes) {
    Bin bin{.node = node, .cpu = node->allocatable.cpu.value, .memory = node->allocatable.memory.value, .pods = node->allocatable.pods, .extended = {}, .on = {}, .ports = {}};
    bins_.push_back(std::move(bin));
  }
  entries_.reserve(pods.size());
  for (const Pod* pod : pods) read(*pod);
  for (Bin& bin : bins_) {
    bin.extended.assign(resources_.size(), 0);
    for (const auto& [name, amount] : bin.node->allocatable.extended) {
      if (const auto number = resource_numbers_.find(name); number != resource_numbers_.end()) bin.extended[static_cast<std::size_t>(number->second)] = amount;
    }
  }
  counters_of_.resize(class_sample_.size());
  for (std::size_t number = 0; number < counters_.size(); ++number) {
    Counter& counter = counters_[number];
    counter.per_node.assign(bins_.size(), 0);
    counter.matches.assign(class_sample_.size(), false);
    for (std::size_t of = 0; of < class_sample_.size(); ++of) {
      counter.matches[of] = placement::means(counter.term, *class_sample_[of], spaces);
      if (counter.matches[of]) counters_of_[of].push_back(static_cast<int>(number));
    }
  }
  for (Term& term : terms_) {
    const auto count = static_cast<std::size_t>(domains(term.key));
    term.means.assign(count, 0);
    term.kept_apart.assign(count, 0);
    term.liked.assign(count, 0);
  }
  for (Entry& entry : entries_) {
    for (Constraint& constraint : entry.constraints) constraint.counts_itself = counters_[static_cast<std::size_t>(constraint.counter)].matches[static_cast<std::size_t>(entry.labels)];
  }
  lowest_priority_ = std::numeric_limits<std::int64_t>::max();
  for (PodIndex pod = 0; pod < size(); ++pod) {
    if (const NodeIndex node = find(entry(pod).pod->node); node >= 0) put(pod, node);
  }
}

void Board::read(const Pod& pod) {
  Entry entry{.pod = &pod};
  entry.doomed = pod.deleting;
  for (const auto& [name, amount] : pod.requests.extended) {
    if (amount > 0) entry.extended.emplace_back(resource_number(name), amount);
  }
  const std::string class_of = class_text(pod);
  const auto [number, fresh] = class_numbers_.emplace(class_of, static_cast<int>(class_sample_.size()));
  if (fresh) class_sample_.push_back(&pod);
  entry.labels = number->second;
  if (const std::string group = group_text(pod, class_of); !group.empty()) {
    const auto [found, added] = group_numbers_.emplace(group, static_cast<int>(groups_.size()));
    if (added) groups_.emplace_back();  // counted only if somebody of it waits
    entry.siblings = found->second;
  }
  for (const PodTerm& term : pod.near) entry.near.push_back(term_number(term));
  for (const PodTerm& term : pod.apart) entry.apart.push_back(term_number(term));
  for (const PreferredPodTerm& preferred : pod.liked) entry.liked.emplace_back(term_number(preferred.term), preferred.weight);
  for (const Spread& spread : pod.spreads) {
    const PodTerm term{.selector = spread.selector, .spaces = {pod.key.space}, .topology_key = spread.topology_key, .space_selector = std::nullopt};
    entry.constraints.push_back({&spread, counter_number(term, true), key_number(spread.topology_key), false});
  }
  if (entry.siblings >= 0 && pending(pod)) groups_[static_cast<std::size_t>(entry.siblings)].resize(bins_.size(), 0);
  entries_.push_back(std::move(entry));
}

int Board::resource_number(const std::string& name) {
  const auto [found, fresh] = resource_numbers_.emplace(name, static_cast<int>(resources_.size()));
  if (fresh) resources_.push_back(name);
  return found->second;
}

int Board::key_number(const std::string& label) {
  const auto [found, fresh] = key_numbers_.emplace(label, static_cast<int>(keys_.size()));
  if (!fresh) return found->second;
  Key key;
  std::map<std::string_view, int> values;
  for (const Bin& bin : bins_) {
    const auto value = bin.node->labels.find(label);
    key.of.push_back(value == bin.node->labels.end() ? -1 : values.emplace(value->second, static_cast<int>(values.size())).first->second);
  }
  key.count = static_cast<int>(values.size());
  keys_.push_back(std::move(key));
  return found->second;
}

int Board::counter_number(const PodTerm& term, bool skips_deleting) {
  const auto [found, fresh] = counter_numbers_.emplace(term_text(term, skips_deleting), static_cast<int>(counters_.size()));
  if (fresh) counters_.push_back({.selector = term.selector, .term = term, .skips_deleting = skips_deleting, .matches = {}, .per_node = {}, .terms = {}});
  return found->second;
}

int Board::term_number(const PodTerm& term) {
  const int counter = counter_number(term, false), key = key_number(term.topology_key);
  const auto [found, fresh] = term_numbers_.emplace(std::pair(counter, key), static_cast<int>(terms_.size()));
  if (fresh) {
    terms_.push_back({.counter = counter, .key = key, .means = {}, .kept_apart = {}, .liked = {}});
    counters_[static_cast<std::size_t>(counter)].terms.push_back(found->second);
  }
  return found->second;
}

Board::NodeIndex Board::find(std::string_view node) const {
  if (node.empty()) return -1;
  const auto it = std::lower_bound(bins_.begin(), bins_.end(), node, [](const Bin& bin, std::string_view key) { return bin.node->name < key; });
  return it != bins_.end() && it->node->name == node ? static_cast<NodeIndex>(it - bins_.begin()) : -1;
}

std::vector<int> Board::terms_about(PodIndex pod) const {
  std::vector<int> out;
  for (const int counter : counters_of_[static_cast<std::size_t>(entry(pod).labels)]) {
    for (const int number : counters_[static_cast<std::size_t>(counter)].terms)
      if (term(number).holders > 0) out.push_back(number);
  }
  return out;
}

void Board::put(PodIndex pod, NodeIndex node) {
  lowest_priority_ = std::min(lowest_priority_, entry(pod).pod->priority);
  Bin& bin = bins_[static_cast<std::size_t>(node)];
  bin.on.push_back(pod);
  for (const auto& port : entry(pod).pod->host_ports) bin.ports.push_back(&port);
  change(pod, node, 1);
}

void Board::take(PodIndex pod, NodeIndex node) {
  Bin& bin = bins_[static_cast<std::size_t>(node)];
  bin.on.erase(std::find(bin.on.begin(), bin.on.end(), pod));
  for (const auto& port : entry(pod).pod->host_ports) bin.ports.erase(std::find(bin.ports.begin(), bin.ports.end(), &port));
  change(pod, node, -1);
}

void Board::change(PodIndex pod, NodeIndex node, int sign) {
  ++changes_;
  const Entry& entry = this->entry(pod);
  const auto at = static_cast<std::size_t>(node);
  Bin& bin = bins_[at];
  bin.cpu -= sign * entry.pod->requests.cpu.value;
  bin.memory -= sign * entry.pod->requests.memory.value;
  bin.pods -= sign * entry.pod->requests.pods;
  for (const auto& [number, amount] : entry.extended) bin.extended[static_cast<std::size_t>(number)] -= sign * amount;
  if (entry.siblings >= 0) {
    if (auto& group = groups_[static_cast<std::size_t>(entry.siblings)]; !group.empty()) group[at] += sign;
  }
  for (const int number : counters_of_[static_cast<std::size_t>(entry.labels)]) {
    Counter& counter = counters_[static_cast<std::size_t>(number)];
    // Spreading looks past pods that leave.
    if (!(counter.skips_deleting && entry.pod->deleting)) counter.per_node[at] += sign;
    for (const int of : counter.terms) {
      Term& term = terms_[static_cast<std::size_t>(of)];
      if (const int where = domain(term.key, node); where >= 0) {
        term.means[static_cast<std::size_t>(where)] += sign;
        term.total += sign;
      }
    }
  }
  const auto hold = [&](int number, bool apart, std::int64_t weight) {
    Term& term = terms_[static_cast<std::size_t>(number)];
    const int where = domain(term.key, node);
    if (where < 0) return;
    term.holders += sign;
    if (apart) term.kept_apart[static_cast<std::size_t>(where)] += sign;
    else term.liked[static_cast<std::size_t>(where)] += sign * weight;
  };
  for (const int number : entry.apart) hold(number, true, 0);
  for (const int number : entry.near) hold(number, false, 1);
  for (const auto& [number, weight] : entry.liked) hold(number, false, weight);
}

}  // namespace fairlead::placement
