// SPDX-License-Identifier: Apache-2.0
// What the books tell of workloads and queues to views and explanations.
#include <fmt/format.h>

#include "governance/plan/admission_checks.h"
#include "governance/plan/books.h"

namespace fairlead::governance {

using kube::ObjectKey;

std::optional<Books::Standing> Books::standing(const ObjectKey& workload) const {
  const auto at = items_.find(workload);
  if (at == items_.end()) return std::nullopt;
  const Item& item = at->second;
  Standing out{.place = item.place, .spec = &item.spec, .what = &item.what, .queue = item.queue, .job = item.job, .class_id = item.class_id, .reason = {}, .message = {}, .preempted = {}, .preempted_by = {}, .object = item.object.json()};
  if (item.place != Place::Out) out.queue = item.what.queue;
  else if (const auto local = local_queues_.find({item.spec.space, item.spec.local_queue}); out.queue.empty() && local != local_queues_.end()) out.queue = local->second.spec.queue;
  switch (item.place) {
    case Place::Out: out.reason = item.out_reason, out.message = item.out_message; break;
    case Place::Waiting: std::tie(out.reason, out.message) = wait_of(item); break;
    case Place::Promised:
      out.reason = "WaitingForPreemptedWorkloads";
      out.message = fmt::format("Quota is promised. Pending the preemption of {} workload(s)", item.waits_for_victims);
      break;
    case Place::Stopping:
      out.reason = item.evict_reason.empty() ? item.spec.evicted.reason : item.evict_reason;
      out.message = item.evict_message;
      out.preempted = item.preempted, out.preempted_by = item.preempted_by;
      break;
    case Place::Running:
      if (holds_quota(out.object) && !item.spec.admitted.is)
        if (const std::string unready = unready_checks(out.object); !unready.empty()) out.reason = "UnsatisfiedAdmissionChecks", out.message = "It has its quota and waits for admission checks: " + unready;
      out.shielded = engine_.shielded(item.job);
      if (out.shielded && item.spec.admitted.is && times_.min_run) out.safe_until = item.spec.admitted.since + *times_.min_run;
      break;
  }
  return out;
}

std::optional<Books::Place> Books::place(const ObjectKey& workload) const {
  const auto at = items_.find(workload);
  return at == items_.end() ? std::nullopt : std::optional(at->second.place);
}

std::optional<EngineClass> Books::asks_of(const ObjectKey& workload) const {
  const auto at = items_.find(workload);
  if (at == items_.end() || at->second.spec.finished.is || !obstacle_of(at->second).first.empty()) return std::nullopt;
  return class_of(at->second, *queue_of(at->second));
}

std::vector<ObjectKey> Books::workloads() const {
  std::vector<ObjectKey> out;
  for (const auto& [key, item] : items_) out.push_back(key);
  return out;
}

std::optional<Books::QueueView> Books::queue_view(const std::string& name) const {
  const auto at = queues_.find(name);
  if (at == queues_.end()) return std::nullopt;
  QueueView out{.spec = &at->second.spec, .object = &at->second.object, .active = at->second.active, .reason = at->second.reason, .message = at->second.message, .window = at->second.schedule.window};
  if (const auto tally = queue_tallies_.find(name); tally != queue_tallies_.end()) out.pending = tally->second.pending, out.reserving = tally->second.reserving, out.admitted = tally->second.admitted;
  return out;
}

std::vector<std::string> Books::queues() const {
  std::vector<std::string> out;
  for (const auto& [name, queue] : queues_) out.push_back(name);
  return out;
}

const kube::Json* Books::cohort(const std::string& name) const {
  const auto at = cohorts_.find(name);
  return at == cohorts_.end() ? nullptr : &at->second.object;
}

const kube::Json* Books::local_queue(const ObjectKey& key) const {
  const auto at = local_queues_.find(key);
  return at == local_queues_.end() ? nullptr : &at->second.object;
}

const ObjectKey* Books::workload_of(JobId job) const {
  if (job >= by_job_.size()) return nullptr;
  const auto at = items_.find(by_job_[job]);
  return at == items_.end() || at->second.place == Place::Out || at->second.job != job ? nullptr : &at->first;
}

}  // namespace fairlead::governance
