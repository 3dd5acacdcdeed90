// SPDX-License-Identifier: Apache-2.0
// What a Workload's status says, in Kueue's words: conditions QuotaReserved, Admitted, Evicted, Preempted, Requeued, Finished, and the admission. Each changes the object's status and tells whether anything is new.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "governance/plan/model.h"
#include "governance/plan/victims.h"
#include "kube/json.h"

namespace fairlead::governance {

// status.admission, quantities canonical.
kube::Json admission_of(const Admission& admission);

// Quota is reserved; an eviction before that is told as past. With it the workload is admitted, unless one of these checks is not ready.
bool tell_admitted(kube::Json& workload, const Admission& admission, const std::set<std::string>& checks, Instant now);
// Pods of its pod sets have another place, because these nodes are lost; its admission says so.
bool tell_moved(kube::Json& workload, const std::vector<std::optional<TopologyAssignment>>& places, const std::vector<std::string>& lost);
// It has no quota, for this reason. One that had been evicted for a cause that is gone is told to be back in the queue.
bool tell_waiting(kube::Json& workload, std::string_view reason, const std::string& message, Instant now);
// It is to stop; its quota stays reserved until it has. `preempted`: for another workload.
bool tell_evicted(kube::Json& workload, std::string_view reason, const std::string& message, std::optional<VictimReason> preempted, Instant now);
// What was evicted has stopped: the reservation is given back.
bool tell_stopped(kube::Json& workload, Instant now);
bool tell_finished(kube::Json& workload, bool succeeded, const std::string& message, Instant now);

// "Preempted to accommodate a workload (UID: ..., JobUID: ...) due to ...; preemptor path: /root/team-a; preemptee path: /root/team-b"
std::string preemption_text(const kube::Json& preemptor, VictimReason reason, const std::string& preemptor_path, const std::string& victim_path);

bool holds_quota(const kube::Json& workload);  // reserved, with an admission

}  // namespace fairlead::governance
