// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/clock.h"
#include "kube/controller.h"

namespace fairlead::slurm {

// Condition Scheduled of an ActiveCheck (slurm.nebius.ai/v1alpha1). Its checks are not run in this version, and an administrator who relies on them is told so, with whatever else is wrong with the object. Pure.
kube::Json told_active_check(const kube::Json& check, bool cluster_is_there, Instant now);

class ActiveCheckController final : public kube::Controller {
 public:
  ActiveCheckController(kube::KubeApi& api, const Clock& clock, std::string space = "") : api_(api), clock_(clock), space_(std::move(space)) {}
  std::string name() const override { return "slurm-active-check"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  kube::KubeApi& api_;
  const Clock& clock_;
  const std::string space_;
  const kube::Caches* caches_ = nullptr;
};

}  // namespace fairlead::slurm
