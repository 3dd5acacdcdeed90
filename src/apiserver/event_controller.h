// SPDX-License-Identifier: Apache-2.0
// Events are forgotten an hour after they were last seen.
#pragma once
#include "base/clock.h"
#include "kube/controller.h"

namespace fairlead::apiserver {

class EventController final : public kube::Controller {
 public:
  EventController(kube::KubeApi& api, const Clock& clock, std::chrono::seconds lifetime) : api_(api), clock_(clock), lifetime_(lifetime) {}
  std::string name() const override { return "event-lifetime"; }
  // One key for the whole sweep; namespaces are a source because there always is one.
  std::vector<Source> sources() const override {
    return {{kube::resources::namespaces, "", [](const kube::Change&) { return std::vector<kube::ObjectKey>{{"", "sweep"}}; }}};
  }
  void start(const kube::Caches&) override {}
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  kube::KubeApi& api_;
  const Clock& clock_;
  std::chrono::seconds lifetime_;
};

}  // namespace fairlead::apiserver
