// SPDX-License-Identifier: Apache-2.0
// Programs of the site that have a say before a workload starts: Kueue's AdmissionChecks (apis/kueue/v1beta2/admissioncheck_types.go, pkg/controller/core/workload_controller.go). Pure. docs/design/040-admission-checks.md.
#pragma once
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "governance/plan/books.h"
#include "governance/plan/model.h"
#include "kube/json.h"

namespace fairlead::governance {

inline constexpr const char* kAdmissionCheck = "AdmissionCheck";  // reason of an eviction

// By name. Of a workload with these flavors; none: of one that waits, whatever its flavors will be.
std::set<std::string> checks_of(const QueueSpec& queue, const std::optional<std::set<std::string>>& flavors);
std::set<std::string> flavors_of(const kube::Json& admission);  // status.admission

// status.admissionChecks as it is to be: one entry each, by name; new ones are Pending. False: it is so.
bool tell_checks(kube::Json& workload, const std::set<std::string>& names, Instant now);
bool checks_ready(const kube::Json& workload);  // all of the entries
// "budget (Pending), licence (Retry: none is left)": those that are not ready. Empty: all are.
std::string unready_checks(const kube::Json& workload);
// With an eviction: what was said before is to be said anew. `only`: of those in this state.
bool reset_checks(kube::Json& workload, Instant now, std::string_view only = "");

struct ChecksPlan {
  std::optional<std::chrono::nanoseconds> later;  // look again after this time
  std::optional<kube::Json> status;               // the object with a status that is to be written
  std::vector<Note> notes;                        // with it
};
// `queue`: the ClusterQueue that has admitted it, or that it waits for; none: it is not there, and nothing changes.
ChecksPlan plan_checks(const kube::Json& workload, const QueueSpec* queue, Instant now);

}  // namespace fairlead::governance
