// SPDX-License-Identifier: Apache-2.0
// Keeps NetworkInterfaces where they are attached: tells nodes' agents, by an annotation, and people, by the status (plan/interfaces.h). All are one key, decided by one thread.
#pragma once
#include <atomic>
#include <string>

#include "base/clock.h"
#include "kube/controller.h"

namespace fairlead::fleet {

class InterfaceController final : public kube::Controller {
 public:
  InterfaceController(kube::KubeApi& api, const Clock& clock) : api_(api), clock_(clock) {}

  std::string name() const override { return "network-interface"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;
  static const kube::ObjectKey kAll;  // the one key

 private:
  kube::KubeApi& api_;
  const Clock& clock_;
  const kube::Caches* caches_ = nullptr;
  mutable std::atomic<bool> any_ = false;  // there is one, for all that is known
};

}  // namespace fairlead::fleet
