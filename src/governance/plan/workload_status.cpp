// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/workload_status.h"

#include <fmt/format.h>

#include <algorithm>

#include "governance/plan/admission_checks.h"
#include "governance/plan/kueue_read.h"
#include "governance/plan/pods_ready.h"
#include "kube/object.h"

namespace fairlead::governance {
namespace {

using kube::Json;

// As long as metav1.Condition lets it be in Kueue; never in the middle of a character.
std::string cut(const std::string& message) {
  constexpr std::size_t most = 1024;
  if (message.size() <= most) return message;
  std::size_t end = most - 3;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xc0) == 0x80) --end;
  return message.substr(0, end) + "...";
}

bool set(Json& workload, const char* type, bool is, std::string_view reason, const std::string& message, Instant now) {
  return kube::set_condition(workload, {.type = type, .status = is ? "True" : "False", .reason = std::string(reason), .message = cut(message)}, now);
}

// What was true is told as past.
bool reset(Json& workload, const char* type, Instant now) {
  const Json* before = kube::find_condition(workload, type);
  if (before == nullptr || (*before)["status"].string() != "True") return false;
  const std::string message = "Previously: " + (*before)["message"].string();
  return set(workload, type, false, "QuotaReserved", message, now);
}

// It had been evicted for something that is no more.
bool tell_requeued(Json& workload, Instant now) {
  const Json* before = kube::find_condition(workload, "Requeued");
  if (before == nullptr || (*before)["status"].string() != "False") return false;
  const std::string was = (*before)["reason"].string();
  if (was == kPodsReadyTimeout || was == kAdmissionCheck) return false;  // until its time out of line is over
  if (was == "ClusterQueueStopped") return set(workload, "Requeued", true, "ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped", now);
  if (was == "LocalQueueStopped") return set(workload, "Requeued", true, "LocalQueueRestarted", "The LocalQueue was restarted after being stopped", now);
  return set(workload, "Requeued", true, "Reactivated", "The workload was reactivated", now);
}

}  // namespace

Json admission_of(const Admission& admission) {
  Json pod_sets = Json::array();
  for (const HeldPodSet& held : admission.pod_sets) {
    Json flavors = Json::object(), usage = Json::object();
    for (const auto& [resource, flavor] : held.flavors) flavors.set(resource, flavor);
    for (const auto& [resource, amount] : held.usage) usage.set(resource, amount_text(resource, amount));
    Json one = Json::object({{"name", held.name}});
    if (!held.flavors.empty()) one.set("flavors", std::move(flavors));
    if (!held.usage.empty()) one.set("resourceUsage", std::move(usage));
    if (held.count) one.set("count", std::int64_t{*held.count});
    if (held.topology) one.set("topologyAssignment", v1beta2_json(*held.topology));
    pod_sets.push(std::move(one));
  }
  return Json::object({{"clusterQueue", admission.queue}, {"podSetAssignments", std::move(pod_sets)}});
}

bool tell_admitted(Json& workload, const Admission& admission, const std::set<std::string>& checks, Instant now) {
  bool changed = tell_requeued(workload, now);
  changed = set(workload, "QuotaReserved", true, "QuotaReserved", "Quota reserved in ClusterQueue " + admission.queue, now) || changed;
  changed = reset(workload, "Evicted", now) || changed;
  changed = reset(workload, "Preempted", now) || changed;
  changed = tell_checks(workload, checks, now) || changed;
  if (checks_ready(workload)) changed = set(workload, "Admitted", true, "Admitted", "The workload is admitted", now) || changed;
  else changed = set(workload, "Admitted", false, "UnsatisfiedAdmissionChecks", "The workload has not all checks ready", now) || changed;
  const Json next = admission_of(admission);
  if (workload["status"]["admission"] == next) return changed;
  workload.child("status").set("admission", next);
  return true;
}

bool tell_moved(Json& workload, const std::vector<std::optional<TopologyAssignment>>& places, const std::vector<std::string>& lost) {
  if (!workload["status"]["admission"].is_object()) return false;
  bool changed = false;
  auto& sets = workload.child("status").child("admission").child("podSetAssignments").items();
  for (std::size_t p = 0; p < sets.size() && p < places.size(); ++p) {
    if (!places[p] || read_topology_assignment(sets[p]["topologyAssignment"]) == *places[p]) continue;
    sets[p].set("topologyAssignment", v1beta2_json(*places[p]));
    changed = true;
  }
  if (Json* unhealthy = workload.child("status").find("unhealthyNodes"); unhealthy != nullptr && unhealthy->is_array()) {
    std::erase_if(unhealthy->items(), [&](const Json& one) { return std::find(lost.begin(), lost.end(), one["name"].string()) != lost.end(); });
    if (unhealthy->items().empty()) workload.child("status").erase("unhealthyNodes");
  }
  return changed;
}

