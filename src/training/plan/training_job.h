// SPDX-License-Identifier: Apache-2.0
// A HyperPodPyTorchJob as we read it, and its pods. Fields are those of sagemaker-hyperpod 3.12 (hyperpod-pytorch-job-template 1.5); rules that no document gives are in docs/design/055.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kube/object.h"

namespace fairlead::training {

extern const kube::Resource kJobs;  // hyperpodpytorchjobs of sagemaker.amazonaws.com/v1

inline constexpr const char* kJobLabel = "HPJob";                            // of a pod: its job; `hyp list-pods` looks for it
inline constexpr const char* kReplicaLabel = "fairlead.dev/training-replica";  // of a pod: the replicaSpec that it is of
inline constexpr const char* kRankLabel = "fairlead.dev/training-rank";      // of a pod: its place among the job's nodes; a spare has none
inline constexpr const char* kMadeFor = "fairlead.dev/training-attempt";     // annotation of a pod: the restartCount that it was made at
inline constexpr const char* kNodesOf = "fairlead.dev/training-nodes";       // annotation of a pod: how many nodes the job had when it was made
inline constexpr const char* kMasterOf = "fairlead.dev/training-master";     // annotation of a pod: the address of rank 0 that it was made with
inline constexpr const char* kElasticLabel = "fairlead.dev/elastic-member";  // of a pod beyond replicas and spares: it has a quota of its own, which may be taken back without the job's
inline constexpr const char* kLauncher = "fairlead.dev/launcher";            // annotation of a job: hyperpodrun or torchrun, where its command does not tell
inline constexpr int kMasterPort = 29500;                                    // of attempt 0; each has another, so that nobody of an earlier one joins

// Who starts the processes in a pod. Agent: hyperpodrun, when it is told (agents.h). Plain: the container itself, at once; a new attempt takes new pods. Unknown: an entry point that nobody told us of; whoever answers is an agent.
enum class Launcher { Unknown, Agent, Plain };

struct Replica {
  std::string name;
  int count = 1, spares = 0;
  int base = 1;     // spec's replicas: for these, and the spares, the job has its quota
  int seats = 1;    // pods that are wanted: count, spares, and, of an elastic job, those of its base and those that it could go on with next
  int first_rank = 0;
  kube::Json pod;  // its template
  std::string main;  // the container whose end is the pod's end, whatever runs beside it
  unsigned short agent_port = 8080;
};

struct RestartLimits {
  std::optional<std::int64_t> retries;  // jobMaxRetryCount: of all restarts
  bool windows = true;                  // the rest counts; else `retries` alone
  std::int64_t before_full = 3, full = 1;
  std::chrono::seconds window{21'600};
};

// spec.elasticPolicy: sizes between which a job with agents moves by itself.
struct Elastic {
  std::vector<int> sizes;                                  // ascending, within min and max
  std::chrono::seconds settle{60};                         // pods that joined are up so long before it grows; a job that has never run waits so long for all of them
  std::chrono::seconds give_up{30};                        // after a fault it waits so long for pods that are gone
  std::chrono::seconds snooze{0};                          // it runs so long before it grows
  std::optional<std::chrono::seconds> write_down;          // until a process that is to stop is killed
  int at_most(int nodes) const;                            // the largest size that is no larger; 0: none
};

struct TrainingJob {
  std::string problem;  // not empty: why nothing can be made of it, with the field's path
  std::vector<Replica> replicas;
  int nodes = 0;        // sum of counts
  Launcher launcher = Launcher::Unknown;
  bool suspended = false;
  std::string clean;    // None, All, OnlyComplete
  RestartLimits limits;
  std::optional<std::chrono::seconds> startup_deadline, fault_deadline, active_deadline, ttl;
  kube::Json rules;     // logMonitoringConfiguration
  std::optional<Elastic> elastic;  // of one replicaSpec, with an agent; its target is in status.elasticScalingStatus
};
TrainingJob read_training_job(const kube::Json& job);

// NAME-REPLICA-INDEX.
std::string pod_name(const kube::Json& job, const Replica& replica, int index);
struct PodWish {
  int index = 0;
  int rank = -1;                // -1: none yet
  std::int64_t attempt = 0;
  bool elastic = false;         // it has a quota of its own
  bool queued = false;          // and waits for it
  std::string master_address;   // of rank 0 where it is known before the pod is; empty: it is rank 0, or is told later
};
// A pod of the job: the template with labels, owner, environment (NNODES, NPROC_PER_NODE, PET_* for torchrun, MASTER_ADDR ...: what the template sets stays), never restarted in place, not on nodes that are to be rebooted or replaced.
kube::Json make_pod(const kube::Json& job, const TrainingJob& read, const Replica& replica, const PodWish& wish);

// Does its node's label say that it is to go? HyperPod's words: UnschedulablePendingReboot, UnschedulablePendingReplacement, Unschedulable.
bool is_unhealthy(const kube::Json& node);

}  // namespace fairlead::training
