// SPDX-License-Identifier: Apache-2.0
// Which writes began before a moment, and when the last of them is over. A write tells when it begins and when it ends; whoever must not go on beside those that have begun is called when they
// have ended. Those that begin later are not waited for, so the wait is no longer than the longest of those writes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

namespace fairlead::apiserver {

// Thread-safe. A beginning and an end cost one short lock each, shared by all.
class WritesUnderWay {
 public:
  using Generation = std::uint64_t;
  Generation begin();
  void end(Generation of);  // once for each beginning; calls those that waited for it, on this thread, with no lock held
  // Calls `then` once everything that has begun is over: now, or from the last of those ends.
  void after_those_begun(std::function<void()> then);

 private:
  std::mutex mutex_;
  Generation oldest_ = 0;               // of inside_
  std::deque<std::size_t> inside_{0};   // how many are under way, by generation; a wait begins a new one. Where there are several, some of the first are under way
  std::deque<std::pair<Generation, std::function<void()>>> waiting_;  // for the end of this one and all before, in order
};

}  // namespace fairlead::apiserver
