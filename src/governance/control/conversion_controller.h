// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>

#include "api/queue_crds.h"
#include "kube/controller.h"

namespace fairlead::governance {

// Tells the definitions of Kueue's kinds that are ours where their conversion webhook is and whom to believe. Definitions of somebody else are left alone.
class ConversionController final : public kube::Controller {
 public:
  // Must not block; nullopt: the webhook does not serve yet, which is asked again.
  using Where = std::function<std::optional<api::QueueWebhook>()>;
  ConversionController(kube::KubeApi& api, Where where) : api_(api), where_(std::move(where)) {}
  std::string name() const override { return "queue-conversion"; }
  std::vector<Source> sources() const override { return {{kube::resources::crds, "", keys}}; }
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  static std::vector<kube::ObjectKey> keys(const kube::Change& change);
  kube::KubeApi& api_;
  const Where where_;
  const kube::Caches* caches_ = nullptr;
};

}  // namespace fairlead::governance
