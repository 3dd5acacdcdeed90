// SPDX-License-Identifier: Apache-2.0
// Stack (fairlead.dev/v1alpha1) as values: what CreateStack asks for, settled and allowed in the request, and what has become of it. `spec` is written by who asks, `status` by the controller of stacks (docs/design/060-stacks.md).
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::api {

inline const kube::Resource kStacks{"fairlead.dev", "v1alpha1", "stacks", "Stack", false};
kube::Json stack_crd();

inline constexpr const char* kStackFinalizer = "fairlead.dev/stack";
inline constexpr const char* kStackLabel = "fairlead.dev/stack";                      // of a Cluster: the Stack object that made it
inline constexpr const char* kStackUid = "fairlead.dev/stack-uid";                    // annotation of it: that very Stack; no other changes or deletes it
inline constexpr const char* kStackResource = "fairlead.dev/stack-resource";          // annotation: the logical id
inline constexpr const char* kStackOperation = "fairlead.dev/stack-operation";        // annotation: of the last change that a stack made to its spec
inline constexpr const char* kStackClusterType = "AWS::SageMaker::Cluster";

// One resource, ready to be made: all that its template left open was settled when the stack was asked for.
struct StackResource {
  std::string id, type;                   // id: the logical one
  std::string cluster, title;             // the Cluster object, and its ClusterName
  kube::Json annotations, spec;           // of the Cluster
  std::vector<std::string> depends_on;    // others of the same side
  std::string deletion;                   // Delete, Retain, RetainExceptOnCreate
};
// What a stack is to be, or was.
struct StackSide {
  std::vector<StackResource> resources;
  const StackResource* resource(std::string_view id) const;
};

struct Stack {
  std::string name, uid, title, arn;      // title: StackName as it was given
  std::string operation, kind;            // the last that was asked for: its id; Create, Update, Delete. Empty: none yet, there are change sets alone
  std::string on_failure;                 // ROLLBACK, DO_NOTHING, DELETE
  std::optional<std::chrono::minutes> timeout;
  Instant asked{};
  StackSide target, before;               // before: of an Update, what it goes back to
  bool deleting = false, finalizer = false;
};
// Never fails: what is missing is empty.
Stack read_stack(const kube::Json& object);

// StackStatus, from the answer to a request on: before the controller has taken it up, as in progress.
std::string stack_phase(const kube::Json& object);
bool is_stack_at_rest(std::string_view phase);  // nothing is under way
// spec.target, or, once an update was rolled back, spec.before.
const kube::Json& stack_in_force(const kube::Json& object);

}  // namespace fairlead::api
