// SPDX-License-Identifier: Apache-2.0
// What a pod alone and a group of pods have in common: what is read of a pod, and single steps. For pod_workload.cpp and pod_group.cpp.
#pragma once
#include <string>

#include "governance/plan/pod_workload.h"

namespace fairlead::governance {

OwnerPlan plan_group(const PodsInput& in);

namespace pod_steps {

const std::string& queue_of(const kube::Json& pod);
bool is_gated(const kube::Json& pod);       // by our gate
bool has_label(const kube::Json& pod);
bool has_finalizer(const kube::Json& pod);
bool is_adopted(const kube::Json& pod);     // label, finalizer, and the hash of its role
bool has_ended(const kube::Json& pod);
bool is_ready(const kube::Json& pod);       // or has succeeded
const std::string& annotation(const kube::Json& pod, const char* name);
// Pods of one role ask for the same. As the annotation has it: later the pod has the node selectors of its flavor. Empty: its requests cannot be read.
std::string role_of(const kube::Json& pod);
kube::Json pod_set(const kube::Json& pod, const std::string& name, std::int64_t count);

std::string no_gate();
OwnerPlan adopt(const kube::Json& pod);
OwnerPlan create(kube::Json workload, const kube::Json& pod);  // with what the pod says of its run time
OwnerPlan update_waiting(const kube::Json& workload, const kube::Json& wanted);
OwnerPlan release_finalizer(const kube::Json& pod);
// others: all of its pod set that have not ended, and itself.
OwnerPlan lift_gate(const kube::Json& pod, const kube::Json& workload, const std::string& pod_set, const FlavorsByName& flavors, const std::vector<const kube::Json*>& others);
std::string topology_problem(const kube::Json& pod);  // what it says of its place that cannot be; empty: nothing
enum class Stop { WorkloadDeleted, Evicted, NoWorkload, NotAdmitted };
// Says why in its status, then deletes it.
OwnerPlan stop(const kube::Json& pod, Stop why, const std::string& message, Instant now);

}  // namespace pod_steps
}  // namespace fairlead::governance
