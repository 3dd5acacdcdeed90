// SPDX-License-Identifier: Apache-2.0
#include "apiserver/waiting_threads.h"

namespace fairlead::apiserver {

WaitingThreads::~WaitingThreads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& one : running_) one.join();
}

bool WaitingThreads::post(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  if (queue_.size() >= most_waiting_) return false;
  add(std::move(lock), std::move(work));
  return true;
}

void WaitingThreads::post_always(std::function<void()> work) { add(std::unique_lock(mutex_), std::move(work)); }

void WaitingThreads::add(std::unique_lock<std::mutex> lock, std::function<void()> work) {
  queue_.push_back(std::move(work));
  if (queue_.size() > idle_ && running_.size() < threads_) running_.emplace_back([this] { run(); });
  lock.unlock();
  changed_.notify_one();
}

void WaitingThreads::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    --idle_;
    if (queue_.empty()) return;
    auto work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    work = nullptr;  // what it holds goes outside the lock
    lock.lock();
  }
}

}  // namespace fairlead::apiserver
