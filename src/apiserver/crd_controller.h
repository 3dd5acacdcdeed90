// SPDX-License-Identifier: Apache-2.0
// A CustomResourceDefinition that is being deleted takes its objects with it: they are deleted first (their finalizers hold it), then it goes.
#pragma once
#include "apiserver/registry.h"
#include "kube/controller.h"

namespace fairlead::apiserver {

class CrdController final : public kube::Controller {
 public:
  CrdController(Registry& registry, kube::KubeApi& api) : registry_(registry), api_(api) {}
  std::string name() const override { return "crd"; }
  std::vector<Source> sources() const override { return {{kube::resources::crds, "", kube::key_itself}}; }
  void start(const kube::Caches&) override {}
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  Registry& registry_;
  kube::KubeApi& api_;
};

}  // namespace fairlead::apiserver
