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

// Of the pod that had `waiting`'s name before it, and whose slurmd Slurm still counts jobs on. Its object is gone, and it may have been deleted by force. `node`: the Node that had it; null: unknown. The machine is out of
// service as above; or it is Ready, and has been for so long since that its kubelet has ended what no object asks for any more.
std::optional<Proof> proof_of_orphan(const kube::Json& waiting, const std::string& machine, const kube::Json* node, Instant now);
// A kubelet that reports has heard of a deletion within a Node's 50 s of grace (node-monitor-grace-period), and ends the pod within its own grace.
inline constexpr std::chrono::seconds kOrphanEnds{90};

struct FailureInput {
  std::map<std::string, const kube::Json*> pods;    // workers, by name, which is that of their Slurm node; borrowed
  std::map<std::string, const kube::Json*> nodes;   // that have them, by name; borrowed
  std::map<std::string, Proof> ended;               // workers whose pods are gone, and whose end was confirmed before they went
  kube::Json memory;                                // status.lostWorkers as it is stored; null at first
  std::optional<SlurmView> view;
  Instant now;
};
struct FailurePlan {
  std::vector<TellSlurm> steps;
  kube::Json memory;                   // status.lostWorkers from now on: NAME -> the death that Slurm knows of; null: none
  std::vector<std::string> notes;      // for condition WorkersAvailable
  std::vector<std::string> ends_known; // of `ended`: Slurm counts no job on them any more
  std::vector<std::string> settled;    // workers on dead machines that Slurm knows to be dead: their pods may be forgotten
  bool look_again = false;             // soon
  std::optional<std::chrono::seconds> look_later;  // a worker is not ready yet
};
// Is there a death that Slurm may not know of?
bool needs_look(const FailureInput& input);
// Workers whose container runs, and which are not ready for longer than a start takes: they may wait for the end of the pod before them, which only Slurm knows.
std::vector<std::string> may_wait(const FailureInput& input);
FailurePlan plan_failures(const FailureInput& input);

}  // namespace fairlead::slurm
