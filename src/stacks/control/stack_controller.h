// SPDX-License-Identifier: Apache-2.0
// Stacks become clusters: reads a Stack and the Clusters that it names, plans, writes. It holds nothing between two rounds; whoever dies between two writes, the next one goes on (docs/design/060-stacks.md).
#pragma once
#include <string>
#include <vector>

#include "base/clock.h"
#include "kube/controller.h"
#include "stacks/plan/stack_plan.h"

namespace fairlead::stacks {

// What it asks of the API beside its sources.
kube::Access stack_access();

class StackController final : public kube::Controller {
 public:
  StackController(kube::KubeApi& api, const Clock& clock) : api_(api), clock_(clock) {}

  std::string name() const override { return "stack"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override { return stack_access(); }
  void start(const kube::Caches&) override {}
  // Conflict: somebody has changed the stack or a cluster meanwhile.
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  Result<void> take(const StackStep& step);
  Result<void> finish(const kube::Json& stack);

  kube::KubeApi& api_;
  const Clock& clock_;
};

}  // namespace fairlead::stacks
