// SPDX-License-Identifier: Apache-2.0
// Partial admission: the most pods that fit, or fit with victims, where all of them do not. As in Kueue: all first, with victims if need be, then by halves between all and the fewest that will do.
#include <algorithm>
#include <utility>

#include "governance/plan/engine_state.h"
#include "governance/plan/partial.h"

namespace fairlead::governance {

bool EngineClass::can_be_cut() const {
  return std::any_of(pod_sets.begin(), pod_sets.end(), [](const EnginePodSet& pods) { return pods.least > 0 && pods.least < pods.count; });
}

EngineClass with_counts(const EngineClass& what, const std::vector<std::int32_t>& counts) {
  EngineClass out = what;
  for (std::size_t p = 0; p < out.pod_sets.size() && p < counts.size(); ++p) {
    EnginePodSet& pods = out.pod_sets[p];
    if (pods.each.size() != pods.total.size() || pods.count <= 0) continue;
    pods.count = pods.least = counts[p];
    if (pods.place) pods.place->count = counts[p];
    for (std::size_t r = 0; r < pods.total.size(); ++r) pods.total[r].second = times(pods.each[r], counts[p]);
  }
  return out;
}

EngineClass fewest(const EngineClass& what) {
  std::vector<std::int32_t> counts;
  for (const EnginePodSet& pods : what.pod_sets) counts.push_back(pods.least > 0 ? pods.least : pods.count);
  return with_counts(what, counts);
}

ClassId ContinuousEngine::State::cut(ClassId c, const std::vector<std::int32_t>& counts) {
  std::int64_t all = 0;
  for (const std::int32_t count : counts) all += count;
  if (const auto at = classes[c].cuts.find(all); at != classes[c].cuts.end()) return at->second;
  const ClassId shape = define(with_counts(classes[c].spec, counts));
  classes[c].cuts.emplace(all, shape);
  return shape;
}

// Room on any flavor comes before victims on any, unless its queue says otherwise (flavorFungibility): whenCanPreempt MayStopSearch takes the first flavor with room or victims; preference PreemptionOverBorrowing takes victims rather
// than borrow, or borrow from farther away. Nothing: in the usual order.
std::optional<ContinuousEngine::State::Found> ContinuousEngine::State::find_as_queue_says(ClassId shape, const Entry* head) {
  const QueuePolicies& may = queues[classes[shape].queue].policies;
  if (may.next_if_preempting && !may.preempt_rather_than_borrow) return std::nullopt;
  if (may.within_queue == PreemptionPolicy::Never && may.reclaim == PreemptionPolicy::Never) return std::nullopt;
  Found found{.shape = shape};
  bool got = false;
  if (!may.next_if_preempting) {
    in_order = true;
    most_level = may.next_if_borrowing ? 0 : any_level;  // one that borrows does not end the search then
    got = look_for_victims(shape, head, found.choice, found.level);
    found.preempts = !victims.empty();
    in_order = false;
  } else {
    const int farthest = ledger.height(ledger.root(queues[classes[shape].queue].leaf));
    for (most_level = 0; most_level < farthest && !got; ++most_level) {
      found.preempts = false;
      got = look(shape, found.choice, found.level) || (found.preempts = look_for_victims(shape, head, found.choice, found.level));
    }
  }
  most_level = any_level;
  if (!got) return std::nullopt;
  found.place = std::move(found_place);
  return found;
}

std::optional<ContinuousEngine::State::Found> ContinuousEngine::State::find_shape(ClassId shape, const Entry* head) {
  if (auto found = find_as_queue_says(shape, head)) return found;
  Found found{.shape = shape};
  if (look(shape, found.choice, found.level)) {
    found.place = std::move(found_place);
    return found;
  }
  found.preempts = true;
  if (!look_for_victims(shape, head, found.choice, found.level)) return std::nullopt;
  found.place = std::move(found_place);
  return found;
}

std::optional<ContinuousEngine::State::Found> ContinuousEngine::State::find_any(ClassId c) {
  const Entry first = classes[c].waiting.empty() ? Entry{} : classes[c].waiting.front();  // by value: classes may move
  const Entry* head = classes[c].waiting.empty() ? nullptr : &first;
  if (auto found = find_shape(c, head)) return found;
  if (classes[c].never.rule != EngineWait::Rule::None || !classes[c].spec.can_be_cut()) return std::nullopt;
  std::vector<CountRange> ranges;
  std::vector<std::int32_t> least;
  for (const EnginePodSet& pods : classes[c].spec.pod_sets) {
    ranges.push_back({pods.count, pods.least > 0 ? pods.least : pods.count});
    least.push_back(ranges.back().least);
  }
  // The fewest first: where not even they fit, what they miss is what is waited for, since whatever fits with more fits with them.
  const ClassId smallest = cut(c, least);
  const auto at_least = find_shape(smallest, head);
  if (!at_least) {
    classes[c].wait = classes[smallest].wait;
    return std::nullopt;
  }
  auto best = largest_that_fits(ranges, [&](const std::vector<std::int32_t>& counts) { return find_shape(cut(c, counts), head); });
  if (!best) best = at_least;
  return find_shape(best->shape, head);  // for its victims: others were looked at since
}

}  // namespace fairlead::governance
