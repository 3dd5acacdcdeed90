// SPDX-License-Identifier: Apache-2.0
// What a controller reads: one resource, kept fresh by list and watch. Objects are held as their engine keeps them (at_rest.h) and decoded on reading.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "kube/kube_api.h"

namespace fairlead::kube {

// Reading side. Thread-safe.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual std::optional<Json> get(const ObjectKey& key) const = 0;
  virtual std::vector<Json> list(const std::string& space /* "" : all */) const = 0;  // sorted by key
  // The same one by one: what is decoded at a time is one object. `look` may be slow; what changes meanwhile may or may not be seen.
  virtual void each(const std::string& space, const std::function<void(const Json&)>& look) const {
    for (const Json& object : list(space)) look(object);
  }
};

// What changed, for mapping to the keys to reconcile. `before` is absent for a first sight, `after` for a deletion (`before` is then the last state known).
struct Change {
  std::optional<Json> before, after;
  const Json& object() const { return after ? *after : *before; }
};

// Objects by key, no I/O: shared by the threaded Informer and by the simulation.
class Cache final : public Reader {
 public:
  std::optional<Json> get(const ObjectKey& key) const override;
  std::vector<Json> list(const std::string& space) const override;
  void each(const std::string& space, const std::function<void(const Json&)>& look) const override;
  struct Entry {
    std::string version;
    AtRest object;
  };
  using Entries = std::map<ObjectKey, Entry>;
  // Replaces all (after a gap in the watch) and tells the changes that follow from the difference, one at a time.
  void replace(Entries fresh, const std::function<void(const Change&)>& tell);
  std::vector<Change> replace(const std::vector<Json>& objects);  // for few
  // Applies one event; nothing if it tells no news (same resourceVersion).
  std::optional<Change> apply(const WatchEvent& event);

 private:
  std::vector<AtRest> held(const std::string& space) const;
  mutable std::shared_mutex mutex_;
  Entries objects_;
};

// Keeps a Cache fresh on a thread of its own: list, watch, resume after breaks, relist on Expired, back-off with jitter (0.2 s to 30 s).
class Informer {
 public:
  using OnChange = std::function<void(const Change&)>;  // on the informer's thread; must not block
  // `on_synced` is called once, on the informer's thread, when the first list is in the cache and its changes were told. `seed` is for the jitter.
  Informer(KubeApi& api, Resource resource, std::string space, OnChange on_change, std::function<void()> on_synced = {}, std::uint64_t seed = 0);
  ~Informer();  // ends the watch; returns when no callback runs
  const Cache& cache() const { return cache_; }
  // True once the first list is in the cache.
  bool synced() const { return synced_.load(); }

 private:
  void run(std::stop_token stop);
  Result<std::string> fill();                                        // lists; the version to watch from
  Error follow(std::string& version, bool& alive, std::stop_token stop);  // watches until it ends
  void wait_a_moment(std::stop_token stop);
  KubeApi& api_;
  Resource resource_;
  std::string space_;
  OnChange on_change_;
  std::function<void()> on_synced_;
  Rng rng_;
  Cache cache_;
  std::atomic<bool> synced_{false};
  std::chrono::nanoseconds pause_;  // before the next try
  std::mutex watch_mutex_;
  std::condition_variable_any stopped_;
  Watch* watch_ = nullptr;  // open one, closed by the destructor
  std::jthread thread_;
};

}  // namespace fairlead::kube
