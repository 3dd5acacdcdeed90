// SPDX-License-Identifier: Apache-2.0
#include "kube/change_notifier.h"

#include <algorithm>

namespace fairlead::kube {

ChangeNotifier::ChangeNotifier(KubeApi& api, const std::vector<Resource>& resources) {
  for (const Resource& resource : resources) {
    const auto tell = [resource, bell = bell_](const Change& change) {
      const std::lock_guard lock(bell->mutex);
      const auto [begin, end] = bell->waiters.equal_range({resource, key_of(change.object())});
      if (begin == end) return;
      for (auto at = begin; at != end; ++at) at->second = true;
      bell->changed.notify_all();
    };
    informers_.push_back(std::make_unique<Informer>(api, resource, "", tell));
  }
}

ChangeNotifier::Waiter ChangeNotifier::waiter(const Resource& resource, const ObjectKey& key) {
  const std::lock_guard lock(bell_->mutex);
  return {bell_, bell_->waiters.emplace(std::pair(resource, key), false)};
}

bool ChangeNotifier::synced() const {
  return std::all_of(informers_.begin(), informers_.end(), [](const auto& one) { return one->synced(); });
}

ChangeNotifier::Waiter::~Waiter() {
  if (!bell_) return;
  const std::lock_guard lock(bell_->mutex);
  bell_->waiters.erase(place_);
}

bool ChangeNotifier::Waiter::wait(std::chrono::nanoseconds limit) {
  std::unique_lock lock(bell_->mutex);
  bell_->changed.wait_for(lock, limit, [&] { return place_->second; });
  return std::exchange(place_->second, false);
}

}  // namespace fairlead::kube
