// SPDX-License-Identifier: Apache-2.0
// EndpointSlices of Services with a selector, headless or not (endpoints_plan.h).
#pragma once
#include "kube/controller.h"

namespace fairlead::apiserver {

class EndpointsController final : public kube::Controller {
 public:
  explicit EndpointsController(kube::KubeApi& api) : api_(api) {}
  std::string name() const override { return "endpointslice-controller"; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches& caches) override { services_ = &caches.of(kube::resources::services); }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  std::vector<kube::ObjectKey> services_of(const kube::Change& change) const;
  kube::KubeApi& api_;
  const kube::Reader* services_ = nullptr;
};

}  // namespace fairlead::apiserver
