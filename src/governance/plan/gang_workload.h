// SPDX-License-Identifier: Apache-2.0
// Objects of other controllers that stand for many pods, and wait while they are suspended, as Workloads: JobSet, HyperPodPyTorchJob, PyTorchJob, MPIJob. One adapter, told by a table what each kind looks like.
// Pure: one step at a time, from what is there. docs/design/041-gangs-of-other-controllers.md. Facts of the kinds: Kueue's integrations (v0.20), the types of sagemaker-hyperpod 3.0.
#pragma once
#include <string>
#include <vector>

#include "governance/plan/owner_workload.h"
#include "kube/object.h"

namespace fairlead::governance {

struct GangKind {
  kube::Resource resource;
  std::string suspend;             // path of the switch
  std::string parts;               // path of what has pod templates: a list of named ones, or members by name
  std::vector<std::string> order;  // of members; empty: it is a list
  std::string pods;                // path of the pod template within a part
  bool of_jobs = false;            // each replica is a Job with pods of its own
  std::string pods_label;          // of its pods, with its name; empty: they are its own by ownership
  std::string index_label, sub_index_label;  // of its pods: their rank (pod_places.h)
  std::vector<std::string> succeeded, failed, running;  // conditions
  std::string deadline;            // path of how many seconds it may run; empty: it does not say
  std::string statuses;            // path of how many pods (or Jobs) of each part are active, ready, have succeeded; empty: it does not say
};
const std::vector<GangKind>& gang_kinds();
// Of one of these kinds, whatever its version.
bool is_gang(const std::string& api_version, const std::string& kind);

struct GangInput {
  kube::Json gang;                     // null: gone
  std::vector<kube::Json> workloads;   // whose controller is one of this kind and name
  FlavorsByName flavors;               // that their admissions name
  JobPriority priority;
  bool tells_ready = false;
  Instant now{};
};
OwnerPlan plan_gang(const GangKind& kind, const GangInput& input);

bool same_gang_wishes(const kube::Json& a, const kube::Json& b);  // pod sets that ask for the same
std::string gang_workload_name(const GangKind& kind, const kube::Json& gang);
std::string priority_class_of_pods(const GangKind& kind, const kube::Json& gang);  // of the first part that names one

}  // namespace fairlead::governance
