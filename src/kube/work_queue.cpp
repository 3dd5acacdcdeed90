// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kube/controller.h"

namespace fairlead::kube {
namespace {

constexpr WorkQueue::Time first_pause = 5ms, longest_pause = 60s;

}  // namespace

void WorkQueue::schedule(const ObjectKey& key, Entry& entry, Time due) {
  if (entry.queued) {
    if (entry.due <= due) return;
    due_.erase({entry.due, entry.order, key});
  } else {
    entry.queued = true;
    entry.order = ++order_;
  }
  entry.due = due;
  due_.emplace(entry.due, entry.order, key);
}

void WorkQueue::add(const ObjectKey& key, Time now, Time after) {
  Entry& entry = entries_[key];
  const Time due = now + std::max(after, Time::zero());
  if (entry.out) {
    entry.again_due = entry.again ? std::min(entry.again_due, due) : due;
    entry.again = true;
  } else {
    schedule(key, entry, due);
  }
}

std::optional<ObjectKey> WorkQueue::take(Time now) {
  if (due_.empty() || std::get<Time>(*due_.begin()) > now) return std::nullopt;
  ObjectKey key = std::get<ObjectKey>(*due_.begin());
  due_.erase(due_.begin());
  Entry& entry = entries_.at(key);
  entry.queued = false;
  entry.out = true;
  return key;
}

void WorkQueue::done(const ObjectKey& key, Time now, const Result<Next>& outcome) {
  const auto at = entries_.find(key);
  INVARIANT(at != entries_.end() && at->second.out);
  Entry& entry = at->second;
  entry.out = false;
  if (outcome) {
    entry.failures = 0;
    if (outcome->again_after) schedule(key, entry, now + std::max(*outcome->again_after, Time::zero()));
  } else if (outcome.error().code == Code::Conflict) {
    schedule(key, entry, now + first_pause);  // somebody else wrote: read again, decide again
  } else {
    Time pause = longest_pause;
    if (entry.failures < 14) pause = std::min(first_pause * (1 << entry.failures), longest_pause);
    ++entry.failures;
    // Up to a fifth more, so that keys that failed together do not return together.
    pause += Time(rng_.below(static_cast<std::uint64_t>(pause.count() / 5)));
    schedule(key, entry, now + pause);
  }
  if (entry.again) {
    entry.again = false;
    schedule(key, entry, entry.again_due);
  }
  if (!entry.queued) entries_.erase(at);
}

std::optional<WorkQueue::Time> WorkQueue::next_due() const {
  if (due_.empty()) return std::nullopt;
  return std::get<Time>(*due_.begin());
}

std::size_t WorkQueue::size() const { return entries_.size(); }

int WorkQueue::failures(const ObjectKey& key) const {
  const auto at = entries_.find(key);
  return at == entries_.end() ? 0 : at->second.failures;
}

}  // namespace fairlead::kube
