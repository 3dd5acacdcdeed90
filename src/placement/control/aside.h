// SPDX-License-Identifier: Apache-2.0
// What nobody waits for is handed to one function on a thread of its own, all that has come meanwhile at once. What does not fit is dropped: only for what is good to have.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

namespace fairlead::placement {

template <class T>
class Aside {
 public:
  // At most `limit` wait, and at most `at_once` go to one call.
  Aside(std::size_t limit, std::size_t at_once, std::function<void(std::vector<T>)> act) : limit_(limit), at_once_(at_once), act_(std::move(act)) {
    thread_ = std::jthread([this](std::stop_token stop) { loop(std::move(stop)); });
  }
  // Returns when the call under way is done; the rest is dropped.
  ~Aside() = default;
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  // Any thread; never blocks.
  void add(std::vector<T> things) {
    {
      const std::lock_guard lock(mutex_);
      const auto room = static_cast<std::ptrdiff_t>(std::min(things.size(), limit_ - waiting_.size()));
      dropped_ += things.size() - static_cast<std::size_t>(room);
      waiting_.insert(waiting_.end(), std::make_move_iterator(things.begin()), std::make_move_iterator(things.begin() + room));
    }
    changed_.notify_one();
  }
  std::uint64_t dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
  }

 private:
  void loop(std::stop_token stop) {
    while (true) {
      std::vector<T> some;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, stop, [this] { return !waiting_.empty(); });
        if (stop.stop_requested()) return;
        const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(std::min(waiting_.size(), at_once_));
        some.assign(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(end));
        waiting_.erase(waiting_.begin(), end);
      }
      act_(std::move(some));
    }
  }

  const std::size_t limit_, at_once_;
  const std::function<void(std::vector<T>)> act_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<T> waiting_;     // under mutex_
  std::uint64_t dropped_ = 0;  // under mutex_
  std::jthread thread_;        // last: ends before the rest
};

}  // namespace fairlead::placement
