// SPDX-License-Identifier: Apache-2.0
// From when on, and for how long, what is given back is kept for who stands first (docs/design/037-reservation.md): spec.reservation of the SchedulerConfig in force.
#pragma once
#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "kube/json.h"

namespace fairlead::governance {

struct Reservation {
  std::chrono::seconds after{0};  // so long it has waited
  std::chrono::seconds hold{0};   // then others have their turn for `after`
  friend bool operator==(const Reservation&, const Reservation&) = default;
};
inline constexpr std::size_t most_kept_for = 64;  // at once, those who have waited longest: each costs something in every decision of its tree

std::optional<Reservation> reservation_of(const std::vector<kube::Json>& configs);  // none: nothing is kept

}  // namespace fairlead::governance
