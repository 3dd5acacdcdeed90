// SPDX-License-Identifier: Apache-2.0
// Which domain holds how many pods of a pod set, and the two spellings of it in the API: v1beta1 lists domains, v1beta2 packs them into slices.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kube/json.h"

namespace fairlead::governance {

struct DomainPods {
  std::vector<std::string> values;  // one per level of the assignment
  std::int32_t count = 0;
  friend bool operator==(const DomainPods&, const DomainPods&) = default;
};
struct TopologyAssignment {
  std::vector<std::string> levels;
  std::vector<DomainPods> domains;  // in order of the values of all levels of the tree
  friend bool operator==(const TopologyAssignment&, const TopologyAssignment&) = default;
};

std::int64_t pods_in(const TopologyAssignment& assignment);
// The first `count` pods, in the order of the domains.
TopologyAssignment first_pods(const TopologyAssignment& assignment, std::int32_t count);
std::string text(const TopologyAssignment& assignment);  // "x1:2 x2:1", of "a/b" values where there are several levels

// v1beta2 {levels, slices} and v1beta1 {levels, domains}, whichever it is. Missing values are empty, counts within 0 and 2^31-1; a million domains at most.
TopologyAssignment read_topology_assignment(const kube::Json& assignment);
kube::Json v1beta1_json(const TopologyAssignment& assignment);
// By runs of hosts with a common prefix (Kueue's gate TASAssignmentsEncodingByHostnamePrefix), or one slice where that is shorter.
kube::Json v1beta2_json(const TopologyAssignment& assignment);

}  // namespace fairlead::governance
