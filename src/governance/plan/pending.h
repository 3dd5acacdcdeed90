// SPDX-License-Identifier: Apache-2.0
// Waiting workloads of each queue: those that will be looked at, and those that are parked until something changes. Kueue's rules, for the compatible cycle.
#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "governance/plan/world.h"

namespace fairlead::governance {

// Why a head goes back. What comes back at once in a best-effort queue: FailedAfterNomination, PendingPreemption, PreemptionFailed.
enum class Requeue { Generic, FailedAfterNomination, NamespaceMismatch, PreemptionGated, PendingPreemption, PreemptionFailed, NoFit, NoCandidates };

class Pending {
 public:
  // Negative: a before b; within one queue, with the workload that pre-empts now (or `none`).
  using Order = std::function<int(WorkloadId a, WorkloadId b, WorkloadId sticky)>;
  Pending(const World& world, Order order) : world_(&world), order_(std::move(order)), queues_(world.queues.size()) {}

  void push(WorkloadId w);             // new
  WorkloadId pop(std::uint32_t queue);  // none: empty
  bool is_preemptor(std::uint32_t queue, WorkloadId w) const { return queues_[queue].preemptor == w; }
  void requeue(WorkloadId w, Requeue why);
  // Something of the queue's tree changed: who is parked there is looked at again.
  void wake(std::uint32_t queue);
  void forget(WorkloadId w);
  std::vector<WorkloadId> active(std::uint32_t queue) const { return queues_[queue].active; }
  std::vector<WorkloadId> parked(std::uint32_t queue) const { return queues_[queue].parked; }

 private:
  struct Queue {
    std::vector<WorkloadId> active, parked;
    std::set<std::uint32_t> parked_kinds;  // equal ones are parked unseen
    WorkloadId preemptor = none;
    bool sticky = false;
    std::int64_t pops = 0, woken_at = -1;
  };
  bool may_try(const Workload& w) const;  // its back-off is over
  const World* world_;
  Order order_;
  std::vector<Queue> queues_;
};

}  // namespace fairlead::governance
