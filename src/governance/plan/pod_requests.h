// SPDX-License-Identifier: Apache-2.0
// What the pods of a template ask for, and whether that contradicts its limits or those of its namespace.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"
#include "governance/plan/kueue_read.h"
#include "kube/json.h"

namespace fairlead::governance {

// The most that a pod needs at once: its containers and side-cars, or an init container beside the side-cars before it; and its overhead. Limits count where no request is said, as in Kubernetes.
Result<NamedAmounts> pod_requests(const kube::Json& spec, const std::string& path);
// What counts of it: excluded names left out, transformations applied.
NamedAmounts transformed(const NamedAmounts& asked, const RequestRules& rules);
// Where requests pass limits; empty: nowhere.
Result<std::string> contradiction(const kube::Json& spec, const std::string& path);
// Where a pod passes the LimitRanges of its namespace; empty: nowhere.
Result<std::string> outside_limits(const kube::Json& spec, const LimitRangeSummary& ranges, const std::string& path);
// Adds one LimitRange to what holds in its namespace: the tightest of all counts.
Result<void> add_limit_range(const kube::Json& object, LimitRangeSummary& into);

}  // namespace fairlead::governance
