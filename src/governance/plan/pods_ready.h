// SPDX-License-Identifier: Apache-2.0
// All or nothing by time, in Kueue's words (waitForPodsReady; pkg/controller/core/workload_controller.go, reconcileNotReadyTimeout; pkg/controller/jobframework/reconciler.go, generatePodsReadyCondition): a workload whose pods are not all
// ready in time gives its quota back, and stands in line again after a time that doubles with each try. Pure. docs/design/035-pods-ready.md.
#pragma once
#include <chrono>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "governance/plan/books.h"
#include "kube/json.h"

namespace fairlead::governance {

inline constexpr const char* kPodsReady = "PodsReady";
inline constexpr const char* kPodsReadyTimeout = "PodsReadyTimeout";

// spec.waitForPodsReady of the SchedulerConfig in force.
struct ReadyRules {
  std::chrono::seconds timeout{300};             // from the admission
  std::optional<std::chrono::seconds> recovery;  // from the loss of a pod of one that ran; none: that is not watched
  std::optional<std::int64_t> limit;             // tries after the first; none: no end
  std::chrono::seconds base{60}, most{3600};     // of the time out of line
};
// None: nobody has to be ready in time, and nobody tells whether he is.
std::optional<ReadyRules> ready_rules(const std::vector<kube::Json>& configs);

// Condition PodsReady of an admitted Workload. False: it says so already.
bool tell_pods_ready(kube::Json& workload, bool ready, Instant now);

struct ReadyPlan {
  std::optional<std::chrono::nanoseconds> later;  // look again after this time
  std::optional<kube::Json> status;               // the object with a status that is to be written
  std::optional<Note> note;                       // with it
};
// Of a Workload about whose pods nothing was told nothing follows.
ReadyPlan plan_pods_ready(const kube::Json& workload, const std::optional<ReadyRules>& rules, Instant now);

}  // namespace fairlead::governance
