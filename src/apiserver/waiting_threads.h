// SPDX-License-Identifier: Apache-2.0
// A few threads for work that waits for others (webhooks), so that nobody waits on a thread that serves everybody. Started when they are needed.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace fairlead::apiserver {

class WaitingThreads {
 public:
  WaitingThreads(std::size_t threads, std::size_t most_waiting) : threads_(threads), most_waiting_(most_waiting) {}
  WaitingThreads(const WaitingThreads&) = delete;
  WaitingThreads& operator=(const WaitingThreads&) = delete;
  ~WaitingThreads();  // does all that was posted first
  // False: too much waits already; the work is not done.
  bool post(std::function<void()> work);
  // What must be done: it is bounded by its owner.
  void post_always(std::function<void()> work);

 private:
  void add(std::unique_lock<std::mutex> lock, std::function<void()> work);
  void run();

  const std::size_t threads_, most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::vector<std::thread> running_;
  std::size_t idle_ = 0;
  bool stopping_ = false;
};

}  // namespace fairlead::apiserver
