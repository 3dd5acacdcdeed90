// SPDX-License-Identifier: Apache-2.0
// Level-triggered reconciling: a controller names what it watches, maps each change to keys, and is called with a key, one thread per key at a time.
// The same controllers run on threads (Runner here) and, step by step on a virtual clock, in sim/.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "kube/access.h"
#include "kube/cache.h"
#include "kube/kube_api.h"

namespace fairlead::kube {

struct Next {
  std::optional<std::chrono::nanoseconds> again_after;  // empty: nothing to do until something changes
};

// The caches of everything that the controllers of one process watch, by resource.
class Caches {
 public:
  virtual ~Caches() = default;
  virtual const Reader& of(const Resource& resource) const = 0;  // INVARIANT: some controller watches it
};

class Controller {
 public:
  virtual ~Controller() = default;
  virtual std::string name() const = 0;
  struct Source {
    Resource resource;
    std::string space;  // "" : all namespaces
    // Which keys to reconcile because of this change. Called after start(), on an informer's thread; must not block.
    std::function<std::vector<ObjectKey>(const Change&)> keys;
  };
  virtual std::vector<Source> sources() const = 0;
  // What it asks of the API beside listing and watching its sources. Roles are made from this, and tests refuse what is not in it (kube::CheckedApi).
  // None: part of the embedded engine, never run on somebody else's API.
  virtual std::optional<Access> access() const { return std::nullopt; }
  // Called once before the first reconcile.
  virtual void start(const Caches& caches) = 0;
  // An error is retried with back-off (5 ms doubling to 60 s per key, plus jitter); Conflict at once after 5 ms. Blocks as it likes within reason.
  virtual Result<Next> reconcile(const ObjectKey& key) = 0;
};

// All that a controller with these sources needs: access() and its sources. INVARIANT: it declares its access.
Access full_access(const Controller& controller);

// For sources(): the object itself; its controlling owner of this kind, in the object's namespace.
std::vector<ObjectKey> key_itself(const Change& change);
std::function<std::vector<ObjectKey>(const Change&)> key_of_owner(std::string kind);

// When keys are due. No threads and no clock inside: the caller says what time it is. A key that is out for work is not given
// out again until done; a change meanwhile makes it due again.
class WorkQueue {
 public:
  explicit WorkQueue(Rng rng) : rng_(rng) {}
  using Time = std::chrono::nanoseconds;  // monotonic
  void add(const ObjectKey& key, Time now, Time after = Time::zero());  // an earlier due time wins
  std::optional<ObjectKey> take(Time now);                              // earliest due, then first added
  void done(const ObjectKey& key, Time now, const Result<Next>& outcome);
  std::optional<Time> next_due() const;
  std::size_t size() const;
  int failures(const ObjectKey& key) const;

 private:
  struct Entry {
    Time due{};
    std::uint64_t order = 0;
    bool queued = false, out = false, again = false;
    Time again_due{};
    int failures = 0;
  };
  void schedule(const ObjectKey& key, Entry& entry, Time due);
  std::map<ObjectKey, Entry> entries_;
  std::set<std::tuple<Time, std::uint64_t, ObjectKey>> due_;  // the queued ones
  std::uint64_t order_ = 0;
  Rng rng_;
};

// Runs controllers on threads over one KubeApi. There is one informer for a resource; where controllers watch different namespaces of it, it
// watches all of them and each source is told only of its own.
struct RunnerOptions {
  int threads_per_controller = 2;
};
class Runner {
 public:
  Runner(KubeApi& api, const Clock& clock, std::uint64_t seed, RunnerOptions options = {});
  ~Runner();  // stops and joins
  void add(std::unique_ptr<Controller> controller);  // before start()
  void start();                                      // returns at once; reconciling begins when all caches are synced
  bool synced() const;
  // For metrics, by controller.
  struct Count {
    std::uint64_t reconciles = 0, failures = 0;
    std::size_t waiting = 0;  // keys with something to do, now or later
  };
  std::map<std::string, Count> counts() const;
  void wake(const std::string& controller, const ObjectKey& key);  // from outside (a process died)

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fairlead::kube
