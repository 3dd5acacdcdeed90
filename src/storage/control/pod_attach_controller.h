// SPDX-License-Identifier: Apache-2.0
// Attachments for pods: what the attach/detach controller and external-attacher do on a real Kubernetes. A volume is attached to the node of a pod that uses it, and detached once no pod there does; that it is in use still, its pool sees.
// It also labels each Node with the pool that it reaches (topology.fairlead.dev/pool), as kubelets do by what a driver's node tells. Keys: PersistentVolumes and Nodes ("node/NAME").
#pragma once
#include "base/clock.h"
#include "kube/controller.h"

namespace fairlead::storage {

class PodAttachController final : public kube::Controller {
 public:
  PodAttachController(kube::KubeApi& api, const Clock& clock) : api_(api), clock_(clock) {}
  std::string name() const override { return "pod-attach"; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  Result<kube::Next> label(const std::string& node);
  kube::KubeApi& api_;
  const Clock& clock_;
  const kube::Caches* caches_ = nullptr;
};

}  // namespace fairlead::storage
