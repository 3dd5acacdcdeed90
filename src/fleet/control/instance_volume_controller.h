// SPDX-License-Identifier: Apache-2.0
// Volumes of instances whose groups name a key (plan/instance_volumes.h). Keys: Instances.
#pragma once
#include <string>

#include "base/clock.h"
#include "kube/controller.h"

namespace fairlead::fleet {

class InstanceVolumeController final : public kube::Controller {
 public:
  InstanceVolumeController(kube::KubeApi& api, const Clock& clock) : api_(api), clock_(clock) {}

  std::string name() const override { return "instance-volumes"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  Result<void> tell(const std::string& node, const std::string& trouble);
  kube::KubeApi& api_;
  const Clock& clock_;
  const kube::Caches* caches_ = nullptr;
};

}  // namespace fairlead::fleet
