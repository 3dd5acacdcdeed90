// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/run_limit.h"

#include <fmt/format.h>

#include <utility>

#include "kube/object.h"

namespace fairlead::governance {

using kube::Json;
using std::chrono::seconds;

RunLimitPlan plan_run_limit(const Json& workload, Instant now) {
  RunLimitPlan out;
  if (kube::deleting(workload) || kube::condition_is_true(workload, "Finished") || !workload["spec"]["active"].boolean(true)) return out;
  if (kube::condition_is_true(workload, kDeactivationTarget)) {
    out.spec = workload;
    out.spec->child("spec").set("active", false);
    return out;
  }
  const std::int64_t most = workload["spec"]["maximumExecutionTimeSeconds"].integer();
  const Json* admitted = kube::find_condition(workload, "Admitted");
  if (most <= 0 || admitted == nullptr || (*admitted)["status"].string() != "True") return out;
  const auto since = parse_time((*admitted)["lastTransitionTime"].string());
  if (!since) return out;  // nobody knows for how long: it runs on
  const std::chrono::nanoseconds left = seconds(most - workload["status"]["accumulatedPastExecutionTimeSeconds"].integer()) - (now - *since);
  if (left > left.zero()) {
    out.later = left;
    return out;
  }
  out.status = workload;
  kube::set_condition(*out.status, {.type = kDeactivationTarget, .status = "True", .reason = "MaximumExecutionTimeExceeded", .message = "exceeding the maximum execution time"}, now);
  out.status->child("status").erase("accumulatedPastExecutionTimeSeconds");
  out.note = Note{true, "MaximumExecutionTimeExceeded", fmt::format("The maximum execution time ({}s) exceeded", most)};
  return out;
}

std::string deactivation_text(const Json& workload) {
  const Json* target = kube::find_condition(workload, kDeactivationTarget);
  const std::string cause = target == nullptr ? "" : (*target)["message"].string();
  return cause.empty() ? "The workload is deactivated" : "The workload is deactivated due to " + cause;
}

}  // namespace fairlead::governance
