// SPDX-License-Identifier: Apache-2.0
// How many workers there are to be where the number follows the queue (docs/design/016). Pure: what Slurm showed, the pods, what was remembered and the time in; sizes, what to remember and what to tell out.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/slurm_cluster.h"
#include "base/clock.h"
#include "kube/json.h"
#include "slurm/plan/view.h"

namespace fairlead::slurm {

struct SizeSet {
  std::string name;                       // of the set: its workers are NAME-0, NAME-1, ...
  std::optional<api::SlurmAutoscale> rules;  // none: its size is what the resource says
  int size = 0;                           // that the resource asks for
  bool strict = true;                     // workers are always NAME-[0, size-1]
  std::set<int> pods, ready;              // ordinals that have a pod, and of them those that are ready
  std::vector<int> current;               // without strict ordinals: those that are to be there (plan/scale.h)
};

struct SizeInput {
  std::vector<SizeSet> sets;
  kube::Json memory;              // status.autoscale as it is stored; null at first
  std::optional<SlurmView> view;  // none: Slurm was not asked or did not answer
  Instant now;
};

struct SizePlan {
  std::map<std::string, int> sizes;   // of the sets that follow the queue
  kube::Json memory;                  // null: none follows it
  bool well = true;
  std::string reason, message;        // for condition Autoscaling
};

// Never above max or below min; never for part of a job; a busy worker stays. Without a view every size stays as it is. Equal arguments give equal plans.
SizePlan plan_size(const SizeInput& input);

// The size that is in force, as the last plan left it. Before the first plan: what runs, within the bounds.
int size_in_force(const SizeSet& set, const kube::Json& memory);

// How many of the jobs that wait are asked for.
inline constexpr int kQueueLooked = 1000;

}  // namespace fairlead::slurm
