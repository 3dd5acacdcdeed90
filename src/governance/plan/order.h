// SPDX-License-Identifier: Apache-2.0
// Who comes first: in a queue, and among the heads of a cycle.
#pragma once
#include <cstdint>
#include <vector>

#include "governance/plan/world.h"

namespace fairlead::governance {

// In one queue. Negative: a first. `sticky`: who pre-empts right now.
int compare_in_queue(const World& world, WorkloadId a, WorkloadId b, WorkloadId sticky);

// What a head brings to the order of a cycle.
struct Head {
  WorkloadId workload = none;
  std::uint32_t queue = none;
  bool has_quota = false;    // a second pass
  bool preemptor = false;    // waits for its victims to stop
  int borrow_level = 0;
  std::vector<Use> uses;     // what the assignment would add
};
// Classical: quota already, preemptors (gate), lower borrow level, priority (gate), age. Negative: a first; 0: as they came.
int compare_heads(const World& world, const Head& a, const Head& b);

// The fair pick: index of the head whose turn it is. From the leaves to the root each cohort nominates the head of the child that borrows least with it.
// `heads` of one root at least; those not in `open` are out.
std::size_t fairest(World& world, const std::vector<Head>& heads, const std::vector<bool>& open);

}  // namespace fairlead::governance
