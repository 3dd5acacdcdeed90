// SPDX-License-Identifier: Apache-2.0
// For every other node a route to its pods' range by its address, of each family that it has.
#pragma once
#include <string>

#include "kube/controller.h"
#include "node/netlink.h"

namespace fairlead::node {

// The routes that should be there. Pure. A node without range or address has none.
Routes wanted_routes(const std::vector<kube::Json>& nodes, const std::string& own_name);

class RouteController final : public kube::Controller {
 public:
  explicit RouteController(std::string node_name) : node_name_(std::move(node_name)) {}
  std::string name() const override { return "routes"; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches& caches) override { nodes_ = &caches.of(kube::resources::nodes); }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  const std::string node_name_;
  const kube::Reader* nodes_ = nullptr;
};

}  // namespace fairlead::node
