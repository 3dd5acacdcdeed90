// SPDX-License-Identifier: Apache-2.0
// Which flavor each pod set of a workload gets for each resource: at once, after pre-emption, or why not.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "governance/plan/reasons.h"
#include "governance/plan/victims.h"

namespace fairlead::governance {

enum class Mode { NoFit, Preempt, DeferredFit, Fit };  // worse to better
std::string_view text(Mode mode);

struct FlavorChoice {
  ResourceId resource = none;
  FlavorId flavor = none;
  Mode mode = Mode::NoFit;
  int tried = 0;   // index of the last flavor looked at; -1: all were, begin anew next time
  int borrow_level = 0;
};

// What came of looking at one flavor.
struct Attempt {
  FlavorId flavor = none;
  Mode mode = Mode::NoFit;
  int borrow_level = 0;
  std::optional<Possibility> possibility;
  std::vector<Why> reasons;  // unique, by text
  NoFitReason no_fit = NoFitReason::None;
};

struct PodSetFlavors {
  std::string name;
  std::int32_t count = 0;
  Amounts requests;
  std::vector<FlavorChoice> flavors;  // by resource; empty: none was found
  std::vector<Why> reasons;           // empty: it fits
  std::string error;                  // the request cannot be understood
  std::vector<Attempt> attempts;      // by flavor name
  std::optional<TopologyAssignment> topology;
  bool topology_pending = false;      // placed later: by a check, or elsewhere
  Mode mode() const;
};

struct Assignment {
  std::vector<PodSetFlavors> pod_sets;  // up to the first that failed
  int borrow_level = 0;
  Progress progress;
  std::vector<Use> uses;
  std::vector<std::pair<FlavorId, DomainUse>> places;  // what its placement adds
  NoFitReason no_fit = NoFitReason::None;

  Mode mode() const;
  void set_mode(Mode mode);
  std::optional<Mode> fixed_mode;  // where the whole is not the worst of its parts

  PodSetFlavors* pod_set(std::string_view name);
};
std::string message(const World& world, const Assignment& assignment);

using Oracle = std::function<Foreseen(Column, Amount)>;
// pod set -> resource -> flavor: when a decision is made anew within a cycle, flavors stay
using Nomination = std::vector<std::vector<std::pair<ResourceId, FlavorId>>>;

struct AssignInput {
  WorkloadId workload = none;
  std::uint32_t queue = none;
  const std::vector<std::int32_t>* counts = nullptr;  // fewer pods than asked
  const Nomination* nominated = nullptr;
  std::int64_t cycle = 0;
  Oracle oracle;                                      // empty: the world is asked
};
Assignment assign_flavors(World& world, const AssignInput& input);

// Placement of an assignment in the topologies as they are now. `reason` empty: found (or nothing to place).
struct Placement {
  struct Found {
    std::string pod_set;
    std::optional<TopologyAssignment> assignment;
  };
  std::vector<Found> found;
  std::string failed_pod_set, reason;
  FlavorId failed_flavor = none;
  bool ok() const { return failed_pod_set.empty(); }
};
// What is to be placed; marks pod sets that are placed later or cannot be.
std::vector<FlavorQuestion> placement_questions(World& world, WorkloadId workload, std::uint32_t queue, Assignment& assignment);
Placement place(World& world, WorkloadId workload, const std::vector<FlavorQuestion>& questions, bool simulate_empty);
void take_placement(World& world, WorkloadId workload, Assignment& assignment, const Placement& placement);
// What the placement uses beyond what the present admission holds in the same domains.
std::vector<std::pair<FlavorId, DomainUse>> new_places(World& world, WorkloadId workload, std::uint32_t queue, const Assignment& assignment, bool beyond_admission);
bool asks_topology(const World& world, const PodSetSpec& pod_set, std::uint32_t queue);
bool has_unhealthy_place(const WorkloadSpec& workload);

// May the pod sets run on the flavor at all? The first obstacle.
std::optional<Why> obstacle(const World& world, std::uint32_t queue, FlavorId flavor, const Group& group, const PodSetSpec& pod_set);

// Do selectors and affinity allow the flavor? Only labels that it names count: others may be of its nodes.
bool affinity_allows(const NodeNeeds& needs, const NodeFacts& flavor);

}  // namespace fairlead::governance
