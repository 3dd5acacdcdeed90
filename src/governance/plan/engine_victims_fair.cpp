// SPDX-License-Identifier: Apache-2.0
// Pre-emption by share in the continuous mode: the rules of victims_fair.cpp. Again and again the child that has borrowed most loses its first candidate, if the rule allows it; the final set is checked
// against the rule when victims are given back, so that none of them could come back at once.
#include <algorithm>

#include "governance/plan/engine_search.h"

namespace fairlead::governance {
namespace {

bool final_rule(const Share& newcomer, const Share& target_after) { return compare(newcomer, target_after) <= 0; }
bool initial_rule(const Share& newcomer, const Share& target_now) { return compare(newcomer, target_now) < 0; }

}  // namespace

struct ContinuousEngine::State::FairSearch {
  Search& search;
  State& s;
  struct List {
    std::uint32_t queue = nothing;
    std::vector<Held> jobs;      // the second rule's
    std::size_t next = 0;
    Search::Source* source = nullptr;  // the first rule's
  };
  std::vector<List> lists;
  std::vector<Held> again;  // failed the first rule

  NodeId leaf_of(JobId job) const { return s.queues[s.classes[s.jobs[job].what].queue].leaf; }
  bool pruned(NodeId node) const { return s.pruned_in[node] == s.searches; }
  bool on_path(NodeId node) const { return s.path_in[node] == s.searches; }
  void prune(NodeId node) { s.pruned_in[node] = s.searches; }
  List* list_of(NodeId leaf) { return s.source_in[leaf] == s.searches ? &lists[s.source_at[leaf]] : nullptr; }
  bool has(NodeId leaf) {
    const List* list = list_of(leaf);
    return list != nullptr && (list->source != nullptr ? list->source->at != list->source->end : list->next < list->jobs.size());
  }
  const Held& front(NodeId leaf) {
    const List& list = *list_of(leaf);
    return list.source != nullptr ? *list.source->at : list.jobs[list.next];
  }
  Held pop(NodeId leaf) {
    List& list = *list_of(leaf);
    const Held one = front(leaf);
    if (list.source == nullptr) ++list.next;
    else ++list.source->at, (void)search.settle(*list.source);
    return one;
  }
  void begin() {
    ++s.searches;
    lists.clear();
    for (NodeId node = search.own.leaf; node != no_node; node = s.ledger.parent(node)) s.path_in[node] = s.searches;
  }
  List& put(NodeId leaf, std::uint32_t queue) {
    if (List* list = list_of(leaf)) return *list;
    s.source_in[leaf] = s.searches;
    s.source_at[leaf] = static_cast<std::uint32_t>(lists.size());
    return lists.emplace_back(List{.queue = queue, .jobs = {}, .next = 0, .source = nullptr});
  }

  // Its own queue's, of several lines.
  std::vector<Held> own_in_order() {
    std::vector<Held> out;
    std::vector<Search::Source> left = search.mine;
    while (!left.empty()) {
      const auto first = std::min_element(left.begin(), left.end(), [this](const Search::Source& a, const Search::Source& b) { return search.loses_first(a, b); });
      out.push_back(*first->at);
      ++first->at;
      if (!search.settle(*first)) left.erase(first);
    }
    return out;
  }

  // As the ledger stands; take() changes that of one path.
  const Share& share_of(NodeId node) {
    if (s.share_in[node] == s.searches) return s.share_at[node];
    s.share_in[node] = s.searches;
    return s.share_at[node] = s.ledger.share(node);
  }

  // Whose turn it is to lose one; no_node: nobody's.
  NodeId next() {
    const NodeId own = search.own.leaf;
    if (!s.ledger.has_parent(own)) return !pruned(own) && has(own) ? own : no_node;
    const NodeId root = s.ledger.root(own);
    while (!pruned(root))
      if (const NodeId leaf = descend(root); leaf != no_node) return leaf;
    return no_node;
  }
  NodeId descend(NodeId cohort) {
    NodeId best_leaf = no_node, best_cohort = no_node;
    Share leaf_share = no_share(), cohort_share = no_share();
    for (const NodeId child : s.ledger.children(cohort)) {
      if (pruned(child)) continue;
      if (s.ledger.is_leaf(child) && !has(child)) {
        prune(child);
        continue;
      }
      const Share& share = share_of(child);
      if (!share.borrowing && !on_path(child)) {
        prune(child);
      } else if (!s.ledger.is_leaf(child)) {
        if (compare(share, cohort_share) >= 0) cohort_share = share, best_cohort = child;
      } else {
        const int order = compare(share, leaf_share);
        if (order > 0 || (order == 0 && goes_first(child, best_leaf))) leaf_share = share, best_leaf = child;
      }
    }
    if (best_leaf == no_node && best_cohort == no_node) {
      prune(cohort);
      return no_node;
    }
    return compare(cohort_share, leaf_share) >= 0 ? descend(best_cohort) : best_leaf;
  }
  bool goes_first(NodeId a, NodeId b) {
    if ((a == search.own.leaf) != (b == search.own.leaf)) return b == search.own.leaf;
    return front(a) < front(b);
  }

