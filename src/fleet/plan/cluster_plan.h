// SPDX-License-Identifier: Apache-2.0
// The life of a Cluster: from what was asked for and what is there to the next writes, and what its status says. Pure; docs/design/050-clusters-and-fleet.md.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/alarms.h"
#include "api/cluster.h"
#include "api/training_plan.h"
#include "base/clock.h"
#include "fleet/plan/lifecycle.h"
#include "fleet/plan/slurm_shape.h"

namespace fairlead::fleet {

// As the API has it, at about one time; what is acted on was stored before, and every write names the version that it was decided on.
struct ClusterSnapshot {
  kube::Json cluster;
  std::vector<kube::Json> instances;      // of all clusters: a machine is promised to one
  std::map<std::string, kube::Json> nodes, machines;  // by name: those that an Instance of this cluster names, and spare ones
  kube::Json space;                       // its namespace; null: there is none
  std::vector<kube::Json> claims;         // in it
  kube::Json slurm;                       // its SlurmCluster; null: there is none
  std::vector<kube::Json> events;         // ClusterEvents in it
  std::vector<kube::Json> configs;        // ConfigMaps in it that scripts read; only where needed_sources names any
  std::map<std::string, ScriptSource> sources;  // by LifecycleScripts::source(): those of needed_sources
  std::map<std::string, api::Alarm> alarms;  // by name: those of needed_alarms
  std::map<std::string, api::TrainingPlan> plans;  // by name: all
  std::vector<kube::Json> node_sets, pods;  // pods: of its namespace; where Kubernetes orchestrates, all that are on its nodes
};

struct ClusterPlanOptions {
  bool makes_machines = false;            // local nodes can be made here
  std::string storage_class;
  ScriptPodOptions scripts;
  std::chrono::seconds no_machine{60};    // all or nothing: how long a machine is waited for that nobody has
  std::chrono::seconds patience{1800};    // and how long the whole may take
  std::chrono::seconds minimum{10'800};   // and until a group has its minInstanceCount (minimum.h)
  std::chrono::seconds silent{300};       // what a node that is not ready runs is believed to run on for so long, whoever wants to empty it
};

struct ClusterStep {
  enum class Verb { Create, Update, UpdateStatus, Delete, Evict };  // Evict: a pod, where its disruption budgets let it go
  Verb verb = Verb::Create;
  kube::Resource resource;
  kube::Json object;                      // whole; of Delete: with uid and version
  // Caches may be behind; these are asked of the API itself before the step is taken: no node of Slurm is on this Node; no Machine of this name is there; this Instance has that machine, and is not being deleted; this Node is not of the Instance that the step is about; this Node is there no more, or has been silent for so long; no Instance of this name is there.
  std::string if_empty, if_gone, if_live;
  std::string live_node, unrun;           // of if_live: the machine, where that is not the object; and of its scripts this one ("onCreate") came to nothing yet
  std::string if_not_of, if_silent, if_no_instance = {};
  kube::Json stages = {};                 // of if_live: its status said this of reboot, software, healthCheck when this was decided; null: not asked
  bool force = false;                     // of a pod: without waiting for whoever runs it
  std::string tells_of;                   // of a ClusterEvent: the Instance whose status is written only once this is told, as nobody tells it later; empty: the Cluster's
  std::string why;
};

// What of an Instance's status says that it is closed for something.
kube::Json stages_of(const kube::Json& status);

struct ClusterPlan {
  std::vector<ClusterStep> steps;         // in this order; one that fails ends the round
  kube::Json status;                      // of the Cluster; null: as it is
  std::optional<std::chrono::nanoseconds> look_again;
};

// Equal arguments give equal plans. O(n log n) in instances, nodes and pods. Idempotent: once its steps have had their effect, there are none.
ClusterPlan plan_cluster(const ClusterSnapshot& snapshot, Instant now, const ClusterPlanOptions& options);

// What machines of the cluster are about to run, by URI. At rest there is nothing.
std::map<std::string, api::LifecycleScripts> needed_sources(const api::Cluster& cluster, const std::vector<kube::Json>& instances, const std::vector<kube::Json>& pods);

// Alarms that say whether an update of its software goes on; of a cluster that is not updated, none.
std::vector<std::string> needed_alarms(const kube::Json& cluster, const api::SoftwareUpdate& asked);

const char* name(ClusterStep::Verb verb);

// What a value of the label of a node's health asks for: UnschedulablePendingReboot, UnschedulablePendingReplacement, and what comes close to them.
enum class RecoveryAsked : std::uint8_t { None, Reboot, Replace };
RecoveryAsked recovery_of(std::string_view word);

// When a Node stopped being ready; nothing: it is ready, or nobody knows since when it is not.
std::optional<Instant> silent_since(const kube::Json& node);

// What a machine has to be rid of before it goes: a pod that has not ended, or is being deleted. Of Slurm, or of a script; where Kubernetes orchestrates, any but those that come with each node (of a DaemonSet, or made by the kubelet itself).
bool holds_machine(const kube::Json& pod, api::Orchestrator orchestrator = api::Orchestrator::Slurm);

}  // namespace fairlead::fleet
