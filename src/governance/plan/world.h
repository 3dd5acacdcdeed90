// SPDX-License-Identifier: Apache-2.0
// The objects with dense ids on a ledger: what a decision reads, and what trials change. One writer.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "governance/plan/ledger.h"
#include "governance/plan/model.h"

namespace fairlead::governance {

using FlavorId = std::uint32_t;    // dense, by name
using ResourceId = std::uint32_t;  // dense, by name
using WorkloadId = std::uint32_t;
inline constexpr std::uint32_t none = 0xffffffffU;

// Kueue's feature gates that change a decision, with its defaults.
struct Gates {
  bool partial_admission = true;
  bool priority_sorting_within_cohort = true;
  bool prioritize_preemptors = false;       // PrioritizePreemptorWorkloads
  bool prioritize_non_borrowing = true;     // FairSharingPrioritizeNonBorrowing
  bool preempt_within_nominal = true;       // FairSharingPreemptWithinNominal
  bool recompute_overlaps = true;           // RecomputeAssignmentUponPreemptionTargetsOverlap
  bool recompute_topology = true;           // TASRecomputeAssignmentWithinSchedulingCycle
  bool topology = true;                     // TopologyAwareScheduling
  bool fail_fast_replacement = true;        // TASFailedNodeReplacementFailFast
  bool priority_boost = false;
  bool reclaimable_pods = true;
  bool equivalence = true;                  // SchedulingEquivalenceHashing
  bool preserve_scan = true;                // FlavorFungibilityPreserveScanProgress
  bool fungibility = true;
  bool usage_history = true;                // AdmissionFairSharing
  bool admission_gates = true;              // AdmissionGatedBy
  bool preemption_gates = false;            // ConcurrentAdmission, MultiKueueOrchestratedPreemption
  bool allowed_flavors = false;             // ConcurrentAdmission: a workload may name its flavors
  bool observability = true;                // UnadmittedWorkloadsObservability
  bool ignore_undeclared = false;           // quotaCheckStrategy: IgnoreUndeclared
  TopologyGates placement;
  void set(std::string_view gate, bool on);  // by Kueue's name; unknown ones are passed over
};

struct Rules {
  Gates gates;
  bool fair = false;
  bool final_share = true, initial_share = true;  // preemption strategies ...
  bool initial_first = false;                      // ... and which is tried first
  bool victims_for_pods = false;                   // quota of "pods" counts when victims are sought (Kueue leaves it out)
  bool check_final = false;                        // victims given back may not make the others illegal (Kueue does not look)
  bool eviction_time_orders = true;                // a time-out of readiness puts a workload behind (else: creation alone)
  bool usage_history = false;                      // AdmissionFairSharing configured
  Instant now{};
};

struct Flavor {
  std::string name;
  std::optional<FlavorSpec> spec;  // none: named by a queue, not there
  std::unique_ptr<Topology> topology;
};

struct Group {
  std::vector<ResourceId> resources;
  std::vector<FlavorId> flavors;
};

struct Queue {
  QueueSpec spec;
  NodeId node = no_node;
  bool active = true;
  std::vector<Group> groups;
  std::vector<std::vector<Column>> columns;  // [resource][flavor] -> column of the tree
  std::vector<WorkloadId> held;              // in no order
  std::int64_t generation = 0;               // moves when quotas change or held work leaves
  bool topology_only = false;                // every flavor has one
  bool delays_topology = false;              // a check of another cluster places pods
  std::vector<FlavorId> provisioned;         // flavors that a check provides first
  const Group* group_of(ResourceId resource) const;
  Column column(FlavorId flavor, ResourceId resource) const { return columns[resource][flavor]; }
};

// (resource, amount) by resource
using Amounts = std::vector<std::pair<ResourceId, Amount>>;
Amount amount_of(const Amounts& amounts, ResourceId resource);  // 0 if not there

struct PodSetAsk {
  std::int32_t count = 0;  // after reclaimed pods
  Amounts total;           // of all its pods
};

// Where the search for flavors goes on: for each pod set and resource the last tried flavor; -1: from the first.
struct Progress {
  std::vector<std::vector<std::pair<ResourceId, int>>> tried;
  std::int64_t generation = 0, cycle = 0;
  std::uint32_t kind = none;
  bool pending() const;
};

struct Workload {
  WorkloadSpec spec;
  std::uint32_t queue = none;  // index of World::queues: of the admission, else of the local queue
  std::vector<PodSetAsk> asks;
  std::vector<Use> held;       // columns of the queue's tree; empty while waiting
  std::vector<std::pair<FlavorId, DomainUse>> places;
  std::uint32_t kind = none;   // equal kinds are equal to every decision
  std::optional<Progress> progress;
  std::optional<double> local_use;  // of its local queue, where usage history orders
  bool deleted = false;
  bool holds() const { return !held.empty() || counted; }
  bool counted = false;        // among its queue's held
};

struct World {
  Rules rules;
  Ledger ledger;
  std::vector<Flavor> flavors;
  std::vector<std::string> resources;
  std::vector<Queue> queues;            // by name
  std::vector<Workload> workloads;
  std::shared_ptr<ResourceIds> placement_resources = std::make_shared<ResourceIds>();

  std::uint32_t queue_named(std::string_view name) const;
  FlavorId flavor_named(std::string_view name) const;
  ResourceId resource_named(std::string_view name) const;
  std::uint32_t queue_at(NodeId leaf) const { return queue_of_node[leaf]; }
  std::int64_t priority(const Workload& w) const { return w.spec.priority + (rules.gates.priority_boost ? w.spec.boost : 0); }
  // What orders in a queue: creation, or the eviction that puts it behind.
  Instant queue_time(const WorkloadSpec& w) const;

  // Usage alone, of quota and places; `held` lists stay.
  void take_usage(WorkloadId w);
  void give_usage(WorkloadId w);
  // A held workload leaves its queue or comes back.
  void leave(WorkloadId w);
  void come_back(WorkloadId w);
  // What a spec's admission means here; sets asks, held and places. Called by the builder and when a cycle admits.
  void count_in(WorkloadId w);

  std::vector<std::uint32_t> queue_of_node;
};

// Undone when it closes: the ledger, the places and nothing else (`held` lists are put back by who changed them).
class WorldTrial {
 public:
  explicit WorldTrial(World& world);
  WorldTrial(const WorldTrial&) = delete;
  WorldTrial& operator=(const WorldTrial&) = delete;
  ~WorldTrial() { close(); }
  void close();

 private:
  World* world_;
  Ledger::Trial ledger_;
  std::vector<std::size_t> marks_;
};

struct WorldSpec {
  Rules rules;
  std::vector<FlavorSpec> flavors;
  std::vector<QueueSpec> queues;
  std::vector<CohortSpec> cohorts;
  std::vector<LocalQueueSpec> local_queues;
  std::vector<WorkloadSpec> workloads;   // held ones have an admission and QuotaReserved
  std::vector<TopologyShape> topologies;  // by name; flavors give the labels
  std::vector<TopologyNode> nodes;
  struct OtherPod { std::string node; NamedAmounts requests; };
  std::vector<OtherPod> other_pods;
  std::map<std::string, std::string> check_controllers;  // active admission checks -> controllerName; a queue with one that is not here is inactive
  bool admissions_count = true;  // without a condition QuotaReserved, too
};
World build_world(WorldSpec spec);
std::vector<std::pair<FlavorResource, Limits>> quotas_of(const std::vector<ResourceGroup>& groups);  // for NodeSpec

}  // namespace fairlead::governance
