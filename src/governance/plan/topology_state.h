// SPDX-License-Identifier: Apache-2.0
// What a `Topology` holds: the tree, a row of amounts for each leaf, the journal of trials and the scratch of searches. Internal to topology*.cpp.
#pragma once
#include <list>
#include <vector>

#include "governance/plan/topology_search.h"

namespace fairlead::governance {

// One pod's amounts as columns of the rows.
struct RowNeed {
  int column = -1;  // -1: no leaf has any of it
  std::int64_t amount = 0;
  int id = 0;
};

struct Topology::State {
  State(TopologyShape shape_in, std::span<const TopologyNode> nodes, std::shared_ptr<ResourceIds> ids_in, TopologyGates gates_in);

  // Where a pod set's pods may go at all, by taints, selector and affinity.
  struct Eligible {
    NodeNeeds needs;
    std::vector<LeafIndex> leaves;
    std::vector<std::int64_t> liking;  // one per leaf of `leaves`
    TopologyExclusions exclusions;
  };
  // Kept for the pod sets asked about lately: pre-emption asks the same again and again. The tree never changes, so it never gets stale.
  const Eligible& eligible(const NodeNeeds& needs);

  std::size_t cell(LeafIndex leaf, int column) const { return static_cast<std::size_t>(leaf) * columns + static_cast<std::size_t>(column); }
  int column_of(int id) const { return static_cast<std::size_t>(id) < column_of_id.size() ? column_of_id[static_cast<std::size_t>(id)] : -1; }
  // With the pod itself as one of "pods" if asked.
  std::vector<RowNeed> needs_of(const PodAmounts& per_pod, bool with_pod) const;
  void write(std::vector<std::int64_t>& row, std::size_t at, std::int64_t value);
  void change(std::span<const DomainUse> uses, bool add);
  void change_other(std::string_view node, const NamedAmounts& requests, std::int32_t pods, bool add);

  struct Sought {
    const TopologyPodSet* workers = nullptr;
    const TopologyPodSet* leader = nullptr;
    bool simulate_empty = false;
    DomainId within = no_domain;  // only leaves below it
    const AssumedUse* assumed = nullptr;
  };
  struct Found {
    TopologyAssignment workers;
    std::optional<TopologyAssignment> leader;
    TopologyReason reason;
  };
  Found place(const Sought& sought);
  std::optional<TopologyReason> read_ask(const TopologyPodSet& workers, SearchAsk& ask) const;
  void fill(const Sought& sought, const SearchAsk& ask, TopologyExclusions& exclusions);
  void mark_assumed(const AssumedUse* assumed);
  TopologyReason no_fit(const Shortage& shortage, const SearchAsk& ask, const TopologyPodSet& workers, TopologyExclusions exclusions) const;
  TopologyAssignment assignment_of(std::span<const DomainId> leaves, bool of_leaders) const;
  std::string ask_level(const TopologyPodSet& pod_set) const;  // empty: none

  Found replace(const TopologyPodSet& pod_set, const TopologyQuestion& question, AssumedUse& assumed);
  DomainId replacement_domain(const TopologyPodSet& pod_set, std::int64_t missing, const TopologyAssignment& rest) const;
  DomainId broken_slice(const TopologyAssignment& rest, std::int64_t missing, const SliceLayer& layer) const;
  const DomainPods* stale(const TopologyAssignment& assignment) const;  // a domain that is gone
  TopologyAssignment merged(const TopologyAssignment& a, const TopologyAssignment& b) const;
  // nullopt: not a case for it, place anew.
  std::optional<std::vector<TopologyAnswer>> scale(const TopologyPodSet& workers, const TopologyPodSet* leader, const TopologyQuestion& question, AssumedUse& assumed);

  TopologyShape shape;
  TopologyTree tree;
  std::shared_ptr<ResourceIds> ids;
  TopologyGates gates;
  int pods_id = 0;
  std::vector<int> column_of_id;
  std::size_t columns = 0;
  // Per leaf and column: allocatable less the pods of others; that less the pods of topology workloads.
  std::vector<std::int64_t> free, left;
  bool bare_nodes = true;  // no node has a taint

  struct Old {
    bool of_left;
    std::size_t cell;
    std::int64_t value;
  };
  std::vector<Old> journal;
  int trials = 0;

  std::list<Eligible> known;
  std::vector<Room> rooms;
  // Uses of earlier pod sets of the workload: which leaves, how much of each column.
  std::vector<std::int32_t> assumed_slot;  // per leaf: 0 none, else 1 + place in assumed_rows
  std::vector<LeafIndex> assumed_leaves;
  std::vector<std::int64_t> assumed_rows;
};

// How many pods fit into what a leaf has, and the resource that allows the fewest (of equal ones the first by name).
struct PodFit {
  std::int64_t count = 0;
  int limiting = -1;  // resource id
};
PodFit count_in(const std::int64_t* row, std::span<const RowNeed> needs);

}  // namespace fairlead::governance
