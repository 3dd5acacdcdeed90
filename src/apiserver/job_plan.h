// SPDX-License-Identifier: Apache-2.0
// What a Job needs next. Pure: the Job, its pods and the time in, one step out. The steps follow Kubernetes' job controller (k8s.io/kubernetes pkg/controller/job) so that a
// pod is counted exactly once, whenever the controller dies:
//   a finished pod is written down in status.uncountedTerminatedPods (or, of an Indexed job, in completedIndexes); then its finalizer goes; then it becomes a number.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::apiserver {

// Completion indexes as Kubernetes writes them: "0-2,5".
std::set<int> parse_indexes(const std::string& text, int limit);  // what is out of [0, limit) or not a number is left out
std::string print_indexes(const std::set<int>& indexes);

struct JobEvent {
  bool warning = false;
  std::string reason, message;
  friend bool operator==(const JobEvent&, const JobEvent&) = default;
};
// One step. At most one of `status`, `release`, `create` and `remove`, `remove_job` is there to do; when it is done, the Job is looked at again.
struct JobStep {
  std::optional<kube::Json> status;        // to be written, whole
  std::vector<JobEvent> events;            // told once `status` is written
  std::vector<std::string> release;        // pods whose finalizer goes, by name
  std::vector<kube::Json> create;          // new pods
  std::vector<std::string> remove;         // pods to delete, by name
  bool remove_job = false;                 // its time to live is over
  std::optional<Instant> look_again_at;    // if there is nothing to do now
  bool idle() const { return !status && release.empty() && create.empty() && remove.empty() && !remove_job; }
};

// `pods`: all that the Job controls. Those created at once are at most `batch`.
JobStep plan_job(const kube::Json& job, const std::vector<kube::Json>& pods, Instant now, std::size_t batch = 500);

}  // namespace fairlead::apiserver
