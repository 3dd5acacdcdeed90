// SPDX-License-Identifier: Apache-2.0
#include "apiserver/budget_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "kube/object.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

// An eviction whose pod is not deleted by then did not happen.
constexpr std::chrono::minutes forgotten_after{2};

// "50%" of `total`, rounded up; a plain number as it is.
std::int64_t scaled(const Json& value, std::int64_t total) {
  if (!value.is_string()) return value.integer();
  const std::int64_t percent = std::atoll(value.string().c_str());
  return (total * percent + 99) / 100;
}

Json condition(bool allowed, const Json& status, std::int64_t generation, Instant now) {
  Json made = Json::object({{"type", "DisruptionAllowed"}, {"status", allowed ? "True" : "False"}, {"observedGeneration", generation}, {"lastTransitionTime", print_time(now)},
                            {"reason", allowed ? "SufficientPods" : "InsufficientPods"}, {"message", ""}});
  for (const Json& old : status["conditions"].items())
    if (old["type"] == made["type"] && old["status"] == made["status"]) made.set("lastTransitionTime", old["lastTransitionTime"]);
  return made;
}

}  // namespace

BudgetPlan plan_budget(const Json& budget, const std::vector<Json>& pods, Instant now) {
  BudgetPlan plan;
  const Json& old = budget["status"];
  Json disrupted = Json::object();
  std::int64_t healthy = 0;
  const std::int64_t expected = static_cast<std::int64_t>(
      std::count_if(pods.begin(), pods.end(), [](const Json& pod) { return pod["status"]["phase"].string() != "Succeeded" && pod["status"]["phase"].string() != "Failed"; }));
  for (const Json& pod : pods) {
    if (kube::deleting(pod)) continue;
    if (const Json* when = old["disruptedPods"].find(kube::name_of(pod))) {
      const auto at = parse_time(when->string());
      if (at && *at + forgotten_after > now) {
        disrupted.set(kube::name_of(pod), *when);
        plan.look_again_at = std::min(plan.look_again_at.value_or(*at + forgotten_after), *at + forgotten_after);
        continue;
      }
    }
    if (kube::condition_is_true(pod, "Ready")) ++healthy;
  }
  const Json& spec = budget["spec"];
  std::int64_t desired = 0;
  if (spec.has("maxUnavailable")) desired = std::max<std::int64_t>(0, expected - scaled(spec["maxUnavailable"], expected));
  else if (spec.has("minAvailable")) desired = scaled(spec["minAvailable"], expected);
  const std::int64_t allowed = expected <= 0 ? 0 : std::max<std::int64_t>(0, healthy - desired);
  const std::int64_t generation = budget["metadata"]["generation"].integer();
  plan.status = Json::object({{"observedGeneration", generation}});
  if (!disrupted.members().empty()) plan.status.set("disruptedPods", std::move(disrupted));
  plan.status.set("disruptionsAllowed", allowed).set("currentHealthy", healthy).set("desiredHealthy", desired).set("expectedPods", expected);
  plan.status.set("conditions", Json::array({condition(allowed > 0, old, generation, now)}));
  return plan;
}

EvictionVerdict judge_eviction(const Json& pod, const Json& budget) {
  using What = EvictionVerdict::What;
  const Json& status = budget["status"];
  const std::string& phase = pod["status"]["phase"].string();
  if (phase == "Succeeded" || phase == "Failed" || phase == "Pending" || kube::deleting(pod)) return {What::Delete, ""};
  const bool ready = kube::condition_is_true(pod, "Ready");
  const std::string& policy = budget["spec"]["unhealthyPodEvictionPolicy"].string();
  // A pod that is not ready adds nothing to what the budget protects.
  if (!ready && policy == "AlwaysAllow") return {What::Delete, ""};
  if (!ready && status["currentHealthy"].integer() >= status["desiredHealthy"].integer() && status["desiredHealthy"].integer() > 0) return {What::Delete, ""};
  const std::string refused = "Cannot evict pod as it would violate the pod's disruption budget.";
  if (status["observedGeneration"].integer() < budget["metadata"]["generation"].integer())
    return {What::Refuse, fmt::format("{}\nThe disruption budget {} is still being processed by the server.", refused, kube::name_of(budget))};
  if (status["disruptionsAllowed"].integer() <= 0)
    return {What::Refuse, fmt::format("{}\nThe disruption budget {} needs {} healthy pods and has {} currently", refused, kube::name_of(budget), status["desiredHealthy"].integer(),
                                      status["currentHealthy"].integer())};
  return {What::Charge, ""};
}

Json charge_budget(const Json& budget, const std::string& pod, Instant now) {
  Json status = budget["status"];
  const std::int64_t left = status["disruptionsAllowed"].integer() - 1;
  status.set("disruptionsAllowed", left);
  Json& disrupted = status.child("disruptedPods");
  if (!disrupted.is_object()) disrupted = Json::object();
  disrupted.set(pod, print_time(now));
  if (left == 0) status.set("conditions", Json::array({condition(false, status, budget["metadata"]["generation"].integer(), now)}));
  return status;
}

}  // namespace fairlead::apiserver
