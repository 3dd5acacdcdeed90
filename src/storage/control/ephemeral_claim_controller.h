// SPDX-License-Identifier: Apache-2.0
// Claims of generic ephemeral volumes: made for a pod, owned by it and gone with it; the ephemeral-volume controller of a real Kubernetes does that. Keys: pods.
#pragma once
#include "base/clock.h"
#include "kube/controller.h"

namespace fairlead::storage {

class EphemeralClaimController final : public kube::Controller {
 public:
  EphemeralClaimController(kube::KubeApi& api, const Clock& clock) : api_(api), clock_(clock) {}
  std::string name() const override { return "ephemeral-claim"; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  kube::KubeApi& api_;
  const Clock& clock_;
  const kube::Caches* caches_ = nullptr;
};

}  // namespace fairlead::storage
