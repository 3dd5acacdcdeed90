// SPDX-License-Identifier: Apache-2.0
// What the SchedulerConfig in force says of time. spec.reservation: from when on, and for how long, what is given back is kept for who stands first (docs/design/037-reservation.md). spec.preemption.minRunSeconds: how long a job runs
// before it may be pre-empted (docs/design/038-minimum-run-time.md). spec.preemption.victims: who of equal priority goes first (docs/design/043-lost-work.md). spec.fairShareHistory: weights follow what was used lately (docs/design/045-usage-history.md).
#pragma once
#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "governance/plan/past_use.h"
#include "kube/json.h"

namespace fairlead::governance {

struct Reservation {
  std::chrono::seconds after{0};  // so long it has waited
  std::chrono::seconds hold{0};   // then others have their turn for `after`
  friend bool operator==(const Reservation&, const Reservation&) = default;
};
inline constexpr std::size_t most_kept_for = 64;  // at once, those who have waited longest: each costs something in every decision of its tree

// What of the policy the books follow.
struct TimeRules {
  std::optional<Reservation> reservation;       // none: nothing is kept
  std::optional<std::chrono::seconds> min_run;  // none: whoever runs may be pre-empted
  bool least_lost_work = false;                 // who has saved its work last is pre-empted first
  std::optional<PastRules> past;                // none: weights are as they are written
  friend bool operator==(const TimeRules&, const TimeRules&) = default;
};
TimeRules time_rules_of(const std::vector<kube::Json>& configs);

}  // namespace fairlead::governance
