// SPDX-License-Identifier: Apache-2.0
// The search for victims inside of the continuous mode: who are candidates, in the order in which each queue loses them. For its own files.
#pragma once
#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "governance/plan/engine_state.h"

namespace fairlead::governance {

struct ContinuousEngine::State::Search {
  State& s;
  const Class& k;
  const Queue& own;
  const std::vector<Use>& uses;
  const std::vector<Column>& contested;
  std::int64_t priority, created;

  struct Source {  // a queue that may lose jobs
    std::uint32_t queue = nothing;
    NodeId common = no_node;   // the lowest cohort of it and the newcomer; none: the newcomer's own queue
    std::optional<std::uint32_t> line = {};  // of its own queue: jobs of this line alone
    bool hierarchy = false;    // it holds what belongs to a subtree in which the newcomer would fit
    std::set<Held>::const_iterator at, end;
  };
  std::vector<Source> hierarchy, other, mine;
  std::vector<Use> in_reach;  // of all candidates, by contested column
  std::int64_t missing = 0, gained = 0;  // pods that must be gone before a place is worth looking for

  bool within_quota(NodeId node) const {
    return std::none_of(contested.begin(), contested.end(), [&](Column c) { return s.ledger.borrowing(node, c); });
  }
  const std::vector<Use>& uses_of(JobId job) const { return s.classes[s.jobs[job].what].choices[s.jobs[job].choice].uses; }
  bool uses_any(JobId job) const {
    const std::vector<Use>& theirs = uses_of(job);
    return std::any_of(theirs.begin(), theirs.end(), [&](const Use& use) { return std::find(contested.begin(), contested.end(), use.column) != contested.end(); });
  }
  bool allowed(PreemptionPolicy policy, const Held& one) const {
    switch (policy) {
      case PreemptionPolicy::Never: return false;
      case PreemptionPolicy::LowerPriority: return one.priority < priority;
      case PreemptionPolicy::LowerOrNewerEqualPriority: return one.priority < priority || (one.priority == priority && created < s.jobs[one.job].created);
      case PreemptionPolicy::Any: return true;
    }
    return false;
  }
  PreemptionPolicy policy_for(const Source& from) const { return from.common == no_node ? own.policies.within_queue : own.policies.reclaim; }
  // To the next that the policy allows and that uses what is contested.
  bool settle(Source& from) const {
    const PreemptionPolicy policy = policy_for(from);
    for (; from.at != from.end; ++from.at) {
      if (policy != PreemptionPolicy::Any && from.at->priority > priority) break;  // they are in order of priority
      if (from.line && s.classes[s.jobs[from.at->job].what].line != *from.line) continue;
      if (!s.jobs[from.at->job].shielded && allowed(policy, *from.at) && uses_any(from.at->job) && (s.untouchable.empty() || !std::binary_search(s.untouchable.begin(), s.untouchable.end(), from.at->uid))) return true;
    }
    from.at = from.end;
    return false;
  }

  void add(std::vector<Source>& to, std::uint32_t queue, NodeId common, bool by_hierarchy, std::optional<std::uint32_t> line = {}) {
    const std::set<Held>& held = s.queues[queue].held;
    Source from{queue, common, line, by_hierarchy, held.begin(), held.end()};
    if (settle(from)) to.push_back(from);
  }
  // Which of two sources of one list loses its next job first: of its own queue that of the line that has used most.
  bool loses_first(const Source& a, const Source& b) const {
    if (a.line && b.line)
      if (const int order = s.compare_lines(*a.line, *b.line); order != 0) return order > 0;
    return *a.at < *b.at;
  }
  void add_below(NodeId cohort, NodeId common, NodeId done, bool advantage) {
    for (const NodeId child : s.ledger.children(cohort)) {
      if (child == done || child == own.leaf || within_quota(child)) continue;
      if (!s.ledger.is_leaf(child)) add_below(child, common, done, advantage);
      else if (s.queue_of[child] != nothing) add(advantage ? hierarchy : other, s.queue_of[child], common, advantage);
    }
  }
  void collect() {
    if (own.policies.within_queue != PreemptionPolicy::Never) {
      if (own.lines.empty()) add(mine, s.queue_of[own.leaf], no_node, false);
      else add(mine, s.queue_of[own.leaf], no_node, false, nothing);  // those of no line
      for (const std::uint32_t line : own.lines) add(mine, s.queue_of[own.leaf], no_node, false, line);
    }
    if (!s.ledger.has_parent(own.leaf) || own.policies.reclaim == PreemptionPolicy::Never) return;
    if (s.fair) {
      for (const NodeId leaf : s.ledger.leaves(s.ledger.tree(own.leaf)))
        if (leaf != own.leaf && s.queue_of[leaf] != nothing && !within_quota(leaf)) add(other, s.queue_of[leaf], s.ledger.root(leaf), false);
      return;
    }
    std::vector<Use> rest = uses;
    bool advantage = s.ledger.holds(own.leaf, rest);
    NodeId done = own.leaf;
    for (NodeId subtree = s.ledger.parent(own.leaf); subtree != no_node; subtree = s.ledger.parent(subtree)) {
      add_below(subtree, subtree, done, advantage);
      const bool fits = s.ledger.holds(subtree, rest);
      advantage = advantage || fits;
      done = subtree;
    }
  }

  void take_out(JobId job) {
    s.ledger.remove(s.queues[s.classes[s.jobs[job].what].queue].leaf, uses_of(job));
    const EnginePlacement* place = s.place_of(job);
    if (k.places.empty() || place == nullptr) return;
    s.sites.change(Sites::Which::Now, *place, false);
    gained = plus(gained, s.pods_more(*place, k));
  }
  void put_back(JobId job) {
    s.ledger.add(s.queues[s.classes[s.jobs[job].what].queue].leaf, uses_of(job));
    const EnginePlacement* place = s.place_of(job);
    if (k.places.empty() || place == nullptr) return;
    s.sites.change(Sites::Which::Now, *place, true);
    missing = gained = 0;
  }
  bool placed() {
    if (k.places.empty()) return true;
    if (gained < missing) return false;
    NoPlace why;
    if (s.find_place(k, From::Now, &why)) return true;
    missing = why.missing, gained = 0;
    return false;
  }
  bool room(bool may_borrow) {
    for (const Use& use : uses) {
      if (!may_borrow && s.ledger.borrowing(own.leaf, use.column, use.amount)) return false;
      if (use.amount > std::max<Amount>(0, s.ledger.available(own.leaf, use.column))) return false;
    }
    return placed();
  }
  VictimReason reason_of(const Source& from, const Held& one) const {
    if (from.common == no_node) return VictimReason::InClusterQueue;
    return from.hierarchy || !while_borrowing(one) ? VictimReason::InCohortReclamation : VictimReason::InCohortReclaimWhileBorrowing;
  }
  bool while_borrowing(const Held& one) const {
    return own.policies.borrow_within_cohort && one.priority < priority && !(own.policies.borrow_threshold && one.priority > *own.policies.borrow_threshold);
  }

  bool classical();
  bool fair();
  bool run();  // State::victims; false: nobody would be enough, and in_reach tells what all candidates have

 private:
  bool take(std::vector<Source> list, bool may_borrow);
  void give_back(bool may_borrow);
};

}  // namespace fairlead::governance
