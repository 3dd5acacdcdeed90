// SPDX-License-Identifier: Apache-2.0
// The status of PodDisruptionBudgets (budget_plan.h).
#pragma once
#include "base/clock.h"
#include "kube/controller.h"

namespace fairlead::apiserver {

class BudgetController final : public kube::Controller {
 public:
  BudgetController(kube::KubeApi& api, const Clock& clock) : api_(api), clock_(clock) {}
  std::string name() const override { return "disruption-controller"; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches& caches) override;
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  std::vector<kube::ObjectKey> budgets_of(const kube::Change& change) const;
  kube::KubeApi& api_;
  const Clock& clock_;
  const kube::Reader* budgets_ = nullptr;
};

}  // namespace fairlead::apiserver
