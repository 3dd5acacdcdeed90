// SPDX-License-Identifier: Apache-2.0
// Fewer workers without losing a job, and more of them again (docs/design/006). Pure: pods, what Slurm knows and what was remembered in; wanted workers, steps, notes and what to remember out.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "api/slurm_cluster.h"
#include "base/clock.h"
#include "kube/object.h"
#include "slurm/plan/view.h"

namespace fairlead::slurm {

inline constexpr std::string_view kWorkerPrefix = "worker-";

struct ScaleInput {
  std::string cluster_uid;
  std::string prefix{kWorkerPrefix};      // of the workers' names: those of one set, "gpu-"
  std::int64_t generation = 0;
  int size = 0;
  api::SlurmScaleDown rules;
  int expected = 0;                       // below that ordinal Slurm is to know every worker, there or not, so that jobs may wait for it (docs/design/016); its records are kept
  std::string definition;                 // of such a worker, for Slurm
  int interest = -1;                      // whose jobs are asked for, from that ordinal on; -1: from the size on
  std::map<int, const kube::Json*> pods;  // of this cluster, by ordinal; borrowed
  std::set<int> renew;                    // ordinals that stay, and whose pods are to be made anew: they leave and come back, a few at a time, and no job ends for it
  std::set<int> moved;                    // of these, those whose machine is to be empty (docs/design/050): also when they are not ready, and the rules say what becomes of their jobs
  std::set<int> together;                 // of these, those whose machines are wanted empty at the same time (docs/design/058): they are not counted
  std::set<int> first;                    // without strict ordinals these leave before others, whatever runs on them
  std::set<int> taken;                    // ordinals whose name a pod has that is not known to be of this cluster: its label or its owner was edited, or it is somebody else's
  kube::Json memory;                      // status.scaleDown as it is stored; null at first
  bool look_due = false;                  // nobody has looked for long
  bool jobs_wait = false;                 // a job that names a node which leaves was seen at the last look
  std::optional<SlurmView> view;          // none: Slurm was not asked or did not answer
  Instant now;
};

struct EndPod {  // nothing of Slurm runs in it
  int ordinal = 0;
  std::string why;
};
enum class NodeVerb { Drain, Undrain, Forget, Requeue, Cancel, Died, Expect, Lift };
std::string_view text(NodeVerb verb);  // as fairlead-slurm knows it
struct TellSlurm {
  NodeVerb verb = NodeVerb::Drain;
  std::string node;
  std::vector<std::string> arguments;  // a reason, or jobs
};
using ScaleStep = std::variant<EndPod, TellSlurm>;

struct ScalePlan {
  std::vector<int> ordinals;        // workers that are to be there, ascending
  kube::Json memory;                // status.scaleDown from now on
  std::vector<ScaleStep> steps;
  std::vector<std::string> notes;   // for condition WorkersAvailable
  std::optional<std::string> jobs;  // for condition JobsCanStart: jobs that would wait for ever; empty text: none. None: Slurm was not asked
  std::optional<std::chrono::nanoseconds> look_again;
};

// Kubernetes shows no sign that any container of it began: the phase alone does not say so, for a pod of which one container never starts stays Pending while the others run.
bool never_began(const kube::Json& pod);

// Is there anything that Slurm must be asked for?
bool needs_look(const ScaleInput& input);
// Whose jobs the plan must know, as a list of Slurm; empty: those of all. A busy cluster's jobs are too many to be told all of them every few seconds.
std::string nodes_of_interest(const ScaleInput& input);
ScalePlan plan_scale(const ScaleInput& input);

inline constexpr const char* kScaleDownReason = "fairlead: scale-down";  // begins the reason of every drain of ours
std::optional<int> worker_ordinal(std::string_view name, std::string_view prefix = kWorkerPrefix);  // of "worker-7"

}  // namespace fairlead::slurm
