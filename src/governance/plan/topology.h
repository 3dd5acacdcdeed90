// SPDX-License-Identifier: Apache-2.0
// Topology-aware placement: which domains (block, rack, host) the pods of a workload go to. One `Topology` per flavor: its domains as a dense tree, what is free in
// each leaf as rows of int64. Start here: `Topology::find`. Rules: docs/design/024-topology.md. Decisions are functions of the arguments and of the rows; one writer.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "governance/plan/node_match.h"
#include "governance/plan/topology_assignment.h"
#include "governance/plan/topology_reason.h"

namespace fairlead::governance {

class TopologyTree;
class TopologyRows;

// Resource names as dense ids, shared by all topologies of one engine, so that amounts can be handed from one to another.
class ResourceIds {
 public:
  int id(std::string_view name);                // minted on first use
  int find(std::string_view name) const;        // -1: never seen
  const std::string& name(int id) const { return names_[static_cast<std::size_t>(id)]; }
  int count() const { return static_cast<int>(names_.size()); }

 private:
  std::vector<std::string> names_;
  std::map<std::string, int, std::less<>> ids_;
};

// What one pod asks for: cpu in milli, everything else in whole units. Sorted by resource name, each name once.
using NamedAmounts = std::map<std::string, std::int64_t, std::less<>>;
struct PodAmounts {
  std::vector<std::pair<int, std::int64_t>> of;  // (resource id, amount), in order of the names
};
PodAmounts amounts_of(const NamedAmounts& named, ResourceIds& ids);

// A node as topology sees it. Nodes that are not ready or cordoned, lack one of the levels' labels or a label of the flavor have no place in the tree.
struct TopologyNode : NodeFacts {
  bool ready = false, unschedulable = false;
  NamedAmounts allocatable;
};
TopologyNode read_topology_node(const kube::Json& node);

struct TopologyShape {
  std::string name;                     // of the Topology object
  std::vector<std::string> levels;      // node labels, coarse to fine
  kube::Labels flavor_labels;           // spec.nodeLabels of the flavor
  std::vector<Toleration> tolerations;  // of the flavor
};

// What a workload's pods use: `count` pods of `per_pod` in the domain with these values (the host's name alone where the finest level is the host).
struct DomainUse {
  std::vector<std::string> values;
  PodAmounts per_pod;
  std::int32_t count = 0;
};

struct SliceLayer {
  std::string level;
  std::int32_t size = 0;
  friend bool operator==(const SliceLayer&, const SliceLayer&) = default;
};

// spec.podSets[].topologyRequest
struct TopologyAsk {
  std::optional<std::string> required, preferred;
  bool unconstrained = false;
  std::vector<SliceLayer> slices;    // outermost first; both spellings of the API end up here
  std::optional<std::string> group;  // podSetGroupName
  bool present = false;              // the object was there at all
  bool named = false;                // it says something of levels or slices, be it "unconstrained: false" or a size alone; a group alone is no ask
  bool explicit_ask() const { return named || required || preferred || unconstrained || !slices.empty(); }
  friend bool operator==(const TopologyAsk&, const TopologyAsk&) = default;
};
// Adds what an admission check says (selector, tolerations) to a template's needs. What contradicts it, in words; empty: nothing, and it is merged.
std::string merge_update(NodeNeeds& needs, const NodeNeeds& update);

TopologyAsk read_topology_ask(const kube::Json& topology_request);

// One pod set to place.
struct TopologyPodSet {
  std::string name;
  TopologyAsk ask;
  bool implied = false;  // the queue has topology flavors only and the pod set asks for none
  std::int32_t count = 0;
  PodAmounts per_pod;    // of the pod's own spec, without the pod itself ("pods": 1 is added)
  NodeNeeds needs;       // of its template, updates of admission checks merged in (merge_update)
  std::string conflict;  // what merge_update found wrong: it cannot be placed
  // Replacement of a node: where its pods are now. Elastic scaling: where the pods of the replaced slice are (`elastic` below).
  std::optional<TopologyAssignment> current;
};

// Kueue's feature gates, with its defaults.
struct TopologyGates {
  bool least_free_if_unconstrained = true;  // TASProfileMixed
  bool balanced = false;                    // TASBalancedPlacement
  bool node_preference = false;             // TASRespectNodeAffinityPreferred
  bool keep_pod_owned = true;               // SkipReassignmentForPodOwnedWorkloads
  bool elastic = false;                     // ElasticJobsViaWorkloadSlicesWithTAS
  bool overlapping_flavors = true;          // TASHandleOverlappingFlavors
};

// Uses of earlier pod sets of the same workload that no row knows of yet; shared by topologies of one workload by domain values.
struct AssumedUse {
  std::vector<DomainUse> uses;
};

struct TopologyQuestion {
  std::span<const TopologyPodSet> pod_sets;
  bool simulate_empty = false;      // as if all topology workloads were gone: could it ever fit?
  std::string unhealthy_node;       // not empty: only a place for the pods of this node is sought, for pod sets with `current`
  bool owned_by_single_pod = false;
  AssumedUse* assumed = nullptr;    // read and added to; nullptr: starts empty and is forgotten
};

struct TopologyAnswer {
  std::string pod_set;
  std::optional<TopologyAssignment> assignment;
  TopologyReason reason;  // why not; none() where it was placed
};

class Topology {
 public:
  // O(nodes log nodes). The order of `nodes` does not matter.
  Topology(TopologyShape shape, std::span<const TopologyNode> nodes, std::shared_ptr<ResourceIds> ids, TopologyGates gates = {});
  ~Topology();
  Topology(Topology&&) noexcept;
  Topology& operator=(Topology&&) noexcept;
  Topology(const Topology& other);  // a fork, outside of trials: what is done to it the original does not know. O(hosts x resources).
  Topology& operator=(const Topology& other);
  void rebind(std::shared_ptr<ResourceIds> ids);  // to a copy of those that it knows

