// SPDX-License-Identifier: Apache-2.0
#include "placement/control/aside.h"

namespace fairlead::placement {

Aside::Aside(std::size_t limit, int threads) : limit_(limit) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this](std::stop_token stop) { loop(std::move(stop)); });
}

Aside::~Aside() {
  for (auto& thread : threads_) thread.request_stop();
}

void Aside::run(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= limit_) {
      ++dropped_;
      return;
    }
    waiting_.push_back(std::move(work));
  }
  changed_.notify_one();
}

std::uint64_t Aside::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

void Aside::loop(std::stop_token stop) {
  while (true) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, stop, [this] { return !waiting_.empty(); });
      if (stop.stop_requested()) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
  }
}

}  // namespace fairlead::placement
