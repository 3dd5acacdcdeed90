// SPDX-License-Identifier: Apache-2.0
// Whom to pre-empt in the continuous mode, and on which flavors: the classical rules of victims_classical.cpp over ordered sets of what each queue runs, merged as far as victims are needed.
#include <algorithm>

#include "governance/plan/engine_search.h"

namespace fairlead::governance {

// One list in order, until there is room.
bool ContinuousEngine::State::Search::take(std::vector<Source> list, bool may_borrow) {
  const auto later_first = [this](const Source& a, const Source& b) { return loses_first(b, a); };
  std::make_heap(list.begin(), list.end(), later_first);
  while (!list.empty()) {
    std::pop_heap(list.begin(), list.end(), later_first);
    Source& from = list.back();
    const Held one = *from.at;
    bool drop = false, skip = false;
    if (from.common != no_node) {
      for (NodeId node = s.queues[from.queue].leaf; node != from.common && !drop; node = s.ledger.parent(node)) drop = within_quota(node);  // it borrows no more
      skip = may_borrow && !from.hierarchy && !while_borrowing(one);
    }
    if (!drop && !skip) {
      take_out(one.job);
      s.victims.emplace_back(one.job, reason_of(from, one));
      if (room(may_borrow)) return true;
    }
    ++from.at;
    if (drop || !settle(from)) list.pop_back();
    else std::push_heap(list.begin(), list.end(), later_first);
  }
  return false;
}

void ContinuousEngine::State::Search::give_back(bool may_borrow) {
  std::vector<std::pair<JobId, VictimReason>>& chosen_ones = s.victims;
  for (std::size_t i = chosen_ones.size() - 1; i-- > 0;) {
    put_back(chosen_ones[i].first);
    if (room(may_borrow)) {
      chosen_ones[i] = chosen_ones.back();
      chosen_ones.pop_back();
    } else {
      take_out(chosen_ones[i].first);
    }
  }
}

bool ContinuousEngine::State::Search::classical() {
  const bool forbidden = !own.policies.borrow_within_cohort;
  const bool below_nominal = std::all_of(contested.begin(), contested.end(), [&](Column c) { return s.ledger.limits(own.leaf, c).nominal > s.ledger.usage(own.leaf, c); });
  std::vector<bool> attempts{true, false};
  if ((hierarchy.empty() && other.empty()) || (forbidden && !below_nominal)) attempts = {true};
  else if (forbidden && hierarchy.empty()) attempts = {false, true};
  for (const bool may_borrow : attempts) {
    s.victims.clear();
    missing = 0, gained = 0;
    const Ledger::Trial trial(s.ledger);
    const PlacesTrial places(s.sites);
    if (!take(hierarchy, may_borrow) && !take(other, may_borrow) && !take(mine, may_borrow)) continue;
    give_back(may_borrow);
    return true;
  }
  return false;
}

bool ContinuousEngine::State::Search::run() {
  s.victims.clear();
  collect();
  if (s.fair ? fair() : classical()) return true;
  s.victims.clear();
  for (const Column c : contested) in_reach.push_back({c, 0});
  for (const auto* list : {&hierarchy, &other, &mine})
    for (Source from : *list)
      for (; from.at != from.end && settle(from); ++from.at)
        for (const Use& use : uses_of(from.at->job))
          for (Use& sum : in_reach)
            if (sum.column == use.column) sum.amount = plus(sum.amount, use.amount);
  return false;
}

int ContinuousEngine::State::level_without_victims(const Class& k, std::uint16_t choice) {
  const Ledger::Trial trial(ledger);
  for (const auto& [victim, reason] : victims) ledger.remove(queues[classes[jobs[victim].what].queue].leaf, classes[jobs[victim].what].choices[jobs[victim].choice].uses);
  int level = 0;
  for (const Use& use : k.choices[choice].uses) level = std::max(level, ledger.borrow_level(queues[k.queue].leaf, use.column, use.amount).height);
  return level;
}

// Of each part the first flavor with room, else the first for which victims may be sought; of a class of one part the one of those whose victims are all of other queues, then the one that borrows least. Sought: where the queue's own quota, or a subtree's, is enough, or it may pre-empt while it borrows.
bool ContinuousEngine::State::place_with_victims(Class& k, const Entry* head, std::size_t at, std::vector<Column>& contested, std::uint16_t& choice) {
  const Queue& queue = queues[k.queue];
  if (at == k.parts.size()) {
    choice = choice_of(k, chosen);
    if (in_order && contested.empty() && placed(k)) {
      victims.clear();
      return true;
    }
    if ((contested.empty() && k.places.empty()) || ++tried > 16) return false;
    std::vector<Column> of_all = contested;
    if (!k.places.empty()) {
      if (!find_place(k, From::Empty, nullptr)) return false;  // whoever stops
      // Room is there, but in pieces: whoever uses these flavors may have to go.
      for (const PlaceSet& set : k.places)
        for (std::size_t a = 0; a < k.asks.size(); ++a) {
          if (k.asks[a].pod_set != set.pod_set || chosen[a] == nothing) continue;
          const Column column = ledger.column(queue.leaf, names[chosen[a]], names[k.asks[a].resource]);
          if (column != no_column && std::find(of_all.begin(), of_all.end(), column) == of_all.end()) of_all.push_back(column);
        }
    }
    Search search{*this, k, queue, k.choices[choice].uses, of_all, k.spec.priority, head == nullptr ? 0 : head->created, {}, {}, {}, {}};
    if (search.run()) {
      const bool compares = k.parts.size() == 1 && k.options.size() > 1 && !in_order;
      if (!compares && most_level == any_level) return true;
      VictimsFound way{.choice = choice, .within_queue = std::ranges::any_of(victims, [](const auto& one) { return one.second == VictimReason::InClusterQueue; }), .level = level_without_victims(k, choice), .victims = {}};
      if (way.level <= most_level) {
        if (!compares || (!way.within_queue && way.level == 0)) return true;  // none is better
        if (!best_victims || way.before(*best_victims)) {
          way.victims = victims;
          best_victims = std::move(way);
        }
      }
      victims.clear();
      return false;
    }
    for (NoPlace& one : no_place) one.missing = 1, one.of = nothing;  // others could go, and that is not enough yet
    for (Shortage& one : short_of)  // with victims as they are, so much less must be given back, anywhere in the tree
      for (const Use& sum : search.in_reach)
        if (sum.column == one.column && sum.amount > 0) one = {roots[ledger.tree(queue.leaf)], one.column, std::max<Amount>(1, minus(one.missing, sum.amount))};
    return false;
  }
  const Part& part = k.parts[at];
  for (const bool with_room : {true, false}) {
    if (in_order && !with_room) break;
    for (std::uint32_t o = part.first_option; o < part.first_option + part.options; ++o) {
      const Option& option = k.options[o];
      if (part.same_as != nothing && chosen[k.order[k.parts[part.same_as].first_ask]] != option.flavor) continue;
      const std::size_t held = taken.size(), before = contested.size();
      bool may = true;
      for (std::uint32_t u = option.first_use; u < option.first_use + option.uses && may; ++u) {
        const Column column = k.uses[u].column;
        Amount want = k.uses[u].amount;
        for (const Use& use : taken)
          if (use.column == column) want = plus(want, use.amount);
        may = !own_only || !ledger.borrowing(queue.leaf, column, want);
        if (!may) continue;
        if (want <= ledger.available(queue.leaf, column)) {
          may = most_level == any_level || ledger.borrow_level(queue.leaf, column, want).height <= most_level;
          continue;
        }
        may = want <= ledger.potential(queue.leaf, column) &&
              (ledger.limits(queue.leaf, column).nominal >= want || queue.policies.borrow_within_cohort || (fair && queue.policies.reclaim != PreemptionPolicy::Never) || ledger.borrow_level(queue.leaf, column, want).below_root);
        if (std::find(contested.begin(), contested.end(), column) == contested.end()) contested.push_back(column);
      }
      bool found = false;
      if (may && (in_order || (contested.size() == before) == with_room)) {
        for (std::uint32_t i = 0; i < part.asks; ++i) chosen[k.order[part.first_ask + i]] = option.flavor;
        taken.insert(taken.end(), k.uses.begin() + option.first_use, k.uses.begin() + option.first_use + option.uses);
        found = place_with_victims(k, head, at + 1, contested, choice);
      }
      taken.resize(held);
      if (found) return true;
      contested.resize(before);
    }
  }
  return false;
}

bool ContinuousEngine::State::look_for_victims(ClassId c, const Entry* head, std::uint16_t& choice, int& level) {
  Class& k = classes[c];
  const Queue& queue = queues[k.queue];
  if (k.never.rule != EngineWait::Rule::None) return false;
  if (queue.policies.within_queue == PreemptionPolicy::Never && queue.policies.reclaim == PreemptionPolicy::Never) return false;
  std::vector<Column> contested;
  taken.clear();
  chosen.assign(k.asks.size(), nothing);
  tried = 0;
  untouchable.clear();
  if (head != nullptr) stronger_than(head->uid);
  best_victims.reset();
  if (!place_with_victims(k, head, 0, contested, choice)) {
    if (!best_victims) return false;
    choice = best_victims->choice;
    victims = std::move(best_victims->victims);
  }
  const Ledger::Trial trial(ledger), trial_of_claims(claimed);
  const PlacesTrial trial_of_places(sites);
  for (const auto& [victim, reason] : victims) {
    const Class& theirs = classes[jobs[victim].what];
    const std::vector<Use>& uses = theirs.choices[jobs[victim].choice].uses;
    let(queues[theirs.queue].leaf, uses, place_of(victim));
    for (Shortage& one : short_of)  // should what is kept for others forbid it
      for (const Use& use : uses)
        if (!claims.empty() && use.column == one.column) one = {roots[ledger.tree(queue.leaf)], one.column, std::max<Amount>(1, minus(one.missing, use.amount))};
  }
  if (!claims.empty())
    for (const Use& use : k.choices[choice].uses)
      if (use.amount > std::max<Amount>(0, claimed.available(queue.leaf, use.column))) {
        victims.clear();
        return false;
      }
  found_place.reset();
  if (!k.places.empty()) {
    for (std::size_t a = 0; a < k.asks.size(); ++a) chosen[a] = k.choices[choice].flavors[a];
    NoPlace why;
    if (found_place = find_place(k, From::Seen, &why); !found_place) {  // what is kept for others forbids it
      why.missing = 1, why.of = nothing;
      no_place.push_back(std::move(why));
      victims.clear();
      return false;
    }
  }
  level = 0;
  for (const Use& use : k.choices[choice].uses) level = std::max(level, ledger.borrow_level(queue.leaf, use.column, use.amount).height);
  return true;
}

bool ContinuousEngine::State::fits_in_use(const Queue& queue, const std::vector<Use>& uses, const EnginePlacement* place) {
  if (place != nullptr && !sites.fits_in_use(*place)) return false;
  return std::all_of(uses.begin(), uses.end(), [&](const Use& use) { return use.amount <= std::max<Amount>(0, in_use.available(queue.leaf, use.column)); });
}

// Those that were stopped have left: who waited for it starts, in the order of the promises. All of them fit together once all have stopped.
void ContinuousEngine::State::keep_promises(std::vector<EngineDecision>& out) {
  stopped_some = false;
  std::erase_if(promised, [&](JobId id) {
    Job& job = jobs[id];
    Class& k = classes[job.what];
    if (k.queue == nothing) return false;
    Queue& queue = queues[k.queue];
    const std::vector<Use>& uses = k.choices[job.choice].uses;
    const EnginePlacement* place = place_of(id);
    if (!fits_in_use(queue, uses, place)) return false;
    occupy(queue.leaf, uses, place);
    job.stage = Stage::Running;
    job.shielded = shields;
    ++running;
    queue.held.insert(held_of(id));
    if (!shields) {  // it may be pre-empted from now on: for those that wait it is as if that were given back
      freed(queue.leaf, uses);
      if (place != nullptr) freed_place(*place);
    }
    out.push_back({.kind = EngineDecision::Kind::Admitted, .job = id, .kind_of_job = job.what});
    return true;
  });
}

}  // namespace fairlead::governance
