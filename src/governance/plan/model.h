// SPDX-License-Identifier: Apache-2.0
// What governance decides on, as plain values named by strings: flavors, queues, cohorts, workloads. Read from Kueue's JSON by kueue_read.h.
#pragma once
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "governance/plan/ledger.h"
#include "governance/plan/node_match.h"
#include "governance/plan/topology.h"
#include "kube/selector.h"

namespace fairlead::governance {

struct FlavorSpec {
  NodeFacts node;  // the flavor's name, and the labels and taints of its nodes
  std::vector<Toleration> tolerations;
  std::string topology;  // empty: placement is not ours
};

struct QueueFlavor {
  std::string name;
  std::vector<std::pair<std::string, Limits>> resources;
};
struct ResourceGroup {
  std::vector<std::string> resources;
  std::vector<QueueFlavor> flavors;  // in order of preference
};

enum class PreemptionPolicy { Never, LowerPriority, LowerOrNewerEqualPriority, Any };
struct QueuePolicies {
  PreemptionPolicy within_queue = PreemptionPolicy::Never, reclaim = PreemptionPolicy::Never;
  bool borrow_within_cohort = false;              // may pre-empt lower priorities while it will borrow itself
  std::optional<std::int64_t> borrow_threshold;  // ... whose priority is not above this
  bool next_if_preempting = true;                 // whenCanPreempt: TryNextFlavor
  bool next_if_borrowing = false;                 // whenCanBorrow: TryNextFlavor
  bool preempt_rather_than_borrow = false;        // preference: PreemptionOverBorrowing
};

struct QueueSpec {
  std::string name, cohort;  // no cohort: empty
  double weight = 1;
  bool strict_fifo = false;
  bool stopped = false;      // stopPolicy Hold or HoldAndDrain
  bool by_usage_history = false;
  std::optional<kube::LabelSelector> namespaces;  // none: nothing matches
  std::vector<ResourceGroup> groups;
  QueuePolicies policies;
  std::vector<std::string> checks;                                       // for all flavors
  std::vector<std::pair<std::string, std::vector<std::string>>> checks_on;  // check -> flavors; none: all
};

struct CohortSpec {
  std::string name, parent;
  double weight = 1;
  std::vector<ResourceGroup> groups;
};

struct LocalQueueSpec {
  std::string space, name, queue;
  double weight = 1;
  bool stopped = false;
  std::string key() const { return space + "/" + name; }
};

struct PodSetSpec {
  std::string name;
  std::int32_t count = 1;
  std::optional<std::int32_t> min_count;
  NamedAmounts per_pod;  // after exclusions and transformations
  NamedAmounts raw;      // of the pod's spec itself: for placement
  NodeNeeds needs;
  TopologyAsk topology;
  std::string invalid;   // its requests contradict its limits: says where
  std::string shape;     // equal shapes are equal to every decision; without count
};

struct HeldPodSet {
  std::string name;
  std::map<std::string, std::string> flavors;  // resource -> flavor
  NamedAmounts usage;
  std::optional<std::int32_t> count;
  std::optional<TopologyAssignment> topology;
  bool topology_pending = false;  // delayedTopologyRequest: Pending
};
struct Admission {
  std::string queue;
  std::vector<HeldPodSet> pod_sets;
};

struct Condition {
  bool is = false;
  std::string reason;
  Instant since{};
};
struct CheckState {
  std::string name, state;  // Pending, Ready, Retry, Rejected
  std::map<std::string, NodeNeeds> updates;  // by pod set: selectors and tolerations that a check adds
};

struct WorkloadSpec {
  std::string space, name, uid, local_queue;
  std::int64_t priority = 0;
  std::int64_t boost = 0;  // annotation kueue.x-k8s.io/priority-boost
  Instant created{};
  bool active = true;
  bool owned_by_pod = false;   // one plain pod
  bool admission_gate = false, closed_preemption_gate = false;
  std::vector<PodSetSpec> pod_sets;
  std::map<std::string, std::int32_t> reclaimable;
  std::optional<Admission> admission;
  Condition reserved, admitted, evicted, preempted, finished, requeued;
  std::optional<Instant> requeue_at;
  std::optional<std::chrono::seconds> checkpoint_every;  // annotations kCheckpointEvery, kCheckpointedAt (run_time.h)
  std::optional<Instant> checkpointed_at;
  std::vector<CheckState> checks;
  std::vector<std::string> unhealthy_nodes;
  std::vector<std::string> allowed_flavors;  // annotation of concurrent admission; empty: all
  std::string key() const { return space + "/" + name; }
};

}  // namespace fairlead::governance
