// SPDX-License-Identifier: Apache-2.0
// A pod, or a group of pods, as a Workload, and the decision on that carried back: held by a scheduling gate until it is admitted, then let go to the nodes of its flavors, deleted when it is evicted.
// Pure: one step at a time, from what is there; after any step, and after a crash before or behind it, the next one follows from the objects alone. docs/design/031-pods-in-queues.md.
#pragma once
#include <string>
#include <vector>

#include "governance/plan/owner_workload.h"

namespace fairlead::governance {

inline constexpr const char* kAdmissionGate = "kueue.x-k8s.io/admission";
inline constexpr const char* kManaged = api::queue_managed;
// Label of a pod of a training job beyond what that has quota for: it asks for its own, and is taken back alone (docs/design/055).
inline constexpr const char* kElasticMember = "fairlead.dev/elastic-member";
inline constexpr const char* kGroupLabel = "kueue.x-k8s.io/pod-group-name";
inline constexpr const char* kGroupCount = "kueue.x-k8s.io/pod-group-total-count";         // annotations from here on
inline constexpr const char* kGroupFast = "kueue.x-k8s.io/pod-group-fast-admission";
inline constexpr const char* kGroupServing = "kueue.x-k8s.io/pod-group-serving";
inline constexpr const char* kRetriable = "kueue.x-k8s.io/retriable-in-group";
inline constexpr const char* kRoleHash = "kueue.x-k8s.io/role-hash";

struct PodsInput {
  std::string group;                   // empty: one pod alone
  std::vector<kube::Json> pods;        // of the group, by name; or the one, if it is there
  std::vector<kube::Json> workloads;   // whose controller is a pod of this name; or the one with the group's name
  FlavorsByName flavors;               // that their admissions name
  JobPriority priority;              // of the first pod
  bool tells_ready = false;            // its Workload says whether its pods are ready
  Instant now{};
};
OwnerPlan plan_pods(const PodsInput& input);

std::string pod_workload_name(const kube::Json& pod);
bool is_group_workload(const kube::Json& workload);
// What a queue has to do with it: it has a queue, and waits behind the gate or did.
bool is_queued_pod(const kube::Json& pod);
// Does it use the quota of its Workload?
bool uses_quota(const kube::Json& pod);

}  // namespace fairlead::governance
