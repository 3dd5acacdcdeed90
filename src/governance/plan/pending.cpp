// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/pending.h"

#include <algorithm>

namespace fairlead::governance {

bool Pending::may_try(const Workload& w) const {
  if (!w.spec.requeued.is && !w.spec.requeued.reason.empty()) return false;
  return !w.spec.requeue_at || world_->rules.now >= *w.spec.requeue_at;
}

void Pending::push(WorkloadId w) {
  const Workload& workload = world_->workloads[w];
  Queue& queue = queues_[workload.queue];
  const bool equal_is_parked = !world_->queues[workload.queue].spec.strict_fifo && world_->rules.gates.equivalence && queue.parked_kinds.contains(workload.kind);
  (may_try(workload) && !equal_is_parked ? queue.active : queue.parked).push_back(w);
}

WorkloadId Pending::pop(std::uint32_t id) {
  Queue& queue = queues_[id];
  ++queue.pops;
  if (queue.active.empty()) return none;
  const WorkloadId sticky = queue.sticky ? queue.preemptor : none;
  const auto first = std::min_element(queue.active.begin(), queue.active.end(), [&](WorkloadId a, WorkloadId b) { return order_(a, b, sticky) < 0; });
  const WorkloadId w = *first;
  queue.active.erase(first);
  return w;
}

void Pending::requeue(WorkloadId w, Requeue why) {
  const Workload& workload = world_->workloads[w];
  Queue& queue = queues_[workload.queue];
  const bool strict = world_->queues[workload.queue].spec.strict_fifo;
  const bool at_once = strict ? why != Requeue::NamespaceMismatch : why == Requeue::FailedAfterNomination || why == Requeue::PendingPreemption || why == Requeue::PreemptionFailed;
  if (why == Requeue::PendingPreemption) {
    queue.preemptor = w;
    queue.sticky = !strict;
  }
  if (may_try(workload) && (at_once || queue.woken_at >= queue.pops || (workload.progress && workload.progress->pending()))) {
    queue.active.push_back(w);
    return;
  }
  queue.parked.push_back(w);
  if (strict || !world_->rules.gates.equivalence || (why != Requeue::NoFit && why != Requeue::NoCandidates)) return;
  queue.parked_kinds.insert(workload.kind);
  const auto equal = std::stable_partition(queue.active.begin(), queue.active.end(), [&](WorkloadId other) { return world_->workloads[other].kind != workload.kind; });
  queue.parked.insert(queue.parked.end(), equal, queue.active.end());
  queue.active.erase(equal, queue.active.end());
}

void Pending::wake(std::uint32_t id) {
  Queue& queue = queues_[id];
  queue.woken_at = queue.pops;
  queue.parked_kinds.clear();
  const auto stay = std::stable_partition(queue.parked.begin(), queue.parked.end(), [&](WorkloadId w) { return !may_try(world_->workloads[w]); });
  queue.active.insert(queue.active.end(), stay, queue.parked.end());
  queue.parked.erase(stay, queue.parked.end());
}

void Pending::forget(WorkloadId w) {
  Queue& queue = queues_[world_->workloads[w].queue];
  for (auto* list : {&queue.active, &queue.parked}) list->erase(std::remove(list->begin(), list->end(), w), list->end());
  if (queue.preemptor == w) queue.preemptor = none, queue.sticky = false;
}

}  // namespace fairlead::governance
