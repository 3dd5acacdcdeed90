// SPDX-License-Identifier: Apache-2.0
// Wakes who waits for an object to change, so that nobody asks for it again and again.
#pragma once
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "kube/cache.h"

namespace fairlead::kube {

// One watch for each resource, whatever the number of those who wait (cost: what an Informer holds). That something changed is all that is told: what it is now is to be asked for, since a watch may be behind what the
// one who waits has written. A watch that is broken tells nothing, so nobody may wait for it alone. Thread-safe.
class ChangeNotifier {
  struct Bell {
    std::mutex mutex;
    std::condition_variable changed;
    std::multimap<std::pair<Resource, ObjectKey>, bool> waiters;  // true: it changed since its waiter looked
  };

 public:
  ChangeNotifier(KubeApi& api, const std::vector<Resource>& resources);

  // Of one object, there or not; what changes from here on counts. It may outlive its notifier, and hears nothing then.
  class Waiter {
   public:
    Waiter(Waiter&&) = default;
    Waiter& operator=(Waiter&&) = delete;
    ~Waiter();
    // True: it changed since the last call, or the making. False: not within `limit`.
    bool wait(std::chrono::nanoseconds limit);

   private:
    friend class ChangeNotifier;
    using Place = std::multimap<std::pair<Resource, ObjectKey>, bool>::iterator;
    Waiter(std::shared_ptr<Bell> bell, Place place) : bell_(std::move(bell)), place_(place) {}
    std::shared_ptr<Bell> bell_;  // none: moved from
    Place place_;
  };
  Waiter waiter(const Resource& resource, const ObjectKey& key);
  // Every resource is followed. Until then, changes are not told.
  bool synced() const;

 private:
  std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  std::vector<std::unique_ptr<Informer>> informers_;
};

}  // namespace fairlead::kube
