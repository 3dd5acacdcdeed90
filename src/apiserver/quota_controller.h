// SPDX-License-Identifier: Apache-2.0
// The status of ResourceQuotas: what is used, as the registry counts it (quota_ledger.h). Told at once when objects that are looked into change (quota_plan.h); of other kinds within a second.
#pragma once
#include "apiserver/registry.h"
#include "base/clock.h"
#include "kube/controller.h"

namespace fairlead::apiserver {

class QuotaController final : public kube::Controller {
 public:
  QuotaController(const Registry& registry, kube::KubeApi& api, const Clock& clock) : registry_(registry), api_(api), clock_(clock) {}
  std::string name() const override { return "resource-quota"; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches& caches) override;
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  std::vector<kube::ObjectKey> quotas_of(const kube::Change& change) const;

  const Registry& registry_;
  kube::KubeApi& api_;
  const Clock& clock_;
  const kube::Reader* quotas_ = nullptr;
};

}  // namespace fairlead::apiserver
