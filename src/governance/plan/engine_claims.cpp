// SPDX-License-Identifier: Apache-2.0
// What is kept for jobs that have waited long (docs/design/037-reservation.md): claims on room that is not there yet. They stand in a ledger of their own, where room is looked for; who has how much, who borrows and who may be pre-empted
// is asked of the ledger without them.
#include <algorithm>
#include <utility>

#include "governance/plan/engine_state.h"

namespace fairlead::governance {

void ContinuousEngine::State::hold(NodeId leaf, const std::vector<Use>& uses, const EnginePlacement* place) {
  if (leaf != no_node) {
    ledger.add(leaf, uses);
    if (!claims.empty()) claimed.add(leaf, uses);
  }
  if (place == nullptr) return;
  sites.change(Sites::Which::Now, *place, true);
  sites.change(Sites::Which::Claimed, *place, true);
}

void ContinuousEngine::State::let(NodeId leaf, const std::vector<Use>& uses, const EnginePlacement* place) {
  if (leaf != no_node) {
    ledger.remove(leaf, uses);
    if (!claims.empty()) claimed.remove(leaf, uses);
  }
  if (place == nullptr) return;
  sites.change(Sites::Which::Now, *place, false);
  sites.change(Sites::Which::Claimed, *place, false);
}

void ContinuousEngine::State::occupy(NodeId leaf, const std::vector<Use>& uses, const EnginePlacement* place) {
  if (leaf != no_node) in_use.add(leaf, uses);
  if (place != nullptr) sites.change(Sites::Which::InUse, *place, true);
}

void ContinuousEngine::State::vacate(NodeId leaf, const std::vector<Use>& uses, const EnginePlacement* place) {
  if (leaf != no_node) in_use.remove(leaf, uses);
  if (place != nullptr) sites.change(Sites::Which::InUse, *place, false);
}

bool ContinuousEngine::State::goes_before(ClassId c, const Entry* head, const Claim& claim) const {
  const std::int64_t priority = classes[c].spec.priority;
  if (priority != claim.priority) return priority > claim.priority || (head != nullptr && head->job == claim.job);
  if (head == nullptr) return false;
  if (head->job == claim.job || (classes[c].queue == claim.queue && later(claim.entry, *head))) return true;
  for (const Claim& one : claims) {
    if (&one == &claim) break;
    if (one.job == head->job) return true;
  }
  return false;
}

std::optional<ContinuousEngine::State::Found> ContinuousEngine::State::find(ClassId c) {
  const std::uint32_t q = classes[c].queue;
  if (claims.empty() || q == nothing) return find_any(c);
  const std::uint32_t tree = ledger.tree(queues[q].leaf);
  const Entry first = classes[c].waiting.empty() ? Entry{} : classes[c].waiting.front();
  const Entry* head = classes[c].waiting.empty() ? nullptr : &first;
  const Ledger::Trial trial(claimed);
  const PlacesTrial places(sites);
  const auto forget_one = [&](const Claim& claim) {
    claimed.remove(queues[claim.queue].leaf, claim.uses);
    if (claim.place) sites.change(Sites::Which::Claimed, *claim.place, false);
  };
  std::vector<const Claim*> others, own;  // that it does not go before: of other queues, of its own
  for (const Claim& claim : claims) {
    if (ledger.tree(queues[claim.queue].leaf) != tree && !(claim.place && !classes[c].places.empty())) continue;
    if (goes_before(c, head, claim)) forget_one(claim);
    else (claim.queue == q ? own : others).push_back(&claim);
  }
  auto found = find_any(c);
  if (found || (others.empty() && own.empty())) return found;
  const JobId by = (own.empty() ? others : own).front()->job;
  std::vector<Shortage> missed = short_of;
  std::vector<NoPlace> missed_places = no_place;
  EngineWait told = classes[c].wait;
  for (const Claim* claim : others) claimed.remove(queues[claim->queue].leaf, claim->uses);
  if (!others.empty()) {  // a quota that is a queue's own is kept for nobody else; places are nobody's own
    own_only = true;
    found = find_any(c);
    own_only = false;
    if (found) return found;
    missed.insert(missed.end(), short_of.begin(), short_of.end());
    missed_places.insert(missed_places.end(), no_place.begin(), no_place.end());
  }
  for (const Claim* claim : others)
    if (claim->place) sites.change(Sites::Which::Claimed, *claim->place, false);
  for (const Claim* claim : own) forget_one(*claim);
  if ((told.rule == EngineWait::Rule::Short || told.rule == EngineWait::Rule::NoPlace) && find_any(c)) told = {.rule = EngineWait::Rule::Kept, .by = by, .node = told.node, .column = told.column, .missing = told.missing, .resource = {}, .detail = {}};
  victims.clear();
  classes[c].wait = told;
  short_of = std::move(missed);
  no_place = std::move(missed_places);
  for (NoPlace& one : no_place) one.missing = 1, one.of = nothing;
  return std::nullopt;
}

// What there is to keep for it; none: it could never have it.
std::optional<ContinuousEngine::State::Claim> ContinuousEngine::State::claim_of(JobId id) {
  const ClassId c = jobs[id].what;
  if (classes[c].queue == nothing || classes[c].never.rule != EngineWait::Rule::None || queues[classes[c].queue].stopped) return std::nullopt;
  ClassId shape = c;
  if (classes[c].spec.can_be_cut()) {
    std::vector<std::int32_t> least;
    for (const EnginePodSet& pods : classes[c].spec.pod_sets) least.push_back(pods.least > 0 ? pods.least : pods.count);
    shape = cut(c, least);
  }
  Class& k = classes[shape];
  const Queue& queue = queues[k.queue];
  // Of each part the flavor that misses least.
  chosen.assign(k.asks.size(), nothing);
  taken.clear();
  for (const Part& part : k.parts) {
    const Option* best = nullptr;
    Amount least = 0;
    for (std::uint32_t o = part.first_option; o < part.first_option + part.options; ++o) {
      Amount missing = 0;
      bool possible = true;
      for (std::uint32_t u = k.options[o].first_use; u < k.options[o].first_use + k.options[o].uses && possible; ++u) {
        Amount want = k.uses[u].amount;
        for (const Use& use : taken)
          if (use.column == k.uses[u].column) want = plus(want, use.amount);
        possible = want <= ledger.potential(queue.leaf, k.uses[u].column);
        missing = plus(missing, std::max<Amount>(0, minus(want, seen().available(queue.leaf, k.uses[u].column))));
      }
      if (possible && (best == nullptr || missing < least)) best = &k.options[o], least = missing;
    }
    if (best == nullptr) return std::nullopt;
    for (std::uint32_t i = 0; i < part.asks; ++i) chosen[k.order[part.first_ask + i]] = best->flavor;
    taken.insert(taken.end(), k.uses.begin() + best->first_use, k.uses.begin() + best->first_use + best->uses);
  }
  const std::uint16_t choice = choice_of(k, chosen);
  // Where it would be if nobody ran: those places are given to nobody behind it from now on.
  std::shared_ptr<const EnginePlacement> place;
  if (!k.places.empty() && !(place = find_place(k, From::Empty, nullptr))) return std::nullopt;
  return Claim{.job = id, .queue = k.queue, .priority = k.spec.priority, .entry = {jobs[id].created, jobs[id].uid, id, jobs[id].generation}, .uses = k.choices[choice].uses, .place = place};
}

bool ContinuousEngine::State::keep_for(JobId id) {
  if (jobs[id].stage != Stage::Waiting) return false;
  if (std::any_of(claims.begin(), claims.end(), [&](const Claim& one) { return one.job == id; })) return true;
  auto claim = claim_of(id);
  if (!claim) return false;
  if (claims.empty()) {
    claimed = ledger;
    sites.claim_begins();
  }
  const NodeId leaf = queues[claim->queue].leaf;
  claimed.add(leaf, claim->uses);
  if (claim->place) sites.change(Sites::Which::Claimed, *claim->place, true);
  claims.push_back(std::move(*claim));
  ++versions[ledger.tree(leaf)];
  return true;
}

void ContinuousEngine::State::drop_claim(JobId id) {
  const auto at = std::find_if(claims.begin(), claims.end(), [&](const Claim& one) { return one.job == id; });
  if (at == claims.end()) return;
  const Claim claim = std::move(*at);
  claims.erase(at);
  const NodeId leaf = queues[claim.queue].leaf;
  if (claims.empty()) {
    claimed = {};
    sites.claim_none();
  } else {
    claimed.remove(leaf, claim.uses);
    if (claim.place) sites.change(Sites::Which::Claimed, *claim.place, false);
  }
  if (claim.place) freed_place(*claim.place);
  ++versions[ledger.tree(leaf)];
  mark(claim.queue);
  freed(leaf, claim.uses);
  for (ClassId c = 0; c < classes.size(); ++c)  // what they are told is over
    if (classes[c].parked && classes[c].wait.rule == EngineWait::Rule::Kept) wake(c);
}

std::vector<JobId> ContinuousEngine::State::firsts(bool unseen) {
  std::vector<ClassId> best(queues.size(), nothing);
  for (ClassId c = 0; c < classes.size(); ++c) {
    Class& k = classes[c];
    if (k.live == 0 || k.queue == nothing || queues[k.queue].stopped) continue;
    if (k.parked ? k.wait.rule != EngineWait::Rule::Short && k.wait.rule != EngineWait::Rule::Kept && k.wait.rule != EngineWait::Rule::NoPlace : !unseen || k.never.rule != EngineWait::Rule::None) continue;
    if (!drop_stale(k)) continue;
    const std::uint32_t queue = k.queue;
    if (best[queue] != nothing && !class_first(c, best[queue])) continue;
    if (!k.places.empty() && !claim_of(k.waiting.front().job)) continue;  // on no node that is there. May add classes.
    best[queue] = c;
  }
  std::vector<JobId> out;
  for (const ClassId c : best)
    if (c != nothing) out.push_back(classes[c].waiting.front().job);
  return out;
}

}  // namespace fairlead::governance
