// SPDX-License-Identifier: Apache-2.0
// What the adapters of Jobs and of pods share: steps between an owner and its Workload, one at a time, and the parts that such steps are made of. Pure. docs/design/027-queue-objects.md.
#pragma once
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "governance/plan/books.h"
#include "kube/json.h"

namespace fairlead::governance {

inline constexpr const char* kQueueLabel = "kueue.x-k8s.io/queue-name";
inline constexpr const char* kPriorityLabel = "kueue.x-k8s.io/priority-class";
inline constexpr const char* kJobUidLabel = "kueue.x-k8s.io/job-uid";
inline constexpr const char *kPodSetLabel = "kueue.x-k8s.io/podset", *kClusterQueueLabel = "kueue.x-k8s.io/cluster-queue-name", *kLocalQueueLabel = "kueue.x-k8s.io/local-queue-name";  // of pods that were admitted
inline constexpr const char* kGroupWorkload = "kueue.x-k8s.io/is-group-workload";  // annotation of a Workload that many own, none as its controller

struct JobPriority {
  std::int64_t value = 0;
  kube::Json ref;          // spec.priorityClassRef; null: none
  std::string problem;     // a class that is not there; with the list of those that are
};
// Where classes are looked up, by kind: "WorkloadPriorityClass", "PriorityClass" (of pods).
struct PriorityClasses {
  std::function<std::optional<kube::Json>(const std::string& kind, const std::string& name)> find;
  std::function<void(const std::string& kind, const std::function<void(const kube::Json&)>& to)> each;
};
// Of the class that its label names; else of that of its pods; else of the cluster's default, of several the lowest, as in Kubernetes; else 0. `where`: the path of its pods' spec.
JobPriority priority_from(const PriorityClasses& classes, const std::string& label, const std::string& class_of_pods, const std::string& where);

using FlavorsByName = std::map<std::string, kube::Json>;  // null: gone

struct OwnerStep {
  enum class What { CreateWorkload, UpdateWorkload, WorkloadStatus, DeleteWorkload, UpdateOwner, OwnerStatus, DeleteOwner };
  What what = What::UpdateOwner;
  kube::Json object;           // as it is to be, on the version that was read
  std::optional<Note> note;    // about the owner
  bool gives_back = false;     // its quota is others' after this: no pod may be there that uses it, whatever a cache says
  bool stops = false;          // work is lost by it that cannot be taken up again: only if the Workload is in the API now as it was when this was decided
};
bool of_owner(OwnerStep::What what);
std::string text(OwnerStep::What what, const std::string& owner_kind);

struct OwnerPlan {
  std::optional<OwnerStep> step;  // none: nothing to do until something changes
  std::string problem;            // what keeps it from going on, for its user
};
OwnerPlan take_step(OwnerStep::What what, kube::Json object, std::optional<Note> note = std::nullopt);
OwnerPlan trouble(std::string problem);

// An API gives objects of the form that its types have; what has another is left alone. Paths from the object on.
bool well_formed(const kube::Json& object, std::initializer_list<const char*> objects, std::initializer_list<const char*> lists);
bool is_workload(const kube::Json& workload);

// "job-NAME-" and five characters of a hash, as Kueue names it.
std::string name_of_workload(const std::string& kind, const std::string& group, const kube::Json& owner);
// With the finalizer that holds its quota.
kube::Json new_workload(const kube::ObjectKey& key, const std::string& uid_of_job, kube::Json owners, const std::string& queue, kube::Json pod_sets, const JobPriority& priority);
// The time that its owner's label kueue.x-k8s.io/max-exec-time-seconds gives it (run_limit.h). The problem; empty: none.
std::string put_run_limit(kube::Json& workload, const kube::Json& owner);
// A Workload that waits, as it is to be where its owner was changed: queue, priority, and what it asks (pod sets are compared by `digest`).
kube::Json with_wishes(const kube::Json& workload, const kube::Json& wanted, std::string (*digest)(const kube::Json& pod_set));
// The class that its label names has another value now, whether it waits or runs. None: it has not.
std::optional<OwnerPlan> follow_class(const kube::Json& workload, const JobPriority& priority);
// What its owner says of checkpoints (run_time.h) is said by its Workload. None: it is.
std::optional<OwnerPlan> tell_checkpoints(const kube::Json& workload, const kube::Json& owner);
// What its status says of its pods (pods_ready.h), where somebody wants to know. None: it says so already.
std::optional<OwnerPlan> tell_ready(const kube::Json& workload, bool wanted, bool ready, Instant now);
// Equal to every decision. (Not every field: what a schema does not know it may have dropped.)
std::string shape_of_pod_set(const kube::Json& pod_set);

// A Workload without a use: it goes, and what held it goes with it, once no pod has its quota. None: nothing is left to do.
std::optional<OwnerPlan> let_go(const kube::Json& workload);
// It is back in the queue; no pod has its quota.
OwnerPlan give_back(const kube::Json& workload, Instant now);
// Declares it finished, then lets go of it. None: both are done.
std::optional<OwnerPlan> finish(const kube::Json& workload, bool succeeded, const std::string& message, Instant now);
std::string stop_reason(const kube::Json& workload);  // what its eviction said
// Puts label, node selectors and tolerations of what was admitted into a pod, or a template of pods, and what its admission checks add. The problem; empty: none.
std::string put_flavors(kube::Json& pods, const kube::Json& workload, const std::string& pod_set, const FlavorsByName& flavors);

}  // namespace fairlead::governance
