// SPDX-License-Identifier: Apache-2.0
// One of several equal processes leads: it holds a Lease and renews it. The record and the times are client-go's, so that its tools can read it.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/rng.h"
#include "kube/access.h"
#include "kube/kube_api.h"

namespace fairlead::kube {

struct LeaderTimes {
  std::chrono::nanoseconds lease{15s};   // others wait this long after they last saw it renewed
  std::chrono::nanoseconds deadline{10s};  // without a renewal for this long we do not lead any more: earlier than others may take it
  std::chrono::nanoseconds retry{2s};
};

// What one candidate knows. Its own memory, never stored.
struct Candidate {
  std::string identity;                       // of this process alone: never the same after a restart
  std::optional<std::int64_t> epoch;          // we lead in it
  std::chrono::nanoseconds proved_at{};       // monotonic, when the request was sent whose success proved it
  std::string seen;                           // holder and renewal that the lease showed last
  std::chrono::nanoseconds seen_at{};         // monotonic, when it began to show that
};

enum class LeaderMove { Take, Renew, Wait, Lost };
struct LeaderStep {
  LeaderMove move = LeaderMove::Wait;
  Json lease;           // Take, Renew: what to write; with its resourceVersion, or without one to create it
  Candidate candidate;  // as it stands now; epoch and proved_at follow from the write
  std::string why;
};
// `lease` null: there is none. Other clocks are never compared with ours: a holder is silent when its lease has not changed for its duration by our own
// monotonic clock.
LeaderStep step_leader(const Json& lease, Candidate candidate, const ObjectKey& key, const LeaderTimes& times, Instant now, std::chrono::nanoseconds monotonic);
// Leads provably at this moment.
bool leads(const Candidate& candidate, const LeaderTimes& times, std::chrono::nanoseconds monotonic);

struct LeaderOptions {
  ObjectKey lease;
  std::string identity;
  LeaderTimes times;
  std::uint64_t seed = 0;  // for the jitter
};
// What it needs of the API.
Access leader_access(const ObjectKey& lease);

// Takes part in the election on a thread of its own. The API's time-outs should be below the deadline.
class Leader {
 public:
  // `on_lead`, `on_lost`: each called at most once, on that thread, in this order. Lost is for good: a process that has lost what it believed in does best to end.
  Leader(KubeApi& api, const Clock& clock, LeaderOptions options, std::function<void(std::int64_t epoch)> on_lead, std::function<void(const std::string& why)> on_lost);
  ~Leader();  // stops; gives back a lease that it holds, so that the next one need not wait
  // The Fence: Unavailable unless we lead provably now.
  Result<std::int64_t> epoch() const;
  // When the API last answered, by the monotonic clock; for readiness.
  std::chrono::nanoseconds last_answer() const { return last_answer_.load(); }
  std::string holder() const;  // as last seen

 private:
  void run(std::stop_token stop);
  bool turn();  // false: lost
  void give_back();

  KubeApi& api_;
  const Clock& clock_;
  const LeaderOptions options_;
  const std::function<void(std::int64_t)> on_lead_;
  const std::function<void(const std::string&)> on_lost_;
  Rng rng_;
  mutable std::mutex mutex_;
  std::condition_variable_any stopped_;
  Candidate candidate_;  // under mutex_; written by the thread alone
  std::string holder_;   // under mutex_
  std::atomic<std::chrono::nanoseconds> last_answer_{};
  std::jthread thread_;
};

}  // namespace fairlead::kube
