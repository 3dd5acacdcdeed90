// SPDX-License-Identifier: Apache-2.0
// Work that nobody waits for, begun one after the other on threads of its own. What does not fit is dropped: only for what is good to have.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace fairlead::placement {

class Aside {
 public:
  explicit Aside(std::size_t limit, int threads = 1);
  ~Aside();  // returns when what is under way is done; the rest is dropped
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;
  void run(std::function<void()> work);  // any thread; never blocks
  std::uint64_t dropped() const;

 private:
  void loop(std::stop_token stop);
  const std::size_t limit_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> waiting_;  // under mutex_
  std::uint64_t dropped_ = 0;                  // under mutex_
  std::vector<std::jthread> threads_;          // last: end before the rest
};

}  // namespace fairlead::placement
