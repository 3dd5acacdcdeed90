// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/pods_ready.h"

#include <fmt/format.h>

#include <algorithm>

#include "governance/plan/run_limit.h"
#include "governance/plan/teams.h"
#include "governance/plan/workload_status.h"
#include "kube/object.h"

namespace fairlead::governance {

using kube::Json;
using std::chrono::seconds;

namespace {

seconds wait_of_try(const ReadyRules& rules, std::int64_t number) {
  seconds wait = std::min(rules.base, rules.most);
  for (std::int64_t i = 1; i < number && wait < rules.most; ++i) wait = std::min(2 * wait, rules.most);
  return wait;
}

}  // namespace

std::optional<ReadyRules> ready_rules(const std::vector<Json>& configs) {
  const Json* policy = policy_in_force(configs);
  if (policy == nullptr) return std::nullopt;
  const Json& from = (*policy)["spec"]["waitForPodsReady"];
  if (!from.is_object()) return std::nullopt;
  ReadyRules out;
  const auto time_in = [](const Json& value, seconds otherwise) { return seconds(std::clamp<std::int64_t>(value.integer(otherwise.count()), 0, 10 * 365 * 86'400)); };
  out.timeout = time_in(from["timeoutSeconds"], out.timeout);
  const seconds recovery = time_in(from["recoveryTimeoutSeconds"], out.timeout);
  if (recovery > recovery.zero()) out.recovery = recovery;
  const Json& again = from["requeuingStrategy"];
  if (!again["backoffLimitCount"].is_null()) out.limit = again["backoffLimitCount"].integer();
  out.base = time_in(again["backoffBaseSeconds"], out.base);
  out.most = time_in(again["backoffMaxSeconds"], out.most);
  return out;
}

bool tell_pods_ready(Json& workload, bool ready, Instant now) {
  const Json* before = kube::find_condition(workload, kPodsReady);
  const std::string was = before == nullptr ? "" : (*before)["reason"].string();
  const bool was_ready = before != nullptr && (*before)["status"].string() == "True";
  if (ready) {
    const bool recovered = was == "WaitForRecovery" || was == "Recovered";
    return kube::set_condition(workload, {.type = kPodsReady, .status = "True", .reason = recovered ? "Recovered" : "Started", .message = "All pods reached readiness and the workload is running"}, now);
  }
  if (was_ready || was == "WaitForRecovery") return kube::set_condition(workload, {.type = kPodsReady, .status = "False", .reason = "WaitForRecovery", .message = "At least one pod has failed, waiting for recovery"}, now);
  return kube::set_condition(workload, {.type = kPodsReady, .status = "False", .reason = "WaitForStart", .message = "Not all pods are ready or succeeded"}, now);
}

ReadyPlan plan_pods_ready(const Json& workload, const std::optional<ReadyRules>& rules, Instant now) {
  ReadyPlan out;
  if (kube::deleting(workload) || kube::condition_is_true(workload, "Finished")) return out;
  const Json& tries = workload["status"]["requeueState"];
  const bool holds = holds_quota(workload);
  if (!workload["spec"]["active"].boolean(true)) {  // who activates it again begins anew
    if (tries.is_null() || holds) return out;
    out.status = workload;
    out.status->child("status").erase("requeueState");
    return out;
  }
  if (!holds) {
    const Json* requeued = kube::find_condition(workload, "Requeued");
    if (requeued == nullptr || (*requeued)["status"].string() != "False" || (*requeued)["reason"].string() != kPodsReadyTimeout) return out;
    if (const auto at = parse_time(tries["requeueAt"].string()); at && *at > now) {
      out.later = *at - now;
      return out;
    }
    out.status = workload;
    if (tries.is_object()) out.status->child("status").child("requeueState").erase("requeueAt");
    kube::set_condition(*out.status, {.type = "Requeued", .status = "True", .reason = "BackoffFinished", .message = "The workload backoff was finished"}, now);
    return out;
  }
  const Json *pods = kube::find_condition(workload, kPodsReady), *admitted = kube::find_condition(workload, "Admitted");
  if (!rules || pods == nullptr || (*pods)["status"].string() != "False" || admitted == nullptr || (*admitted)["status"].string() != "True") return out;
  if (kube::condition_is_true(workload, "Evicted") || kube::condition_is_true(workload, kDeactivationTarget)) return out;
  const bool recovers = (*pods)["reason"].string() == "WaitForRecovery";
  if (recovers && !rules->recovery) return out;
  const auto since = parse_time((recovers ? *pods : *admitted)["lastTransitionTime"].string());
  if (!since) return out;  // nobody knows for how long: it runs on
  const std::chrono::nanoseconds left = (recovers ? *rules->recovery : rules->timeout) - (now - *since);
  if (left > left.zero()) {
    out.later = left;
    return out;
  }
  out.status = workload;
  const std::int64_t number = tries["count"].integer() + 1;
  if (rules->limit && number > *rules->limit) {
    const std::string why = "exceeding the maximum number of re-queuing retries";
    kube::set_condition(*out.status, {.type = kDeactivationTarget, .status = "True", .reason = "RequeuingLimitExceeded", .message = why}, now);
    out.note = Note{true, "RequeuingLimitExceeded", fmt::format("Its pods were not ready in time once more, {} the {} of its SchedulerConfig", why, *rules->limit)};
    return out;
  }
  const seconds wait = wait_of_try(*rules, number);
  const std::string message = "Exceeded the PodsReady timeout " + kube::key_of(workload).text();
  tell_evicted(*out.status, kPodsReadyTimeout, message, std::nullopt, now);
  Json& state = out.status->child("status").child("requeueState");
  state.set("count", number).set("requeueAt", print_time(now + wait));
  out.note = Note{true, std::string("EvictedDueTo") + kPodsReadyTimeout, fmt::format("{}; it stands in line again after {} s", message, wait.count())};
  return out;
}

}  // namespace fairlead::governance
