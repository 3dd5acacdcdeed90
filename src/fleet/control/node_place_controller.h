// SPDX-License-Identifier: Apache-2.0
// Nodes of clusters that Kubernetes orchestrates say where they are, as AWS's node programs expect it (plan/node_place.h). Keys: Nodes.
#pragma once
#include <mutex>
#include <string>

#include "kube/controller.h"

namespace fairlead::fleet {

struct NodePlaceOptions {
  bool id_changes = false;  // of plan_node_place
  std::string space;        // where the site says what its region is
};

class NodePlaceController final : public kube::Controller {
 public:
  NodePlaceController(kube::KubeApi& api, NodePlaceOptions options) : api_(api), options_(std::move(options)) {}

  std::string name() const override { return "node-place"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  Result<std::string> region();
  kube::KubeApi& api_;
  const NodePlaceOptions options_;
  const kube::Caches* caches_ = nullptr;
  std::mutex mutex_;
  std::string region_;  // of a site it never changes
};

}  // namespace fairlead::fleet
