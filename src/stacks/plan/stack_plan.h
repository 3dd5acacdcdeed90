// SPDX-License-Identifier: Apache-2.0
// The life of a stack: from what was asked for and what its clusters say to the next writes, and what its status and events say. Pure; docs/design/060-stacks.md.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/stack.h"
#include "base/clock.h"
#include "kube/json.h"

namespace fairlead::stacks {

struct StackSnapshot {
  kube::Json stack;
  std::map<std::string, kube::Json> clusters;  // by name: all that the stack names and that are there, of the API itself
};

struct StackStep {
  enum class Verb { Create, Update, Delete };
  Verb verb = Verb::Create;
  kube::Json object;                           // a Cluster, whole; of Delete: with uid and version
  std::string resource;                        // its logical id
  std::string why;
};

struct StackPlan {
  kube::Json status;                           // of the Stack; null: as it is. Written first: what the steps are for was written before them
  std::vector<StackStep> steps;                // of what the stored status has in progress
  bool gone = false;                           // nothing is left of it: the Stack object may go
  std::optional<std::chrono::nanoseconds> look_again;
};

// Equal arguments give equal plans. Idempotent: once its steps have had their effect, there are none. No Cluster is changed or deleted that does not say that this very stack made it. O(n^2) in the resources of the stack.
StackPlan plan_stack(const StackSnapshot& snapshot, Instant now);

// Of a step that the API refuses for good (Invalid, Forbidden): the stack's status with that resource as failed, by `why`; null: the resource is not under way any more, or it goes, which is tried again.
kube::Json plan_refused(const kube::Json& stack, const std::string& resource, const std::string& why, Instant now);

// The names of all Clusters that a plan looks at.
std::vector<std::string> clusters_of(const kube::Json& stack);

// What becomes of a Cluster's spec that was made as `from` and is to be as `to`: what others added to it meanwhile stays, and the numbers that its groups gave out.
kube::Json changed_spec(const kube::Json& cluster, const kube::Json& from, const kube::Json& to);

// Ref and Fn::GetAtt of a Cluster: "Ref" and ClusterArn, ClusterStatus, CreationTime, FailureMessage; nothing: no such attribute.
std::optional<std::string> attribute_of(const kube::Json& cluster, const std::string& name);

}  // namespace fairlead::stacks
