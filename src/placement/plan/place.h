// SPDX-License-Identifier: Apache-2.0
// Which node each waiting pod goes to, and who makes room for it.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "placement/plan/match.h"
#include "placement/plan/views.h"

namespace fairlead::placement {

using SnapshotPools = std::map<std::string, std::string>;  // the pool of each Snapshot, by its name

struct Snapshot {
  std::vector<Node> nodes;
  std::vector<Pod> pods;  // those on nodes and those that wait; what is finished or not ours is left alone
  std::vector<Budget> budgets = {};
  std::vector<Claim> claims = {};
  bool claims_known = false;  // false: pods do not wait for their claims
  Spaces spaces = {};         // labels of namespaces
  Pools pools = {};
  SnapshotPools snapshots = {};
};
// The same without copies. What is pointed to must outlive the call.
struct View {
  std::vector<const Node*> nodes;
  std::vector<const Pod*> pods;
  std::vector<const Budget*> budgets = {};
  std::vector<const Claim*> claims = {};
  bool claims_known = false;
  const Spaces* spaces = nullptr;
  const Pools* pools = nullptr;
  const SnapshotPools* snapshots = nullptr;
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
  std::string preemption;  // why nobody makes room for it, in kube-scheduler's words; empty: somebody does, or nobody was asked
  friend bool operator==(const Wait&, const Wait&) = default;
};
// Pods of lower priority that leave a node so that `pod`, which is among the waiting, fits. It goes there when they are gone.
struct Preempt {
  kube::ObjectKey pod;
  std::string uid;
  std::string node;
  struct Victim {
    kube::ObjectKey pod;
    std::string uid;
    friend bool operator==(const Victim&, const Victim&) = default;
  };
  std::vector<Victim> victims;  // by namespace and name
  friend bool operator==(const Preempt&, const Preempt&) = default;
};
// A claim that binds now, because a pod that uses it has found its node.
struct ChooseNode {
  kube::ObjectKey claim;
  std::string node;
  friend bool operator==(const ChooseNode&, const ChooseNode&) = default;
};
struct Plan {
  std::vector<Place> places;  // in the order decided
  std::vector<Wait> waits;
  std::vector<Preempt> preempts;
  std::vector<ChooseNode> claims;
  friend bool operator==(const Plan&, const Plan&) = default;
};
std::string print(const Plan& plan);  // a line each, for logs and tests

// Places pods one by one: higher priority first, then older, then by namespace and name. Each goes where most of the node stays free, away from its
// siblings (same owner, or same labels), preferring what it prefers; equal nodes by name. A pod that fits nowhere waits, with the reason, and does not hold up
// those behind it, except from the room that was made, or is being made, for it. Equal arguments give equal plans, whatever their order. Never gives out more
// than a node has free. O(pods * nodes); affinity between pods and spreading cost O(nodes) more for a pod that asks for them.
Plan plan_placement(const View& view);
Plan plan_placement(const Snapshot& snapshot);

}  // namespace fairlead::placement
