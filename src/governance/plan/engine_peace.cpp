// SPDX-License-Identifier: Apache-2.0
// The rules of fair sharing let two jobs take the same quota from one another for ever: one because its queue is within its own quota, the other because its share is the smaller one then (Kueue's issues 14543, 7101, 3779).
// Here a job does not take from one that it has lost to, or that such a one has lost to. The relation has no cycle, so every change of owner goes one way, and there are finitely many.
#include <algorithm>

#include "governance/plan/engine_state.h"

namespace fairlead::governance {

void ContinuousEngine::State::lost(Uid victim, Uid to) {
  if (lost_to.size() > 1'000'000) lost_to.clear();  // of jobs that never came back
  std::vector<Uid>& list = lost_to[victim];
  if (std::find(list.begin(), list.end(), to) == list.end()) list.push_back(to);
}

void ContinuousEngine::State::gone(Uid uid) {
  lost_to.erase(uid);  // others may name it still: it takes nothing any more
}

void ContinuousEngine::State::stronger_than(Uid uid) {
  untouchable.clear();
  const auto first = lost_to.find(uid);
  if (first == lost_to.end()) return;
  std::vector<Uid> open = first->second;
  while (!open.empty()) {
    const Uid one = open.back();
    open.pop_back();
    const auto at = std::lower_bound(untouchable.begin(), untouchable.end(), one);
    if (at != untouchable.end() && *at == one) continue;
    untouchable.insert(at, one);
    if (const auto more = lost_to.find(one); more != lost_to.end()) open.insert(open.end(), more->second.begin(), more->second.end());
  }
}

}  // namespace fairlead::governance
