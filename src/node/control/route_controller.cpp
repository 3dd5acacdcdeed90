// SPDX-License-Identifier: Apache-2.0
#include "node/control/route_controller.h"

#include "base/log.h"
#include "kube/object.h"

namespace fairlead::node {
using kube::Json;

Routes wanted_routes(const std::vector<Json>& nodes, const std::string& own_name) {
  Routes out;
  for (const Json& node : nodes) {
    if (kube::name_of(node) == own_name) continue;
    std::vector<std::string> ranges{node["spec"]["podCIDR"].string()};
    for (const Json& range : node["spec"]["podCIDRs"].items()) ranges.push_back(range.string());
    const auto is_six = [](const std::string& text) { return text.find(':') != std::string::npos; };
    for (const std::string& range : ranges)
      for (const Json& address : node["status"]["addresses"].items())
        if (!range.empty() && address["type"].string() == "InternalIP" && is_six(address["address"].string()) == is_six(range)) out.emplace(range, address["address"].string());
  }
  return out;
}

std::vector<kube::Controller::Source> RouteController::sources() const {
  // One key for all: routes are compared as a whole.
  return {
      {.resource = kube::resources::nodes, .space = "", .keys = [](const kube::Change&) -> std::vector<kube::ObjectKey> { return {{"", "all"}}; }}};
}

Result<kube::Next> RouteController::reconcile(const kube::ObjectKey&) {
  const Routes wanted = wanted_routes(nodes_->list(""), node_name_);
  auto have = our_routes();
  if (!have) return std::unexpected(std::move(have.error()));
  for (const auto& [range, gateway] : *have) {
    if (wanted.contains(range)) continue;
    if (auto deleted = delete_route(range); !deleted) return std::unexpected(std::move(deleted.error()));
    log_info("route deleted", {{"range", range}, {"gateway", gateway}});
  }
  std::optional<Error> first;
  for (const auto& [range, gateway] : wanted) {
    if (const auto it = have->find(range); it != have->end() && it->second == gateway) continue;
    auto set = set_route(range, gateway);
    if (set)
      log_info("route set", {{"range", range}, {"gateway", gateway}});
    else if (!first)
      first = std::move(set.error());  // one node with a bad address must not cost the others their routes
  }
  if (first) return std::unexpected(std::move(*first));
  // Somebody else may change routes: looked at again now and then.
  return kube::Next{std::chrono::seconds(30)};
}

}  // namespace fairlead::node
