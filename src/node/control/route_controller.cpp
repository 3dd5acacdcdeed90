// SPDX-License-Identifier: Apache-2.0
#include "node/control/route_controller.h"

#include <arpa/inet.h>

#include <cstdlib>
#include <functional>
#include <optional>

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

Routes wanted_routes(const std::vector<Json>& nodes, const std::string& own_name, const RouteScope& scope) {
  std::vector<Json> alike;
  for (const Json& node : nodes)
    if (scope.label.empty() || (node["metadata"]["labels"][scope.label].string() == "true") == scope.joined) alike.push_back(node);
  Routes out = wanted_routes(alike, own_name);
  std::erase_if(out, [&](const auto& route) { return !scope.within.empty() && !is_within(route.first, scope.within); });
  return out;
}

namespace {

// One key for all: routes are compared as a whole.
std::vector<kube::Controller::Source> all_nodes() {
  // Most changes of Nodes are heartbeats and the like: nothing that a route is made of.
  const auto told = [](const Json& node) { return Json::array({node["metadata"]["labels"], node["spec"]["podCIDR"], node["spec"]["podCIDRs"], node["status"]["addresses"]}); };
  return {{.resource = kube::resources::nodes, .space = "", .keys = [told](const kube::Change& change) -> std::vector<kube::ObjectKey> {
             if (change.before && change.after && told(*change.before) == told(*change.after)) return {};
             return {{"", "all"}};
           }}};
}

// What is wanted is made, what is ours and not wanted goes. Somebody else may change routes: looked at again now and then.
Result<kube::Next> settle(const Routes& wanted, const std::function<bool(const std::string& range)>& ours) {
  auto have = our_routes();
  if (!have) return std::unexpected(std::move(have.error()));
  for (const auto& [range, gateway] : *have) {
    if (wanted.contains(range) || !ours(range)) continue;
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
  return kube::Next{std::chrono::seconds(30)};
}

// "10.78.3.0/24" as its first address and its length.
std::optional<std::pair<std::uint32_t, int>> parse_range(const std::string& text) {
  const std::size_t slash = text.find('/');
  in_addr address{};
  if (slash == std::string::npos || ::inet_pton(AF_INET, text.substr(0, slash).c_str(), &address) != 1) return std::nullopt;
  const int bits = std::atoi(text.c_str() + slash + 1);
  if (bits < 1 || bits > 32) return std::nullopt;
  return std::pair(ntohl(address.s_addr), bits);
}

}  // namespace

bool is_within(const std::string& range, const std::string& outer) {
  const auto inner = parse_range(range), whole = parse_range(outer);
  return inner && whole && inner->second >= whole->second && (inner->first ^ whole->first) >> (32 - whole->second) == 0;
}

std::vector<kube::Controller::Source> RouteController::sources() const { return all_nodes(); }
Result<kube::Next> RouteController::reconcile(const kube::ObjectKey&) {
  return settle(wanted_routes(nodes_->list(""), node_name_, scope_), [this](const std::string& range) { return scope_.within.empty() || is_within(range, scope_.within); });
}

std::vector<kube::Controller::Source> HostRouteController::sources() const { return all_nodes(); }
Result<kube::Next> HostRouteController::reconcile(const kube::ObjectKey&) {
  const Routes wanted = wanted_routes(nodes_->list(""), "", {.label = label_, .joined = true, .within = within_});
  auto own = own_addresses();
  if (!own) return std::unexpected(std::move(own.error()));
  for (const auto& [range, gateway] : wanted)
    if (own->contains(gateway)) return kube::Next{std::chrono::seconds(30)};
  return settle(wanted, [this](const std::string& range) { return is_within(range, within_); });
}

}  // namespace fairlead::node