bool tell_waiting(Json& workload, std::string_view reason, const std::string& message, Instant now) {
  bool changed = reason == "Suspended" ? false : tell_requeued(workload, now);
  changed = set(workload, "QuotaReserved", false, reason, message, now) || changed;
  if (kube::condition_is_true(workload, "Admitted")) changed = set(workload, "Admitted", false, "NoReservation", "The workload has no reservation", now) || changed;
  return workload.child("status").erase("admission") || changed;
}

bool tell_evicted(Json& workload, std::string_view reason, const std::string& message, std::optional<VictimReason> preempted, Instant now) {
  const bool anew = !kube::condition_is_true(workload, "Evicted");
  bool changed = set(workload, "Evicted", true, reason, message, now);
  if (anew) changed = reset_checks(workload, now) || changed;  // not when it has stopped: what is said until then is of the next round (Kueue's order, too)
  if (reason == "Deactivated" && kube::find_condition(workload, "DeactivationTarget") != nullptr) {  // its cause is in the message
    Json& conditions = workload.child("status").child("conditions");
    std::erase_if(conditions.items(), [](const Json& one) { return one["type"].string() == "DeactivationTarget"; });
    changed = true;
  }
  if (preempted) changed = set(workload, "Preempted", true, text(*preempted), message, now) || changed;
  return changed;
}

bool tell_stopped(Json& workload, Instant now) {
  const Json* found = kube::find_condition(workload, "Evicted");
  const Json evicted = found != nullptr ? *found : Json::object({{"reason", "Pending"}, {"message", "The workload was stopped"}});
  const std::string &reason = evicted["reason"].string(), &message = evicted["message"].string();
  // How long it has run in all, for its limit.
  if (const Json* admitted = kube::find_condition(workload, "Admitted"); admitted != nullptr && (*admitted)["status"].string() == "True" && workload["spec"]["maximumExecutionTimeSeconds"].integer() > 0)
    if (const auto since = parse_time((*admitted)["lastTransitionTime"].string()); since && now > *since)
      workload.child("status").set("accumulatedPastExecutionTimeSeconds",
                                   workload["status"]["accumulatedPastExecutionTimeSeconds"].integer() + std::int64_t{std::chrono::duration_cast<std::chrono::seconds>(now - *since).count()});
  if (kube::find_condition(workload, kPodsReady) != nullptr) set(workload, kPodsReady, false, "WaitForStart", "Not all pods are ready or succeeded", now);
  reset_checks(workload, now, "Retry");  // for what it does not hold any more nothing is to be tried again
  bool changed = set(workload, "Requeued", reason == "Preempted" || reason == "NodeFailures", reason, message, now);
  changed = set(workload, "QuotaReserved", false, "PendingEvaluation", message, now) || changed;
  changed = set(workload, "Admitted", false, "NoReservation", "The workload has no reservation", now) || changed;
  return workload.child("status").erase("admission") || changed;
}

bool tell_finished(Json& workload, bool succeeded, const std::string& message, Instant now) {
  return set(workload, "Finished", true, succeeded ? "Succeeded" : "Failed", message, now);
}

std::string preemption_text(const Json& preemptor, VictimReason reason, const std::string& preemptor_path, const std::string& victim_path) {
  const auto or_unknown = [](const std::string& text) { return text.empty() ? std::string("UNKNOWN") : text; };
  const char* why = reason == VictimReason::InClusterQueue          ? "prioritization in the ClusterQueue"
                    : reason == VictimReason::InCohortReclamation   ? "reclamation within the cohort"
                    : reason == VictimReason::InCohortFairSharing   ? "Fair Sharing within the cohort"
                                                                    : "reclamation within the cohort while borrowing";
  return fmt::format("Preempted to accommodate a workload (UID: {}, JobUID: {}) due to {}; preemptor path: {}; preemptee path: {}", or_unknown(kube::uid_of(preemptor)),
                     or_unknown(preemptor["metadata"]["labels"]["kueue.x-k8s.io/job-uid"].string()), why, or_unknown(preemptor_path), or_unknown(victim_path));
}

bool holds_quota(const Json& workload) { return kube::condition_is_true(workload, "QuotaReserved") && workload["status"]["admission"].is_object(); }

}  // namespace fairlead::governance
