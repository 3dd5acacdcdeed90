// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/reservation.h"

#include <algorithm>

#include "governance/plan/teams.h"

namespace fairlead::governance {

std::optional<Reservation> reservation_of(const std::vector<kube::Json>& configs) {
  const kube::Json* policy = policy_in_force(configs);
  if (policy == nullptr) return std::nullopt;
  const kube::Json& from = (*policy)["spec"]["reservation"];
  if (!from["afterSeconds"].is_number()) return std::nullopt;
  const auto time = [](std::int64_t value) { return std::chrono::seconds(std::clamp<std::int64_t>(value, 1, 10 * 365 * 86'400)); };
  const std::chrono::seconds after = time(from["afterSeconds"].integer());
  return Reservation{after, from["holdSeconds"].is_number() ? time(from["holdSeconds"].integer()) : after};
}

}  // namespace fairlead::governance
