// SPDX-License-Identifier: Apache-2.0
// Namespaces: every live one has the ServiceAccount "default"; a terminating one is emptied, kind by kind, and then let go. The registry refuses to remove a
// namespace with anything inside, so a mistake here cannot lose objects.
#pragma once
#include "apiserver/registry.h"
#include "kube/controller.h"

namespace fairlead::apiserver {

class NamespaceController final : public kube::Controller {
 public:
  NamespaceController(Registry& registry, kube::KubeApi& api) : registry_(registry), api_(api) {}
  std::string name() const override { return "namespace"; }
  std::vector<Source> sources() const override { return {{kube::resources::namespaces, "", kube::key_itself}}; }
  void start(const kube::Caches&) override {}
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  // Deletes all that is not yet being deleted; how many objects are still there.
  Result<std::size_t> empty(const std::string& space);
  Registry& registry_;
  kube::KubeApi& api_;
};

}  // namespace fairlead::apiserver
