// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kube/controller.h"

namespace fairlead::notify {

// Makes a Notification of each ClusterEvent for each topic that is told of it (docs/design/054), and marks the event when all are there. It sends nothing.
class ClusterEventController final : public kube::Controller {
 public:
  struct Options {
    std::string site_space = "fairlead-system";  // topics in it are told of all clusters
  };
  ClusterEventController(kube::KubeApi& api, Options options) : api_(api), options_(std::move(options)) {}
  std::string name() const override { return "notify-cluster-events"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  kube::KubeApi& api_;
  const Options options_;
  const kube::Caches* caches_ = nullptr;
};

}  // namespace fairlead::notify
