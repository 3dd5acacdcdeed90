// SPDX-License-Identifier: Apache-2.0
// A whole workload: its groups of pod sets one after another, a place for the pods of a lost node, and scaling that leaves running pods where they are.
#include <algorithm>
#include <map>

#include "governance/plan/topology_state.h"

namespace fairlead::governance {
namespace {

TopologyReason no_replacement(TopologyReason::Kind kind, const std::string& other) {
  TopologyReason reason;
  reason.kind = kind;
  reason.other = other;
  return reason;
}

void assume(AssumedUse& assumed, const TopologyAssignment& assignment, const PodAmounts& per_pod) {
  for (DomainUse& use : uses_of(assignment, per_pod)) assumed.uses.push_back(std::move(use));
}

}  // namespace

const DomainPods* Topology::State::stale(const TopologyAssignment& assignment) const {
  const auto gone = std::find_if(assignment.domains.begin(), assignment.domains.end(),
                                 [&](const DomainPods& domain) { return tree.find_leaf(domain.values) == no_domain; });
  return gone == assignment.domains.end() ? nullptr : &*gone;
}

TopologyAssignment Topology::State::merged(const TopologyAssignment& a, const TopologyAssignment& b) const {
  std::map<DomainId, DomainPods> sum;
  for (const TopologyAssignment* one : {&a, &b}) {
    for (const DomainPods& domain : one->domains) {
      const auto [slot, fresh] = sum.try_emplace(tree.find_leaf(domain.values), domain);
      if (!fresh) slot->second.count += domain.count;
    }
  }
  TopologyAssignment out{.levels = a.levels, .domains = {}};
  for (auto& [leaf, domain] : sum) out.domains.push_back(std::move(domain));
  return out;
}

// The domain of the layer whose slice is complete again with the missing pods in it.
DomainId Topology::State::broken_slice(const TopologyAssignment& rest, std::int64_t missing, const SliceLayer& layer) const {
  const int level = tree.level_of(layer.level);
  if (level < 0) return no_domain;
  std::map<DomainId, std::int64_t> pods;
  for (const DomainPods& domain : rest.domains) {
    const DomainId leaf = tree.find_leaf(domain.values);
    if (leaf != no_domain) pods[tree.ancestor(leaf, tree.depth() - 1, level)] += domain.count;
  }
  for (const auto& [domain, count] : pods) {
    if ((count + missing) % layer.size == 0) return domain;
  }
  return no_domain;
}

// Where the replacement must be so that what was asked for still holds; no_domain: anywhere.
DomainId Topology::State::replacement_domain(const TopologyPodSet& pod_set, std::int64_t missing, const TopologyAssignment& rest) const {
  const int level = tree.level_of(ask_level(pod_set));
  const std::vector<SliceLayer>& slices = pod_set.ask.slices;
  if (level < 0 || rest.domains.empty() || (!slices.empty() && slices.front().size <= 0)) return no_domain;
  if (!slices.empty() && missing % slices.front().size != 0) {
    // The finest layer that is broken.
    const auto broken = std::find_if(slices.rbegin(), slices.rend(), [&](const SliceLayer& layer) { return layer.size > 0 && missing % layer.size != 0; });
    return broken_slice(rest, missing, *broken);
  }
  if (!pod_set.ask.required) return no_domain;
  const DomainId leaf = tree.find_leaf(rest.domains.front().values);
  return leaf == no_domain ? no_domain : tree.ancestor(leaf, tree.depth() - 1, level);
}

Topology::State::Found Topology::State::replace(const TopologyPodSet& pod_set, const TopologyQuestion& question, AssumedUse& assumed) {
  TopologyPodSet sought = pod_set;
  sought.count = 0;
  TopologyAssignment rest{.levels = pod_set.current->levels, .domains = {}};
  for (const DomainPods& domain : pod_set.current->domains) {
    if (!domain.values.empty() && domain.values.back() == question.unhealthy_node) {
      sought.count = domain.count;
    } else {
      rest.domains.push_back(domain);
    }
  }
  Found found;
  if (const DomainPods* gone = stale(rest)) {
    found.reason = no_replacement(TopologyReason::Kind::StaleDomain, gone->values.empty() ? std::string() : gone->values.front());
    return found;
  }
  const DomainId within = replacement_domain(pod_set, sought.count, rest);
  std::vector<SliceLayer>& slices = sought.ask.slices;
  if (!slices.empty() && slices.front().size > 0 && within != no_domain && sought.count % slices.front().size != 0) {
    // Only the finest layer that the missing pods fill is kept; the coarser ones hold because of where the pods go.
    const auto whole = std::find_if(slices.rbegin(), slices.rend(), [&](const SliceLayer& layer) { return layer.size > 0 && sought.count % layer.size == 0; });
    slices = whole == slices.rend() ? std::vector<SliceLayer>{} : std::vector<SliceLayer>{*whole};
  }
  found = place({.workers = &sought, .leader = nullptr, .simulate_empty = false, .within = within, .assumed = &assumed});
  if (!found.reason.none()) return found;
  if (found.workers.domains.empty()) {
    found.reason = no_replacement(TopologyReason::Kind::NoReplacement, question.unhealthy_node);
    return found;
  }
  assume(assumed, found.workers, pod_set.per_pod);
  found.workers = merged(found.workers, rest);
  return found;
}

std::optional<std::vector<TopologyAnswer>> Topology::State::scale(const TopologyPodSet& workers, const TopologyPodSet* leader, const TopologyQuestion& question,
                                                                  AssumedUse& assumed) {
  if (!workers.current || stale(*workers.current)) return std::nullopt;
  if (leader && leader->current && stale(*leader->current)) return std::nullopt;
  const std::int64_t before = pods_in(*workers.current);
  std::vector<TopologyAnswer> answers(1);
  answers[0].pod_set = workers.name;
  const auto keep_leader = [&] {
    if (!leader) return;
    answers.push_back({.pod_set = leader->name, .assignment = leader->current, .reason = {}});
    if (leader->current) assume(assumed, *leader->current, leader->per_pod);
  };
  if (workers.count <= before) {
    answers[0].assignment = workers.count < before ? first_pods(*workers.current, workers.count) : *workers.current;
    assume(assumed, *answers[0].assignment, workers.per_pod);
    keep_leader();
    return answers;
  }
  TopologyPodSet more = workers;
  more.count = static_cast<std::int32_t>(workers.count - before);
  assume(assumed, *workers.current, workers.per_pod);
  const TopologyPodSet* fresh_leader = leader;
  if (leader && leader->current) {
    keep_leader();
    fresh_leader = nullptr;
  }
  Found found = place({.workers = &more, .leader = fresh_leader, .simulate_empty = question.simulate_empty, .within = no_domain, .assumed = &assumed});
  if (!found.reason.none()) {
    answers.resize(1);
    answers[0].reason = std::move(found.reason);
    return answers;
  }
  assume(assumed, found.workers, workers.per_pod);
  answers[0].assignment = merged(found.workers, *workers.current);
  if (fresh_leader && found.leader) {
    assume(assumed, *found.leader, leader->per_pod);
    answers.push_back({.pod_set = leader->name, .assignment = std::move(found.leader), .reason = {}});
  }
  return answers;
}

std::vector<TopologyAnswer> Topology::find(const TopologyQuestion& question) {
  AssumedUse own;
  AssumedUse& assumed = question.assumed ? *question.assumed : own;
  // Pod sets of one group go together; groups in order of their first pod set.
  std::vector<std::vector<const TopologyPodSet*>> groups;
  for (const TopologyPodSet& pod_set : question.pod_sets) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return pod_set.ask.group && group.front()->ask.group == pod_set.ask.group; });
    if (same != groups.end()) {
      same->push_back(&pod_set);
    } else {
      groups.push_back({&pod_set});
    }
  }

  std::vector<TopologyAnswer> answers;
  for (const auto& group : groups) {
    if (!question.unhealthy_node.empty()) {
      for (const TopologyPodSet* pod_set : group) {
        if (!pod_set->current) continue;
        if (state_->gates.keep_pod_owned && question.owned_by_single_pod) {
          // A pod cannot move, and its workload ends with it.
          answers.push_back({.pod_set = pod_set->name, .assignment = pod_set->current, .reason = {}});
          continue;
        }
        State::Found found = state_->replace(*pod_set, question, assumed);
        TopologyAnswer& answer = answers.emplace_back(TopologyAnswer{.pod_set = pod_set->name, .assignment = {}, .reason = found.reason});
        if (!found.reason.none()) return answers;
        answer.assignment = std::move(found.workers);
      }
      continue;
    }
    // Of two the one with fewer pods leads.
    const TopologyPodSet* workers = group.front();
    const TopologyPodSet* leader = group.size() > 1 ? group[1] : nullptr;
    if (leader && leader->count > workers->count) std::swap(leader, workers);
    if (state_->gates.elastic) {
      if (auto scaled = state_->scale(*workers, leader, question, assumed)) {
        for (TopologyAnswer& answer : *scaled) answers.push_back(std::move(answer));
        if (failure(answers)) return answers;
        continue;
      }
    }
    State::Found found = state_->place({.workers = workers, .leader = leader, .simulate_empty = question.simulate_empty, .within = no_domain, .assumed = &assumed});
    for (const TopologyPodSet* pod_set : group) {
      TopologyAnswer& answer = answers.emplace_back(TopologyAnswer{.pod_set = pod_set->name, .assignment = {}, .reason = found.reason});
      if (!found.reason.none()) continue;
      if (pod_set == workers) answer.assignment = found.workers;
      if (pod_set == leader) answer.assignment = found.leader;
      if (answer.assignment) assume(assumed, *answer.assignment, pod_set->per_pod);
    }
    if (!found.reason.none()) return answers;
  }
  return answers;
}

std::vector<FlavorAnswer> find_for_workload(std::span<const FlavorQuestion> by_flavor, const TopologyQuestion& common, const TopologyGates& gates) {
  AssumedUse shared;
  std::vector<FlavorAnswer> all;
  for (const FlavorQuestion& one : by_flavor) {
    AssumedUse alone;
    TopologyQuestion question = common;
    question.pod_sets = one.pod_sets;
    question.assumed = gates.overlapping_flavors && one.topology->by_host() ? &shared : &alone;
    for (TopologyAnswer& answer : one.topology->find(question)) {
      FlavorAnswer out;
      static_cast<TopologyAnswer&>(out) = std::move(answer);
      out.flavor = one.flavor;
      all.push_back(std::move(out));
    }
  }
  return all;
}

}  // namespace fairlead::governance
