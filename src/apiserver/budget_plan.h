// SPDX-License-Identifier: Apache-2.0
// PodDisruptionBudgets: how many pods may be disrupted, and whether this one may be evicted. Pure; rules and words of Kubernetes (pkg/controller/disruption and
// pkg/registry/core/pod/rest/eviction.go).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kube/json.h"

namespace fairlead::apiserver {

struct BudgetPlan {
  kube::Json status;                       // whole
  std::optional<Instant> look_again_at;    // when an eviction that nothing came of is forgotten
};
// `pods`: those that the budget's selector means. Pods are their own scale: `expectedPods` is how many there are.
BudgetPlan plan_budget(const kube::Json& budget, const std::vector<kube::Json>& pods, Instant now);

// What an eviction does.
struct EvictionVerdict {
  enum class What { Delete, Charge, Refuse } what = What::Delete;  // Charge: take one off `disruptionsAllowed`, then delete
  std::string why;                                                  // of Refuse: the message and, after a newline, the cause
};
EvictionVerdict judge_eviction(const kube::Json& pod, const kube::Json& budget);
// The budget's status with this pod's eviction in it.
kube::Json charge_budget(const kube::Json& budget, const std::string& pod, Instant now);

}  // namespace fairlead::apiserver
