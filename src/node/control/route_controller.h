// SPDX-License-Identifier: Apache-2.0
// For every other node a route to its pods' range by its address, of each family that it has.
#pragma once
#include <string>

#include "kube/controller.h"
#include "node/netlink.h"

namespace fairlead::node {

// The routes that should be there. Pure. A node without range or address has none.
Routes wanted_routes(const std::vector<kube::Json>& nodes, const std::string& own_name);
// What nodes a node of its own has routes to: local ones and hosts that joined hang on different links.
struct RouteScope {
  std::string label;      // of hosts that joined, with value "true"; empty: all nodes are alike
  bool joined = false;    // this one is such a host
  std::string within;     // "10.78.0.0/16": ranges elsewhere are nobody's to route; empty: any
};
Routes wanted_routes(const std::vector<kube::Json>& nodes, const std::string& own_name, const RouteScope& scope);

class RouteController final : public kube::Controller {
 public:
  explicit RouteController(std::string node_name, RouteScope scope = {}) : node_name_(std::move(node_name)), scope_(std::move(scope)) {}
  std::string name() const override { return "routes"; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches& caches) override { nodes_ = &caches.of(kube::resources::nodes); }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  const std::string node_name_;
  const RouteScope scope_;
  const kube::Reader* nodes_ = nullptr;
};

// The same on the machine of the embedded server, which is no node itself: routes to the pods of hosts that joined, so that it reaches them. Where it is a node, too, its agent has done that.
class HostRouteController final : public kube::Controller {
 public:
  // `label`: of the nodes that are meant, with value "true"; `within`: the site's range of pods, "10.78.0.0/16": routes elsewhere are another site's.
  HostRouteController(std::string label, std::string within) : label_(std::move(label)), within_(std::move(within)) {}
  std::string name() const override { return "host-routes"; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches& caches) override { nodes_ = &caches.of(kube::resources::nodes); }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  const std::string label_, within_;
  const kube::Reader* nodes_ = nullptr;
};

// Is the range "10.78.3.0/24" inside of "10.78.0.0/16"? False for what is not of IPv4. Pure.
bool is_within(const std::string& range, const std::string& outer);

}  // namespace fairlead::node