  // The two nodes below the lowest cohort that holds both.
  std::pair<NodeId, NodeId> below_common(NodeId target) const {
    NodeId there = target;
    while (s.path_in[s.ledger.parent(there)] != s.searches) there = s.ledger.parent(there);
    NodeId here = search.own.leaf;
    while (s.ledger.parent(here) != s.ledger.parent(there)) here = s.ledger.parent(here);
    return {here, there};
  }
  // The newcomer's use stands in the ledger while shares are compared; room is asked for without it.
  bool fits() {
    const Ledger::Trial without(s.ledger);
    s.ledger.remove(search.own.leaf, search.uses);
    return search.room(true);
  }
  bool take(const Held& one, VictimReason reason) {
    const NodeId leaf = leaf_of(one.job);
    search.take_out(one.job);
    for (NodeId node = leaf; node != no_node; node = s.ledger.parent(node)) s.share_in[node] = 0;
    s.victims.emplace_back(one.job, reason);
    return fits();
  }
  Share share_after(NodeId node, JobId gone) {
    const Ledger::Trial trial(s.ledger);
    s.ledger.remove(leaf_of(gone), search.uses_of(gone));
    return s.ledger.share(node);
  }

  bool first_rule(bool by_final_share) {
    begin();
    for (Search::Source& source : search.other) put(s.queues[source.queue].leaf, source.queue).source = &source;
    if (search.mine.size() == 1) put(search.own.leaf, search.mine.front().queue).source = &search.mine.front();
    else if (!search.mine.empty()) put(search.own.leaf, search.mine.front().queue).jobs = own_in_order();
    const NodeId own = search.own.leaf;
    const bool within_nominal = search.within_quota(own);
    for (NodeId leaf = next(); leaf != no_node; leaf = next()) {
      if (leaf == own || within_nominal) {
        if (take(pop(leaf), leaf == own ? VictimReason::InClusterQueue : VictimReason::InCohortReclamation)) return true;
        continue;
      }
      const auto [here, there] = below_common(leaf);
      const Share newcomer = s.ledger.share(here), now = s.ledger.share(there);
      const bool hopeless = compare(newcomer, now) > 0;  // whoever goes, what they borrow only becomes less
      while (has(leaf)) {
        const Held one = pop(leaf);
        if (hopeless || !(by_final_share ? final_rule(newcomer, share_after(there, one.job)) : initial_rule(newcomer, now))) {
          again.push_back(one);
          continue;
        }
        if (take(one, VictimReason::InCohortFairSharing)) return true;
        break;  // shares have moved: perhaps another queue's turn
      }
    }
    return false;
  }

  bool second_rule() {
    begin();
    for (const Held& one : again) put(leaf_of(one.job), s.classes[s.jobs[one.job].what].queue).jobs.push_back(one);
    for (NodeId leaf = next(); leaf != no_node; leaf = next()) {
      const auto [here, there] = below_common(leaf);
      const bool passed = initial_rule(s.ledger.share(here), s.ledger.share(there));
      const Held one = pop(leaf);
      if (passed && take(one, VictimReason::InCohortFairSharing)) return true;
      prune(leaf);
    }
    return false;
  }

  // Would each still be allowed if these alone were taken, in this order? All of them are out of the ledger, the newcomer is not in it.
  bool legal(const std::vector<std::pair<JobId, VictimReason>>& chosen_ones) {
    const Ledger::Trial trial(s.ledger);
    for (const auto& [job, reason] : chosen_ones) s.ledger.add(leaf_of(job), search.uses_of(job));
    s.ledger.add(search.own.leaf, search.uses);
    for (const auto& [job, reason] : chosen_ones) {
      if (reason == VictimReason::InCohortFairSharing) {
        const auto [here, there] = below_common(leaf_of(job));
        const Share newcomer = s.ledger.share(here);
        if (!(s.final_share && final_rule(newcomer, share_after(there, job))) && !(s.initial_share && initial_rule(newcomer, s.ledger.share(there)))) return false;
      }
      s.ledger.remove(leaf_of(job), search.uses_of(job));
    }
    return true;
  }
  void give_back_legally() {
    auto chosen_ones = s.victims;
    for (std::size_t i = chosen_ones.size(); i-- > 0;) {
      if (i + 1 == chosen_ones.size()) continue;
      auto fewer = chosen_ones;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      const JobId job = chosen_ones[i].first;
      search.put_back(job);
      if (search.room(true) && legal(fewer)) chosen_ones = std::move(fewer);
      else search.take_out(job);
    }
    s.victims = std::move(chosen_ones);
  }
};

bool ContinuousEngine::State::Search::fair() {
  if (other.empty() && mine.empty()) return false;
  const Ledger::Trial trial(s.ledger);
  const PlacesTrial places(s.sites);
  missing = 0, gained = 0;
  // Its cursors are used up; what is in reach is counted from their beginning.
  const std::vector<Source> others = other, own_ones = mine;
  FairSearch search{*this, s, {}, {}};
  s.ledger.add(own.leaf, uses);
  bool found = search.first_rule(s.final_share && !s.initial_first);
  if (!found && s.final_share && s.initial_share) found = search.second_rule();
  s.ledger.remove(own.leaf, uses);
  if (found) search.give_back_legally();
  other = others, mine = own_ones;
  return found;
}

}  // namespace fairlead::governance