  const std::string& name() const;
  bool by_host() const;                          // the finest level is kubernetes.io/hostname
  bool has_levels(const TopologyAsk& ask) const;  // every level that it names (or means) exists here
  bool has_domain(const std::vector<std::string>& values) const;
  std::size_t leaves() const;

  // Pods that no topology workload owns (static, DaemonSets, others'): by the node's name. Nodes outside the tree are skipped.
  void add_other(std::string_view node, const NamedAmounts& requests, std::int32_t pods = 1);
  void remove_other(std::string_view node, const NamedAmounts& requests, std::int32_t pods = 1);
  // The uses of admitted workloads, each pod counted as one of "pods". Domains that are not here (a lost node) are skipped.
  void add(std::span<const DomainUse> uses);
  void remove(std::span<const DomainUse> uses);
  // Trials: everything since the mark is undone, in O(changes). Marks nest. Release (no trial outlives its marks) by undoing or `keep`.
  std::size_t mark();
  void undo(std::size_t mark);
  void keep(std::size_t mark);

  // Is there room for exactly these, each domain on its own. with_pods: for the pods themselves, too (Kueue does not ask that of an assignment that it has made before).
  bool fits(std::span<const DomainUse> uses, bool with_pods = false) const;
  // One answer per pod set that has one, in the order given, all or none placed: the first failure ends the search.
  // O(leaves * resources + domains log domains) per group of pod sets.
  std::vector<TopologyAnswer> find(const TopologyQuestion& question);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The first failure among the answers; nullptr: all placed.
const TopologyAnswer* failure(const std::vector<TopologyAnswer>& answers);
std::vector<DomainUse> uses_of(const TopologyAssignment& assignment, const PodAmounts& per_pod);

// One workload over several topology flavors: `by_flavor` in order of the flavors' names. Flavors by host share what earlier ones took (TASHandleOverlappingFlavors).
struct FlavorQuestion {
  std::string flavor;
  Topology* topology = nullptr;
  std::vector<TopologyPodSet> pod_sets;
};
struct FlavorAnswer : TopologyAnswer {
  std::string flavor;
};
std::vector<FlavorAnswer> find_for_workload(std::span<const FlavorQuestion> by_flavor, const TopologyQuestion& common, const TopologyGates& gates);

}  // namespace fairlead::governance
