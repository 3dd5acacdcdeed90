// SPDX-License-Identifier: Apache-2.0
// What CreateStack, UpdateStack and change sets ask for, from a template to clusters that are ready to be made: evaluated, checked as CreateCluster and UpdateCluster check, and allowed to who asks. Nothing is written. For cloudformation.cpp alone.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "formation/evaluate.h"
#include "hyperpod/operations.h"

namespace fairlead::hyperpod {

struct StackRequest {
  std::string name, arn;                  // of the stack
  std::string body;                       // the template
  formation::Values parameters;
  std::set<std::string> kept;             // UsePreviousValue
  std::optional<Tags> tags;               // none: as they were
  std::vector<std::string> capabilities;
  bool goes_back = true;                  // a failure deletes what was made
};

struct StackChange {
  std::string action;                     // Add, Modify, Remove
  std::string id, type, physical;
};
struct StackWish {
  Json side;                              // spec.target of a Stack
  std::vector<StackChange> changes;       // by logical id; empty, and `differs` false: "No updates are to be performed."
  bool differs = false;
};

// `stack`: the one that is there; null: none. ValidationException: in AWS's words, with the resource that is meant. AccessDeniedException: IAM is asked for each cluster what CreateCluster, UpdateCluster and DeleteCluster ask.
Answer<StackWish> stack_wish(const Sources& sources, const Call& call, const StackRequest& request, const Json& stack);

// Its Cluster, fresh, if this stack made it; null: it is not there any more.
Answer<Json> cluster_of_stack(const Sources& sources, const Json& stack, const Json& resource);
// sagemaker:DeleteCluster of all that goes with the stack: what its DeletionPolicy keeps is left out.
Answer<void> allow_stack_deletion(const Sources& sources, const Call& call, const Json& stack);

}  // namespace fairlead::hyperpod
