// SPDX-License-Identifier: Apache-2.0
// The whole status of a pod, with every field that Kubernetes clients require.
#pragma once
#include <string>

#include "node/plan/pod_plan.h"

namespace fairlead::node {

// How far the init containers are, in the present sandbox.
struct InitProgress {
  std::size_t next = 0, count = 0;
  bool failed = false;  // the one at `next` failed and is not tried again
  bool done() const { return next == count; }
};
InitProgress init_progress(const PodSeen& seen);

// What the planner knows beyond the snapshot.
struct PodOutcome {
  bool deleting = false;
  bool still_stopping = false;
  std::string failed_reason, failed_message;  // not empty: the pod has failed as a whole
};
kube::Json make_status(const PodSeen& seen, const PodOutcome& outcome, Instant now);

// The strategic merge patch that makes the pod's status what `status` says. Conditions of others, also ones that came meanwhile, stay; the pod's uid is a
// precondition, so that a pod of the same name made meanwhile does not get this status.
kube::Json status_patch(const kube::Json& pod, kube::Json status);

}  // namespace fairlead::node
