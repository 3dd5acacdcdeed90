// SPDX-License-Identifier: Apache-2.0
// spec.maximumExecutionTimeSeconds of a Workload, in Kueue's words (pkg/controller/core/workload_controller.go, reconcileMaxExecutionTime): when it has been admitted for so long in all it is deactivated. Pure.
#pragma once
#include <chrono>
#include <optional>

#include "base/clock.h"
#include "governance/plan/books.h"
#include "kube/json.h"

namespace fairlead::governance {

inline constexpr const char* kDeactivationTarget = "DeactivationTarget";

struct RunLimitPlan {
  std::optional<std::chrono::nanoseconds> later;  // look again after this time
  std::optional<kube::Json> status;               // the object with a status that is to be written: it has run out
  std::optional<kube::Json> spec;                 // the object with spec.active false: what was said is done
  std::optional<Note> note;                       // with `status`
};
RunLimitPlan plan_run_limit(const kube::Json& workload, Instant now);

// That it is deactivated, and what for where that was not a person.
std::string deactivation_text(const kube::Json& workload);

}  // namespace fairlead::governance
