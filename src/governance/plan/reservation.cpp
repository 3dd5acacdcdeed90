// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/reservation.h"

#include <algorithm>

#include "governance/plan/teams.h"

namespace fairlead::governance {

TimeRules time_rules_of(const std::vector<kube::Json>& configs) {
  TimeRules out;
  const kube::Json* policy = policy_in_force(configs);
  if (policy == nullptr) return out;
  const auto time = [](const kube::Json& value) { return std::chrono::seconds(std::clamp<std::int64_t>(value.integer(), 1, 10 * 365 * 86'400)); };
  const kube::Json &from = (*policy)["spec"]["reservation"], &least = (*policy)["spec"]["preemption"]["minRunSeconds"];
  if (from["afterSeconds"].is_number()) out.reservation = Reservation{time(from["afterSeconds"]), time(from[from["holdSeconds"].is_number() ? "holdSeconds" : "afterSeconds"])};
  if (least.is_number() && least.integer() > 0) out.min_run = time(least);
  out.least_lost_work = (*policy)["spec"]["preemption"]["victims"].string() == "LeastLostWork";
  if (const kube::Json& past = (*policy)["spec"]["fairShareHistory"]; past["halfLifeSeconds"].is_number()) {
    out.past = PastRules{.half_life = time(past["halfLifeSeconds"])};
    if (past["strength"].is_number()) out.past->strength = std::clamp(past["strength"].number(), 0.0, 100.0);
  }
  return out;
}

}  // namespace fairlead::governance
