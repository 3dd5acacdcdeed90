// SPDX-License-Identifier: Apache-2.0
// What a NodeSet says of its workers (status, conditions), and when it may go.
#pragma once
#include <string>
#include <vector>

#include "api/node_set.h"
#include "base/clock.h"

namespace fairlead::slurm {

struct SetState {
  const api::SlurmCluster& view;   // the cluster as this set's workers see it
  int ready = 0;
  bool any_pod = false;            // of this set is there
  std::vector<std::string> notes;  // what is the matter with its workers
  kube::Json memory;               // of the scale-down (plan/scale.h)
  bool slurm_answered = false;     // in this look, so that `memory` names every record that is left
  Instant now;
};

struct SetStep {
  kube::Json object;        // with the status, or the finalizers, that it is to have
  bool finalizers = false;  // these differ: to be written as the object, the status in the next look
};
// A set that is being deleted stays until none of its workers is left, as pod or in Slurm; five minutes are enough where only a Slurm that does not answer would have to confirm the latter.
SetStep plan_node_set(const kube::Json& object, const SetState& state);

// Of a set whose SlurmCluster is not there (or is going): it waits for one, and does not wait for anything if it is being deleted.
SetStep plan_lonely_node_set(const kube::Json& object, const std::string& cluster, Instant now);

}  // namespace fairlead::slurm
