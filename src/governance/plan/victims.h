// SPDX-License-Identifier: Apache-2.0
// Whom to pre-empt so that a workload fits: classical (by class of candidate, then priority) and by fair share. The world is left as it was.
#pragma once
#include <functional>
#include <string_view>
#include <vector>

#include "governance/plan/world.h"

namespace fairlead::governance {

enum class VictimReason { InClusterQueue, InCohortReclamation, InCohortReclaimWhileBorrowing, InCohortFairSharing };
std::string_view text(VictimReason reason);

struct Victim {
  WorkloadId workload = none;
  VictimReason reason = VictimReason::InClusterQueue;
  friend bool operator==(const Victim&, const Victim&) = default;
};

struct Need {
  WorkloadId workload = none;      // who wants in
  std::uint32_t queue = none;
  std::vector<Use> uses;           // all that it will use
  std::vector<Column> contested;   // what does not fit as it is
  std::vector<std::pair<FlavorId, DomainUse>> places;  // what it holds already (a second pass)
  std::function<bool()> placed;    // is there a place in the topologies as they are now? empty: no topology asked for
};
// Empty: there is no set of victims that the policies allow and that is enough.
std::vector<Victim> find_victims(World& world, const Need& need);

// May `candidate` be taken for `preemptor` under the policy?
bool policy_allows(const World& world, PreemptionPolicy policy, const WorkloadSpec& preemptor, const WorkloadSpec& candidate);
// Who goes first: evicted, other queues than `own`, [heavier local queue], lower priority, later reserved, lower uid. Negative: a before b.
int compare_victims(const World& world, WorkloadId a, WorkloadId b, std::uint32_t own, bool by_history);
bool uses_any(const Workload& workload, const std::vector<Column>& contested);

// What an assigner asks of a flavor and resource: could victims make room, and how far would it borrow then.
enum class Possibility { NoCandidates, Preempt, Reclaim };  // Preempt: some of its own queue
struct Foreseen {
  Possibility possibility = Possibility::NoCandidates;
  int borrow_level = 0;
};
Foreseen foresee(World& world, WorkloadId workload, std::uint32_t queue, Column column, Amount amount);

// In which order queues lose workloads under fair sharing, for tests and explanation: (queue, candidates left in order).
class FairOrder {
 public:
  FairOrder(World& world, std::uint32_t preemptor, const std::vector<WorkloadId>& sorted_candidates);
  std::uint32_t next();  // none: no more. Between two calls pop() or drop() that queue.
  bool has(std::uint32_t queue) const { return left_[queue] < lists_[queue].size(); }
  WorkloadId pop(std::uint32_t queue) { return lists_[queue][left_[queue]++]; }
  void drop(std::uint32_t queue) { pruned_[world_->queues[queue].node] = true; }
  // The two nodes below the lowest cohort that holds both.
  std::pair<NodeId, NodeId> below_common(std::uint32_t target) const;

 private:
  std::uint32_t descend(NodeId cohort);
  World* world_;
  std::uint32_t preemptor_;
  std::vector<std::vector<WorkloadId>> lists_;  // by queue
  std::vector<std::size_t> left_;
  std::vector<bool> pruned_, on_path_;          // by node
};

}  // namespace fairlead::governance
