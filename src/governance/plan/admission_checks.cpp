// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/admission_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "governance/plan/run_limit.h"
#include "governance/plan/workload_status.h"
#include "kube/object.h"

namespace fairlead::governance {

using kube::Json;
using std::chrono::seconds;

namespace {

const std::vector<Json>& entries(const Json& workload) { return workload["status"]["admissionChecks"].items(); }

std::vector<const Json*> in_state(const Json& workload, const char* state) {
  std::vector<const Json*> out;
  for (const Json& one : entries(workload))
    if (one["state"].string() == state) out.push_back(&one);
  std::sort(out.begin(), out.end(), [](const Json* a, const Json* b) { return (*a)["name"].string() < (*b)["name"].string(); });
  return out;
}

// As Kueue says it.
std::string text_of(const std::vector<const Json*>& checks, const char* state) {
  std::vector<std::string> parts;
  for (const Json* one : checks) parts.push_back((*one)["message"].string().empty() ? fmt::format("\"{}\"", (*one)["name"].string()) : fmt::format("\"{}\" ({})", (*one)["name"].string(), (*one)["message"].string()));
  return fmt::format("AdmissionCheck{} in {} state: {}", checks.size() > 1 ? "s" : "", state, fmt::join(parts, "; "));
}

std::optional<Instant> back_at(const std::vector<const Json*>& checks) {
  std::optional<Instant> out;
  for (const Json* one : checks) {
    const auto since = parse_time((*one)["lastTransitionTime"].string());
    if (!since || !(*one)["requeueAfterSeconds"].is_number()) continue;
    const Instant at = *since + seconds(std::clamp<std::int64_t>((*one)["requeueAfterSeconds"].integer(), 0, 10LL * 365 * 86'400));
    if (!out || at > *out) out = at;
  }
  return out;
}

// Its time out of line.
ChecksPlan plan_return(const Json& workload, Instant now) {
  ChecksPlan out;
  const Json* requeued = kube::find_condition(workload, "Requeued");
  if (requeued == nullptr || (*requeued)["status"].string() != "False" || (*requeued)["reason"].string() != kAdmissionCheck) return out;
  const Json& state = workload["status"]["requeueState"];
  if (const auto at = parse_time(state["requeueAt"].string()); at && *at > now) {
    out.later = *at - now;
    return out;
  }
  out.status = workload;
  if (state.is_object()) out.status->child("status").child("requeueState").erase("requeueAt");
  kube::set_condition(*out.status, {.type = "Requeued", .status = "True", .reason = "BackoffFinished", .message = "The workload backoff was finished"}, now);
  return out;
}

}  // namespace

std::set<std::string> flavors_of(const Json& admission) {
  std::set<std::string> out;
  for (const Json& pods : admission["podSetAssignments"].items())
    for (const auto& [resource, flavor] : pods["flavors"].members()) out.insert(flavor.string());
  return out;
}

std::set<std::string> checks_of(const QueueSpec& queue, const std::optional<std::set<std::string>>& flavors) {
  std::set<std::string> out(queue.checks.begin(), queue.checks.end());
  if (flavors && flavors->empty()) return {};  // nothing of it is counted
  std::set<std::string> all;
  for (const ResourceGroup& group : queue.groups)
    for (const QueueFlavor& flavor : group.flavors) all.insert(flavor.name);
  for (const auto& [name, on] : queue.checks_on) {
    const auto listed = [&of = on](const std::string& flavor) { return std::find(of.begin(), of.end(), flavor) != of.end(); };
    if (on.empty() || (flavors ? std::any_of(flavors->begin(), flavors->end(), listed) : std::all_of(all.begin(), all.end(), listed))) out.insert(name);
  }
  return out;
}

bool tell_checks(Json& workload, const std::set<std::string>& names, Instant now) {
  std::vector<Json> next;
  for (const std::string& name : names) {
    const auto at = std::ranges::find_if(entries(workload), [&](const Json& one) { return one["name"].string() == name; });
    if (at != entries(workload).end()) next.push_back(*at);
    else next.push_back(Json::object({{"name", name}, {"state", "Pending"}, {"message", ""}, {"lastTransitionTime", print_time(now)}}));
  }
  if (next == entries(workload)) return false;
  if (next.empty()) workload.child("status").erase("admissionChecks");
  else workload.child("status").set("admissionChecks", Json::array(std::move(next)));
  return true;
}

bool checks_ready(const Json& workload) {
  return std::ranges::all_of(entries(workload), [](const Json& one) { return one["state"].string() == "Ready"; });
}

std::string unready_checks(const Json& workload) {
  std::vector<std::string> parts;
  for (const Json& one : entries(workload))
    if (one["state"].string() != "Ready") parts.push_back(fmt::format("{} ({}{})", one["name"].string(), one["state"].string(), one["message"].string().empty() ? "" : ": " + one["message"].string()));
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool reset_checks(Json& workload, Instant now, std::string_view only) {
  const auto stays = [&](const Json& one) { return one["state"].string() == "Pending" || (!only.empty() && one["state"].string() != only); };
  if (std::ranges::all_of(entries(workload), stays)) return false;
  for (Json& one : workload.child("status").child("admissionChecks").items()) {
    const std::string was = one["state"].string();
    if (stays(one)) continue;
    Json next = Json::object({{"name", one["name"]}, {"state", "Pending"}, {"message", "Reset to Pending after eviction. Previously: " + was}, {"lastTransitionTime", print_time(now)}});
    if (one["requeueAfterSeconds"].is_number()) next.set("requeueAfterSeconds", one["requeueAfterSeconds"]);
    if (was == "Retry") next.set("retryCount", one["retryCount"].integer() + 1);
    one = std::move(next);
  }
  return true;
}

ChecksPlan plan_checks(const Json& workload, const QueueSpec* queue, Instant now) {
  ChecksPlan out;
  if (kube::deleting(workload) || kube::condition_is_true(workload, "Finished")) return out;
  const bool holds = holds_quota(workload);
  if (!workload["spec"]["active"].boolean(true)) {  // who activates it again is asked anew
    if (holds) return out;
    Json next = workload;
    bool changed = reset_checks(next, now);
    // Of one that never had quota nobody else says it and takes the target away, which would deactivate it for ever.
    if (kube::find_condition(next, kDeactivationTarget) != nullptr)
      changed = tell_evicted(next, "Deactivated", deactivation_text(next), std::nullopt, now) || changed;
    if (changed) out.status = std::move(next);
    return out;
  }
  if (kube::condition_is_true(workload, kDeactivationTarget)) return out;
  if (holds && kube::condition_is_true(workload, "Evicted")) return out;  // until it has stopped
  Json next = workload;
  bool changed = queue != nullptr && tell_checks(next, checks_of(*queue, holds ? std::optional(flavors_of(workload["status"]["admission"])) : std::nullopt), now);
  const auto rejected = in_state(next, "Rejected");
  if (!holds && rejected.empty()) {
    out = plan_return(next, now);
    if (!out.status && changed) out.status = std::move(next);
    return out;
  }
  if (!rejected.empty()) {
    const std::string message = text_of(rejected, "Rejected");
    kube::set_condition(next, {.type = kDeactivationTarget, .status = "True", .reason = kAdmissionCheck, .message = message}, now);
    out.notes.push_back({true, "AdmissionCheckRejected", "Deactivated due to " + message});
    changed = true;
  } else if (const auto retry = in_state(next, "Retry"); !retry.empty()) {
    const std::string message = "Evicted due to " + text_of(retry, "Retry");
    const auto at = back_at(retry);
    tell_evicted(next, kAdmissionCheck, message, std::nullopt, now);
    if (at && *at > now) next.child("status").child("requeueState").set("requeueAt", print_time(*at));
    out.notes.push_back({false, std::string("EvictedDueTo") + kAdmissionCheck, message});
    changed = true;
  } else if (const bool admitted = kube::condition_is_true(next, "Admitted"); !admitted && checks_ready(next)) {
    kube::set_condition(next, {.type = "Admitted", .status = "True", .reason = "Admitted", .message = "The workload is admitted"}, now);
    const Json* reserved = kube::find_condition(next, "QuotaReserved");
    const auto since = parse_time((*reserved)["lastTransitionTime"].string());
    const auto waited = since && now > *since ? std::chrono::duration_cast<seconds>(now - *since).count() : 0;
    out.notes.push_back({false, "Admitted", fmt::format("Admitted by ClusterQueue {}, wait time since reservation was {}s", next["status"]["admission"]["clusterQueue"].string(), waited)});
    changed = true;
  }
  if (changed) out.status = std::move(next);
  return out;
}

}  // namespace fairlead::governance
