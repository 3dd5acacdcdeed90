// SPDX-License-Identifier: Apache-2.0
// A batch/v1 Job as a Workload, and the decision on that carried back to it: held by spec.suspend until it is admitted, then released with the node selectors and tolerations of its flavors, which are taken back when it is evicted.
// Pure: one step at a time, from what is there; after any step, and after a crash before or behind it, the next one follows from the objects alone. docs/design/027-queue-objects.md.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "governance/plan/owner_workload.h"

namespace fairlead::governance {

struct JobInput {
  kube::Json job;                              // null: gone
  std::vector<kube::Json> workloads;           // whose controller is a Job of this name
  FlavorsByName flavors;                       // that their admissions name
  JobPriority priority;
  bool tells_ready = false;                    // its Workload says whether its pods are ready
  Instant now{};
};

OwnerPlan plan_job(const JobInput& input);

// "job-NAME-" and five characters of a hash, as Kueue names it.
std::string workload_name(const kube::Json& job);
kube::Json workload_for(const kube::Json& job, const JobPriority& priority);

}  // namespace fairlead::governance
