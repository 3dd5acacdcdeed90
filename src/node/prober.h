// SPDX-License-Identifier: Apache-2.0
// Runs probes of running containers on few threads, and one-off commands (preStop) on others of the same kind.
#pragma once
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "node/plan/probe.h"
#include "node/runtime.h"

namespace fairlead::node {

struct ProbeTarget {
  std::string pod_uid, container;
  std::string ip;  // for tcpSocket and httpGet
};

class Prober {
 public:
  using OnChange = std::function<void(const std::string& attempt_id)>;  // on a prober's thread
  Prober(Runtime& runtime, const Clock& clock, OnChange on_change, int threads = 3);
  ~Prober();
  // Begins to probe this attempt; a call for one that is known does nothing. `told`: what an earlier agent had told of it. Initial delays count from the start of the container, and one that was ready stays
  // ready until its probe fails: a new agent must not take the pods of its node out of their services, nor probe earlier than the one before would have.
  struct Told { bool started = false, ready = false; };
  void watch(const std::string& attempt_id, const ProbeTarget& target, const std::vector<ProbeSpec>& probes, Told told, Instant running_since);
  void forget(const std::string& attempt_id);
  ProbeHealth health(const std::string& attempt_id) const;

 private:
  struct Entry {
    ProbeTarget target;
    ProbeState state;
    std::uint64_t generation = 0;
  };
  struct Due {
    std::chrono::nanoseconds at{};
    std::string attempt_id;
    std::size_t probe = 0;
    std::uint64_t generation = 0;
    bool operator<(const Due& other) const { return at > other.at; }  // the earliest on top
  };
  void work(const std::stop_token& stop);
  bool probe_once(const ProbeTarget& target, const ProbeSpec& spec);

  Runtime& runtime_;
  const Clock& clock_;
  const OnChange on_change_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::string, Entry> entries_;  // under mutex_
  std::priority_queue<Due> due_;          // under mutex_
  std::uint64_t generation_ = 0;
  std::vector<std::jthread> threads_;
};

// Few threads for jobs that wait on containers. At most `limit` wait; more are refused.
class JobPool {
 public:
  explicit JobPool(int threads = 2, std::size_t limit = 256);
  ~JobPool();
  bool add(std::function<void()> job);

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::queue<std::function<void()>> jobs_;
  std::size_t limit_;
  std::vector<std::jthread> threads_;
};

}  // namespace fairlead::node
