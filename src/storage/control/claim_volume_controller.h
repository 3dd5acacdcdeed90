// SPDX-License-Identifier: Apache-2.0
// Provisions, grows and deletes volumes for claims: what external-provisioner and external-resizer do on a real Kubernetes. Keys: claims by namespace and name, PersistentVolumes by name alone.
#pragma once
#include "base/clock.h"
#include "kube/controller.h"

namespace fairlead::storage {

class ClaimVolumeController final : public kube::Controller {
 public:
  ClaimVolumeController(kube::KubeApi& api, const Clock& clock) : api_(api), clock_(clock) {}
  std::string name() const override { return "claim-volume"; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  Result<kube::Next> keep_claim(const kube::Json& claim);
  Result<kube::Next> drop_left_over(const std::string& volume);
  Result<kube::Next> keep_persistent(const kube::Json& persistent);
  kube::KubeApi& api_;
  const Clock& clock_;
  const kube::Caches* caches_ = nullptr;
};

}  // namespace fairlead::storage
