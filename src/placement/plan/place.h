// SPDX-License-Identifier: Apache-2.0
// Which node each waiting pod goes to.
#pragma once
#include <string>
#include <vector>

#include "placement/plan/views.h"

namespace fairlead::placement {

struct Snapshot {
  std::vector<Node> nodes;
  std::vector<Pod> pods;  // those on nodes and those that wait; what is finished or not ours is left alone
};

struct Place {
  kube::ObjectKey pod;
  std::string uid;
  std::string node;
  friend bool operator==(const Place&, const Place&) = default;
};
struct Wait {
  kube::ObjectKey pod;
  std::string uid;
  std::string why;  // "0/3 nodes are available: 2 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint {k: v}."
  friend bool operator==(const Wait&, const Wait&) = default;
};
struct Plan {
  std::vector<Place> places;  // in the order decided
  std::vector<Wait> waits;
  friend bool operator==(const Plan&, const Plan&) = default;
};
std::string print(const Plan& plan);  // a line each, for logs and tests

// Places pods one by one: higher priority first, then older, then by namespace and name. Each goes where most of the node stays free, away from its
// siblings (same owner, or same labels), preferring what it prefers; equal nodes by name. A pod that fits nowhere waits, with the reason, and does not hold up
// those behind it. Equal arguments give equal plans, whatever their order. Never gives out more than a node has free. O(pods * nodes), times the pods on
// nodes where (anti-)affinity between pods is asked for.
Plan plan_placement(Snapshot snapshot);

}  // namespace fairlead::placement
