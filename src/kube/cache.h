// SPDX-License-Identifier: Apache-2.0
// What a controller reads: a local copy of one resource, kept fresh by list and watch. Objects are kept as bytes and parsed on reading.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "kube/kube_api.h"

namespace fairlead::kube {

// Reading side. Thread-safe.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual std::optional<Json> get(const ObjectKey& key) const = 0;
  virtual std::vector<Json> list(const std::string& space /* "" : all */) const = 0;  // sorted by key
};

// What changed, for mapping to the keys to reconcile. `before` is absent for a first sight, `after` for a deletion.
struct Change {
  std::optional<Json> before, after;
  const Json& object() const { return after ? *after : *before; }
};

// Bytes by key, no I/O: shared by the threaded Informer and by the simulation.
class Cache final : public Reader {
 public:
  std::optional<Json> get(const ObjectKey& key) const override;
  std::vector<Json> list(const std::string& space) const override;
  // Replaces all by a list (after a gap in the watch): the changes that follow from the difference.
  std::vector<Change> replace(const std::vector<Json>& objects);
  // Applies one event; nothing if it tells no news (same resourceVersion).
  std::optional<Change> apply(const WatchEvent& event);

 private:
  mutable std::shared_mutex mutex_;
  std::map<ObjectKey, std::shared_ptr<const std::string>> objects_;
};

// Keeps a Cache fresh on a thread of its own: list, watch, resume after breaks, relist on Expired, back-off with jitter (0.2 s to 30 s).
class Informer {
 public:
  using OnChange = std::function<void(const Change&)>;  // on the informer's thread; must not block
  Informer(KubeApi& api, Resource resource, std::string space, OnChange on_change);
  ~Informer();
  const Cache& cache() const { return cache_; }
  // True once the first list is in the cache.
  bool synced() const { return synced_.load(); }

 private:
  void run(std::stop_token stop);
  KubeApi& api_;
  Resource resource_;
  std::string space_;
  OnChange on_change_;
  Cache cache_;
  std::atomic<bool> synced_{false};
  std::mutex watch_mutex_;
  Watch* watch_ = nullptr;  // open one, closed by the destructor
  std::jthread thread_;
};

}  // namespace fairlead::kube
