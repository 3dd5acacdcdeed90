// SPDX-License-Identifier: Apache-2.0
// What is kept for jobs that have waited long (docs/design/037-reservation.md): claims on room that is not there yet. They stand in a ledger of their own, where room is looked for; who has how much, who borrows and who may be pre-empted
// is asked of the ledger without them.
#include <algorithm>
#include <utility>

#include "governance/plan/engine_state.h"

namespace fairlead::governance {

void ContinuousEngine::State::hold(NodeId leaf, const std::vector<Use>& uses) {
  ledger.add(leaf, uses);
  if (!claims.empty()) claimed.add(leaf, uses);
}

void ContinuousEngine::State::let(NodeId leaf, const std::vector<Use>& uses) {
  ledger.remove(leaf, uses);
  if (!claims.empty()) claimed.remove(leaf, uses);
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
  std::vector<const Claim*> others, own;  // that it does not go before: of other queues, of its own
  for (const Claim& claim : claims) {
    if (ledger.tree(queues[claim.queue].leaf) != tree) continue;
    if (goes_before(c, head, claim)) claimed.remove(queues[claim.queue].leaf, claim.uses);
    else (claim.queue == q ? own : others).push_back(&claim);
  }
  auto found = find_any(c);
  if (found || (others.empty() && own.empty())) return found;
  const JobId by = (own.empty() ? others : own).front()->job;
  std::vector<Shortage> missed = short_of;
  EngineWait told = classes[c].wait;
  const auto forget = [&](const std::vector<const Claim*>& list) {
    for (const Claim* claim : list) claimed.remove(queues[claim->queue].leaf, claim->uses);
  };
  forget(others);
  if (!others.empty()) {  // what is a queue's own is kept for nobody else
    own_only = true;
    found = find_any(c);
    own_only = false;
    if (found) return found;
    missed.insert(missed.end(), short_of.begin(), short_of.end());
  }
  forget(own);
  if (told.rule == EngineWait::Rule::Short && find_any(c)) told = {.rule = EngineWait::Rule::Kept, .by = by, .node = told.node, .column = told.column, .missing = told.missing, .resource = {}};
  victims.clear();
  classes[c].wait = told;
  short_of = std::move(missed);
  return std::nullopt;
}

bool ContinuousEngine::State::keep_for(JobId id) {
  if (jobs[id].stage != Stage::Waiting) return false;
  if (std::any_of(claims.begin(), claims.end(), [&](const Claim& one) { return one.job == id; })) return true;
  const ClassId c = jobs[id].what;
  if (classes[c].queue == nothing || classes[c].never.rule != EngineWait::Rule::None || queues[classes[c].queue].stopped) return false;
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
    if (best == nullptr) return false;
    for (std::uint32_t i = 0; i < part.asks; ++i) chosen[k.order[part.first_ask + i]] = best->flavor;
    taken.insert(taken.end(), k.uses.begin() + best->first_use, k.uses.begin() + best->first_use + best->uses);
  }
  const std::uint16_t choice = choice_of(k, chosen);
  if (claims.empty()) claimed = ledger;
  claims.push_back({.job = id, .queue = k.queue, .priority = k.spec.priority, .entry = {jobs[id].created, jobs[id].uid, id, jobs[id].generation}, .uses = k.choices[choice].uses});
  claimed.add(queue.leaf, k.choices[choice].uses);
  ++versions[ledger.tree(queue.leaf)];
  return true;
}

void ContinuousEngine::State::drop_claim(JobId id) {
  const auto at = std::find_if(claims.begin(), claims.end(), [&](const Claim& one) { return one.job == id; });
  if (at == claims.end()) return;
  const Claim claim = std::move(*at);
  claims.erase(at);
  const NodeId leaf = queues[claim.queue].leaf;
  if (claims.empty()) claimed = {};
  else claimed.remove(leaf, claim.uses);
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
    if (k.parked ? k.wait.rule != EngineWait::Rule::Short && k.wait.rule != EngineWait::Rule::Kept : !unseen || k.never.rule != EngineWait::Rule::None) continue;
    if (!drop_stale(k)) continue;
    if (best[k.queue] == nothing || class_first(c, best[k.queue])) best[k.queue] = c;
  }
  std::vector<JobId> out;
  for (const ClassId c : best)
    if (c != nothing) out.push_back(classes[c].waiting.front().job);
  return out;
}

}  // namespace fairlead::governance
