// SPDX-License-Identifier: Apache-2.0
// Until nothing fits: each queue nominates its first job that fits, the first nominee in order is admitted, its queue nominates the next.
#include <algorithm>
#include <tuple>
#include <utility>

#include "base/result.h"
#include "governance/plan/engine_state.h"

namespace fairlead::governance {

namespace {

constexpr int most_ways = 1'000;  // to give pod sets flavors, of one look

std::vector<std::uint32_t> sorted(std::vector<std::uint32_t> list) {
  std::sort(list.begin(), list.end());
  return list;
}

}  // namespace

bool ContinuousEngine::State::drop_stale(Class& k) {
  const auto live = [&](const Entry& entry) { return jobs[entry.job].generation == entry.generation && jobs[entry.job].stage == Stage::Waiting; };
  if (k.waiting.size() > 2 * std::size_t{k.live} + 16) {
    std::erase_if(k.waiting, [&](const Entry& entry) { return !live(entry); });
    std::make_heap(k.waiting.begin(), k.waiting.end(), later);
  }
  while (!k.waiting.empty() && !live(k.waiting.front())) {
    std::pop_heap(k.waiting.begin(), k.waiting.end(), later);
    k.waiting.pop_back();
  }
  return !k.waiting.empty();
}

// The options of one part that have room beside what earlier parts take, in the order in which they are wanted: as the queue lists them, or by how far they borrow. The shortages of the others are noted.
void ContinuousEngine::State::options_of(const Class& k, const Part& part) {
  const Queue& queue = queues[k.queue];
  const std::size_t begin = fitting.size();
  for (std::uint32_t o = part.first_option; o < part.first_option + part.options; ++o) {
    const Option& option = k.options[o];
    if (part.same_as != nothing && chosen[k.order[k.parts[part.same_as].first_ask]] != option.flavor) continue;
    bool fits = true, never = false;
    int level = 0;
    const std::size_t shortages = short_of.size();
    for (std::uint32_t u = option.first_use; u < option.first_use + option.uses && !never; ++u) {
      const Column column = k.uses[u].column;
      Amount want = k.uses[u].amount;
      for (const Use& use : taken)
        if (use.column == column) want = plus(want, use.amount);
      if (const Amount most = ledger.potential(queue.leaf, column); want > most) {
        fits = false, never = true;  // whatever is given back of the others
        short_of.resize(shortages);
        if (exceeds.rule == EngineWait::Rule::None) exceeds.rule = EngineWait::Rule::ExceedsMax, exceeds.node = queue.leaf, exceeds.column = column, exceeds.missing = minus(want, most);
      } else if (!fits) {
        continue;  // one shortage is enough to wait for
      } else if (own_only && ledger.borrowing(queue.leaf, column, want)) {
        fits = false;
        short_of.push_back({queue.leaf, column, minus(plus(ledger.usage(queue.leaf, column), want), ledger.subtree(queue.leaf, column))});
      } else if (const auto tight = seen().tight(queue.leaf, column); want > tight.available) {
        fits = false;
        short_of.push_back({tight.node, column, minus(want, tight.available), want});
      } else {
        level = std::max(level, ledger.borrow_level(queue.leaf, column, want).height);
      }
    }
    if (!fits || level > most_level) continue;
    fitting.push_back({o, level});
    if ((level == 0 || !queue.policies.next_if_borrowing) && k.parts.size() == 1 && k.places.empty()) break;  // none is wanted more
  }
  if (queue.policies.next_if_borrowing) std::stable_sort(fitting.begin() + static_cast<std::ptrdiff_t>(begin), fitting.end(), [](const Fitting& a, const Fitting& b) { return a.level < b.level; });
}

// Parts from `at` on. Where one finds no room, those before it try their next option: so whatever fits in some way fits.
bool ContinuousEngine::State::place(const Class& k, std::size_t at, int& level) {
  if (at == k.parts.size()) return placed(k);
  const Part& part = k.parts[at];
  const std::size_t begin = fitting.size(), held = taken.size();
  options_of(k, part);
  const std::size_t end = fitting.size();
  bool found = false;
  for (std::size_t f = begin; f < end && !found; ++f) {
    const Option& option = k.options[fitting[f].option];
    const int own = std::max(level, fitting[f].level);
    int whole = own;
    for (std::uint32_t i = 0; i < part.asks; ++i) chosen[k.order[part.first_ask + i]] = option.flavor;
    if (at + 1 < k.parts.size()) taken.insert(taken.end(), k.uses.begin() + option.first_use, k.uses.begin() + option.first_use + option.uses);
    found = place(k, at + 1, whole);
    taken.resize(held);
    if (!found && ++tried > most_ways) break;  // what is not found then waits
    if (!found) continue;
    level = whole;
  }
  fitting.resize(begin);
  return found;
}

// Does one job of the class fit now, and on which flavors?
bool ContinuousEngine::State::look(ClassId c, std::uint16_t& choice, int& level) {
  Class& k = classes[c];
  short_of.clear(), no_place.clear();
  found_place.reset();
  if (k.never.rule != EngineWait::Rule::None) {
    k.wait = k.never;
    return false;
  }
  taken.clear(), fitting.clear();
  chosen.assign(k.asks.size(), nothing);
  level = 0, tried = 0;
  exceeds = {};
  if (place(k, 0, level)) {
    choice = choice_of(k, chosen);
    return true;
  }
  if (!no_place.empty()) k.wait = {.rule = EngineWait::Rule::NoPlace, .resource = {}, .detail = text(no_place.front().reason)};
  if (short_of.empty()) {
    if (no_place.empty()) k.wait = exceeds;
    return false;
  }
  const auto less = [](const Shortage& a, const Shortage& b) { return std::tie(a.node, a.column, a.missing) < std::tie(b.node, b.column, b.missing); };
  const auto least = *std::min_element(short_of.begin(), short_of.end(), [](const Shortage& a, const Shortage& b) { return a.missing < b.missing; });
  if (no_place.empty()) k.wait = {.rule = EngineWait::Rule::Short, .node = least.node, .column = least.column, .missing = least.missing, .resource = {}, .detail = {}};
  if (short_of.size() > 1) {  // of one place the least counts
    std::sort(short_of.begin(), short_of.end(), less);
    short_of.erase(std::unique(short_of.begin(), short_of.end(), [](const Shortage& a, const Shortage& b) { return a.node == b.node && a.column == b.column; }), short_of.end());
  }
  return false;
}

bool ContinuousEngine::State::wait_at(NodeId node, Column column, Amount missing, ClassId c) {
  Cell& cell = cells[base[node] + column];
  const auto add = [&](std::vector<Waiter>& heap, Amount threshold, const auto& order) {
    if (heap.size() >= 64 && heap.size() == heap.capacity()) {
      std::erase_if(heap, [&](const Waiter& one) { return classes[one.what].generation != one.generation; });
      std::make_heap(heap.begin(), heap.end(), order);
    }
    heap.push_back({threshold, c, classes[c].generation});
    std::push_heap(heap.begin(), heap.end(), order);
    return true;
  };
  // What is given back is mostly taken again: where one number tells whether it fits, that is waited for, and not that so much has been given back since.
  const Class& k = classes[c];
  const Amount used = ledger.usage(node, column);
  if (k.lacks == column && exact_for[base[leaf_of(k)] + column] && used < unlimited / 4 && missing < unlimited / 4) return add(cell.exact, used - missing, needs_less_use);
  if (cell.released > unlimited / 2) return false;
  return add(cell.waiters, plus(cell.released, missing), needs_more);
}

// Most of what is given back is taken by others before it is enough for those that need much: they need not look at all.
bool ContinuousEngine::State::goes_on_waiting(ClassId c) {
  Class& k = classes[c];
  if (k.lacks == no_column || !claims.empty()) return false;
  const auto tight = ledger.tight(queues[k.queue].leaf, k.lacks);
  if (k.wants <= tight.available || !wait_at(tight.node, k.lacks, minus(k.wants, tight.available), c)) return false;
  if (!std::exchange(k.retold, true)) restless.push_back(c);
  return true;
}

// Woken together with many others, and one of them took it: what it lacked it lacks again. Then `short_of` and k.wait are as find() would leave them.
bool ContinuousEngine::State::lacks_as_before(ClassId c) {
  Class& k = classes[c];
  if (k.lacks == no_column || !claims.empty()) return false;
  const auto tight = ledger.tight(queues[k.queue].leaf, k.lacks);
  if (k.wants <= tight.available) return false;
  short_of.clear(), no_place.clear();
  short_of.push_back({tight.node, k.lacks, minus(k.wants, tight.available), k.wants});
  k.wait = {.rule = EngineWait::Rule::Short, .node = tight.node, .column = k.lacks, .missing = short_of.front().missing, .resource = {}, .detail = {}};
  return true;
}

void ContinuousEngine::State::tell_restless(std::vector<EngineDecision>& out) {
  for (const ClassId c : sorted(std::exchange(restless, {}))) {  // a fork tells them in this order, too
    Class& k = classes[c];
    k.retold = false;
    if (!k.parked || k.lacks == no_column || k.wait.rule != EngineWait::Rule::Short) continue;
    const auto tight = ledger.tight(queues[k.queue].leaf, k.lacks);
    k.wait.node = tight.node, k.wait.column = k.lacks, k.wait.missing = minus(k.wants, tight.available);
    if (k.told.rule == k.wait.rule && k.told.node == k.wait.node && k.told.column == k.wait.column && k.told.missing == k.wait.missing) continue;  // of this rule there is no more
    k.told = k.wait;
    out.push_back({EngineDecision::Kind::Waits, nothing, c});
  }
}

// It waits until somebody gives back what it misses: of each flavor the first thing that was short, below the node whose limit it was.
void ContinuousEngine::State::park(ClassId c, std::vector<EngineDecision>& out) {
  Class& k = classes[c];
  k.parked = true;
  ++k.generation;
  // With victims, or beside what is kept for others, it is not told by one number.
  const QueuePolicies& may = queues[k.queue].policies;
  const bool plain = short_of.size() == 1 && no_place.empty() && tried <= most_ways && claims.empty() && may.within_queue == PreemptionPolicy::Never && may.reclaim == PreemptionPolicy::Never;
  k.wants = plain ? short_of.front().want : 0;
  k.lacks = k.wants > 0 ? short_of.front().column : no_column;
  for (const Shortage& shortage : short_of)
    if (!wait_at(shortage.node, shortage.column, shortage.missing, c)) {  // never in practice: all look again, and it counts anew
      Cell& cell = cells[base[shortage.node] + shortage.column];
      for (const Waiter& one : std::exchange(cell.waiters, {}))
        if (classes[one.what].generation == one.generation) wake(one.what);
      cell.released = 0;
      (void)wait_at(shortage.node, shortage.column, shortage.missing, c);
    }
  for (const NoPlace& one : no_place) {
    if (one.site >= sites.all.size()) continue;  // its flavors never give it one
    std::vector<PlaceWaiter>& waiters = sites.all[one.site].waiters;
    const bool counted = one.of < k.places.size();
    waiters.push_back({.what = c, .generation = k.generation, .missing = one.missing, .per_pod = counted ? k.places[one.of].ask.per_pod : PodAmounts{}, .counted = counted});
  }
  if (!queues[k.queue].strict) queues[k.queue].classes.remove(c, class_at, [this](ClassId a, ClassId b) { return class_first(a, b); });
  if (k.lacks != no_column && k.wait.rule == EngineWait::Rule::Short) {  // told at the end, when it is known how much
    if (!std::exchange(k.retold, true)) restless.push_back(c);
    return;
  }
  if (k.told == k.wait) return;
  k.told = k.wait;
  out.push_back({EngineDecision::Kind::Waits, nothing, c});
}

void ContinuousEngine::State::nominate(std::uint32_t q, std::vector<EngineDecision>& out) {
  Queue& queue = queues[q];
  queue.nominates = false;
  if (queue.stopped) return;
  while (!queue.classes.empty()) {
    const ClassId c = queue.classes.top();
    if (classes[c].parked) return;  // StrictFIFO
    if (lacks_as_before(c)) {
      park(c, out);
      if (queue.strict) return;
      continue;
    }
    if (const auto found = find(c)) {
      queue.nominates = true;
      queue.what = c;
      queue.found = *found;
      queue.version = versions[ledger.tree(queue.leaf)];
      queue.head = classes[c].waiting.front();
      queue.priority = classes[c].spec.priority;
      return;
    }
    park(c, out);
    if (queue.strict) return;
  }
}

void ContinuousEngine::State::refresh(std::uint32_t q, std::vector<EngineDecision>& out) {
  nominate(q, out);
  reorder(q);
}

void ContinuousEngine::State::admit(std::uint32_t q, std::vector<EngineDecision>& out) {
  Queue& queue = queues[q];
  drop_claim(queue.head.job);
  Class& k = classes[queue.what];
  Job& job = jobs[queue.head.job];
  INVARIANT(k.waiting.front().job == queue.head.job);
  std::pop_heap(k.waiting.begin(), k.waiting.end(), later);
  k.waiting.pop_back();
  --k.live, --waiting;
  job.what = queue.found.shape;
  job.choice = queue.found.choice;
  job.since = ++reservations;
  k.wait = k.told = {};
  const std::vector<Use>& uses = classes[job.what].choices[job.choice].uses;
  if (queue.found.preempts) {
    for (const auto& [victim, reason] : victims) {
      const Class& theirs = classes[jobs[victim].what];
      Queue& from = queues[theirs.queue];
      from.held.erase(held_of(victim));
      jobs[victim].stage = Stage::Stopping;
      lost(jobs[victim].uid, queue.head.uid);
      --running, ++stopping;
      let(from.leaf, theirs.choices[jobs[victim].choice].uses, place_of(victim));
      out.push_back({EngineDecision::Kind::Preempted, victim, jobs[victim].what, queue.head.job, reason});
    }
    for (const auto& [victim, reason] : victims) {  // what is more than was needed is others'
      const Class& theirs = classes[jobs[victim].what];
      mark(theirs.queue);
      freed(queues[theirs.queue].leaf, theirs.choices[jobs[victim].choice].uses);
      if (const EnginePlacement* place = place_of(victim)) freed_place(*place);
    }
  }
  const std::shared_ptr<const EnginePlacement> place = queue.found.place;
  if (place) placements[queue.head.job] = place;
  hold(queue.leaf, uses, place.get());
  ++versions[ledger.tree(queue.leaf)];
  if (stopping == 0 || fits_in_use(queue, uses, place.get())) {
    job.stage = Stage::Running;
    job.shielded = shields;
    ++running;
    occupy(queue.leaf, uses, place.get());
    queue.held.insert(held_of(queue.head.job));
    out.push_back({EngineDecision::Kind::Admitted, queue.head.job, job.what});
  } else {
    job.stage = Stage::Promised;
    promised.push_back(queue.head.job);
    out.push_back({EngineDecision::Kind::Promised, queue.head.job, job.what});
  }
  const auto less = [this](ClassId a, ClassId b) { return class_first(a, b); };
  if (drop_stale(k)) queue.classes.put(queue.what, class_at, less);
  else queue.classes.remove(queue.what, class_at, less);
  add_to_line(classes[job.what]);
}

void ContinuousEngine::State::drain(std::vector<EngineDecision>& out) {
  if (stopped_some) keep_promises(out);
  while (!dirty_trees.empty()) {  // again where a place in a flavor that several trees use was given back meanwhile
    std::vector<std::uint32_t> trees = std::exchange(dirty_trees, {});
    std::sort(trees.begin(), trees.end());
    for (const std::uint32_t tree : trees) drain(tree, out);
  }
  tell_restless(out);
}

void ContinuousEngine::State::drain(std::uint32_t tree, std::vector<EngineDecision>& out) {
  bool looked = false;
  std::uint32_t next = nothing;  // whose turn it is beside all that are not awake
  while (true) {
    // Those whose jobs, or room, have changed; more of them when victims had more than was needed.
    for (const std::uint32_t q : sorted(std::exchange(dirty[tree], {}))) {
      queues[q].dirty = false;
      refresh(q, out);
    }
    const std::uint32_t q = first(tree);
    const bool settled = q != nothing && q == std::exchange(next, nothing);
    if (!settled && !open_cells[tree].empty()) {
      if (!looked && may_look(q)) {
        next = wake_first(tree, q);
        looked = dirty[tree].empty() || next != nothing;
      } else if (wake_rest(tree)) {
        continue;
      }
      if (!dirty[tree].empty()) continue;
      next = nothing;
    }
    if (q == nothing) break;
    Queue& queue = queues[q];
    if (queue.version != versions[tree] || queue.found.preempts) {  // others were admitted since it was found
      const auto found = lacks_as_before(queue.what) ? std::nullopt : find(queue.what);
      if (!found) {
        park(queue.what, out);
        refresh(q, out);
        continue;
      }
      queue.version = versions[tree];
      if (*found != queue.found) {
        queue.found = *found;
        reorder(q);
        continue;
      }
    }
    admit(q, out);
    refresh(q, out);
  }
  tree_is_dirty[tree] = false;
}

}  // namespace fairlead::governance
