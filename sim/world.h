// SPDX-License-Identifier: Apache-2.0
// The whole control plane in one thread: the real registry over the memory store, the real controllers, a virtual clock, simulated nodes. Which of the things that could
// happen next happens next is drawn from the seed, so every seed is another interleaving and the same seed is the same run, trace for trace.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "apiserver/local_api.h"
#include "apiserver/registry.h"
#include "apiserver/store/store.h"
#include "base/clock.h"
#include "base/rng.h"
#include "fleet/fake_host.h"
#include "kube/controller.h"
#include "sim/node.h"

namespace fairlead::sim {

struct WorldOptions {
  std::uint64_t seed = 1;
};

class World final : public kube::Caches {
 public:
  explicit World(WorldOptions options);
  ~World() override;

  kube::KubeApi& api() { return *api_; }
  // What controllers asked for beyond Controller::access().
  std::vector<std::string> refusals() const;
  const Clock& clock() const { return clock_; }
  Rng& rng() { return rng_; }
  fleet::FakeHost& host() { return host_; }

  void add(std::unique_ptr<kube::Controller> controller);
  // Placement, node life cycle, machines and Slurm clusters, as fairlead-server runs them on the embedded engine.
  void add_all_controllers();
  void start();

  // Something that happens at a time from now, in order of time, then of arming.
  void after(std::chrono::nanoseconds delay, std::string what, std::function<void()> action);
  // Runs everything that is due until this much time has passed. INVARIANT: a world that never comes to rest (1,000,000 happenings in one instant).
  void run_for(std::chrono::nanoseconds time);
  // Runs until `done` holds; false: it did not within `limit`.
  bool run_until(const std::function<bool()>& done, std::chrono::nanoseconds limit);

  // Node records of Slurm as "NAMESPACE/worker-0"; the reason of a drain, or nothing.
  const std::map<std::string, std::string>& slurm_nodes();
  const std::vector<std::string>& trace() const { return trace_; }
  void note(std::string line);

  const kube::Reader& of(const kube::Resource& resource) const override;

 private:
  struct Running;    // a controller with its queue
  struct Feed;       // a resource's watch: events that wait to reach the cache
  struct Armed;
  bool step();       // one happening; false: nothing is due now
  void deliver(Feed& feed);
  void reconcile(Running& running);
  void node_changed(const std::string& machine, fleet::Step step);
  // What fairlead-slurm in a head says: a Slurm without jobs whose workers register when their pods are ready.
  kube::ExecResult companion(const std::string& space, const std::vector<std::string>& command);

  ManualClock clock_;
  Rng rng_;
  Rng names_;  // uids and generated names: apart, so that what is named never shifts what is drawn
  std::unique_ptr<apiserver::Store> store_;
  std::unique_ptr<apiserver::Registry> registry_;
  // The API as one controller has it on a real cluster: what it declares, and fenced.
  struct Guarded;
  template <class Make>
  void add_guarded(Make make);
  std::unique_ptr<kube::KubeApi> api_;
  std::vector<std::unique_ptr<Guarded>> guarded_;
  fleet::FakeHost host_;
  std::vector<std::unique_ptr<Running>> controllers_;
  std::map<kube::Resource, std::unique_ptr<Feed>> feeds_;
  std::map<std::pair<std::chrono::nanoseconds, std::uint64_t>, std::pair<std::string, std::function<void()>>> armed_;
  std::map<std::string, std::unique_ptr<Node>> nodes_;
  std::set<std::string> register_workers();  // those that are alive
  std::map<std::string, std::string> slurm_nodes_;
  std::uint64_t armings_ = 0;
  std::vector<std::string> trace_;
};

}  // namespace fairlead::sim
