// SPDX-License-Identifier: Apache-2.0
// Namespaces: every live one has the ServiceAccount "default"; a terminating one is emptied, kind by kind, says in its conditions what is still there, and is then let go. The registry refuses to remove a
// namespace with anything inside, so a mistake here cannot lose objects.
#pragma once
#include <map>
#include <string>

#include "apiserver/registry.h"
#include "base/clock.h"
#include "kube/controller.h"

namespace fairlead::apiserver {

class NamespaceController final : public kube::Controller {
 public:
  NamespaceController(Registry& registry, kube::KubeApi& api, const Clock& clock) : registry_(registry), api_(api), clock_(clock) {}
  std::string name() const override { return "namespace"; }
  std::vector<Source> sources() const override { return {{kube::resources::namespaces, "", kube::key_itself}}; }
  void start(const kube::Caches&) override {}
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  struct Left {
    std::map<std::string, std::size_t> objects;     // by resource, "pods." or "boats.sea.example.org"
    std::map<std::string, std::size_t> finalizers;  // how many objects each of them holds
    bool none() const { return objects.empty(); }
  };
  // Deletes all that is not yet being deleted; what is still there.
  Result<Left> empty(const std::string& space);
  Result<void> tell(kube::Json space, const Left& left);
  Registry& registry_;
  kube::KubeApi& api_;
  const Clock& clock_;
};

}  // namespace fairlead::apiserver
