// SPDX-License-Identifier: Apache-2.0
// Workers that are proven to be dead (docs/design/012): Slurm is told, so that their jobs run again within seconds. Silence is no proof: who is silent gets no new work, and its jobs are left alone. Pure.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kube/object.h"
#include "slurm/plan/scale.h"

namespace fairlead::slurm {

struct Proof {
  std::string why;            // completes "the worker died: "
  std::string ended = "-";    // RFC 3339, by the clock of its machine: what a slurmd that started later would disprove; "-": nothing can have started
  std::string of;             // one death: two proofs with the same text are of the same one
  bool machine = false;       // all of the machine, not one container
};
// Of a pod's container `container`. `node`: the Node that has the pod; null or not there: nothing it reports counts, for its report may be old.
//   - the Node has taint api::kOutOfService and is not Ready (both, as the garbage collector of Kubernetes asks before it forgets such pods);
//   - the Node is Ready, and its kubelet reports the container as ended and not running.
std::optional<Proof> proof_of_death(const kube::Json& pod, const std::string& container, const kube::Json* node);

struct FailureInput {
  std::map<std::string, const kube::Json*> pods;    // workers, by name, which is that of their Slurm node; borrowed
  std::map<std::string, const kube::Json*> nodes;   // that have them, by name; borrowed
  std::map<std::string, Proof> ended;               // workers whose pods are gone, and whose end was confirmed before they went
  kube::Json memory;                                // status.lostWorkers as it is stored; null at first
  std::optional<SlurmView> view;
};
struct FailurePlan {
  std::vector<TellSlurm> steps;
  kube::Json memory;                   // status.lostWorkers from now on: NAME -> the death that Slurm knows of; null: none
  std::vector<std::string> notes;      // for condition WorkersAvailable
  std::vector<std::string> ends_known; // of `ended`: Slurm counts no job on them any more
  std::vector<std::string> settled;    // workers on dead machines that Slurm knows to be dead: their pods may be forgotten
  bool look_again = false;             // soon
};
// Is there a death that Slurm may not know of?
bool needs_look(const FailureInput& input);
FailurePlan plan_failures(const FailureInput& input);

}  // namespace fairlead::slurm
