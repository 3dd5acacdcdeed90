// SPDX-License-Identifier: Apache-2.0
// core/v1 nodes and topology requests of pod sets, from JSON.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "governance/plan/topology.h"

namespace fairlead::governance {
namespace {

using kube::Json;

std::optional<std::string> string_if_any(const Json& value) {
  if (!value.is_string()) return std::nullopt;
  return value.string();
}

}  // namespace

TopologyNode read_topology_node(const Json& node) {
  TopologyNode out;
  out.name = node["metadata"]["name"].string();
  out.labels = read_labels(node["metadata"]["labels"]);
  out.taints = read_taints(node["spec"]["taints"]);
  out.unschedulable = node["spec"]["unschedulable"].boolean();
  for (const Json& condition : node["status"]["conditions"].items()) {
    if (condition["type"].string() != "Ready") continue;
    out.ready = condition["status"].string() == "True";
    break;
  }
  for (const auto& [name, value] : node["status"]["allocatable"].members()) {
    const auto quantity = kube::Quantity::from_json(value);
    if (!quantity) continue;
    out.allocatable[name] = std::max<std::int64_t>(0, name == "cpu" ? quantity->milli_value() : quantity->value());
  }
  return out;
}

std::string merge_update(NodeNeeds& needs, const NodeNeeds& update) {
  for (const auto& [key, value] : needs.selector) {
    const auto other = update.selector.find(key);
    if (other != update.selector.end() && other->second != value)
      return fmt::format("invalid admission check PodSetUpdate: conflict for nodeSelector: conflict for key={}, value1={}, value2={}", key, value, other->second);
  }
  needs.selector.insert(update.selector.begin(), update.selector.end());
  for (const Toleration& toleration : update.tolerations) {
    if (std::find(needs.tolerations.begin(), needs.tolerations.end(), toleration) == needs.tolerations.end()) needs.tolerations.push_back(toleration);
  }
  return {};
}

TopologyAsk read_topology_ask(const Json& topology_request) {
  TopologyAsk ask;
  ask.present = topology_request.is_object();
  ask.named = topology_request["unconstrained"].is_bool() || topology_request["podSetSliceSize"].is_number();
  ask.required = string_if_any(topology_request["required"]);
  ask.preferred = string_if_any(topology_request["preferred"]);
  ask.unconstrained = topology_request["unconstrained"].boolean();
  ask.group = string_if_any(topology_request["podSetGroupName"]);
  const auto size = [](const Json& value) {
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(value.integer(), 0, std::numeric_limits<std::int32_t>::max()));
  };
  for (const Json& layer : topology_request["podsetSliceRequiredTopologyConstraints"].items()) {
    ask.slices.push_back({.level = layer["topology"].string(), .size = size(layer["size"])});
  }
  if (ask.slices.empty() && topology_request["podSetSliceRequiredTopology"].is_string()) {
    ask.slices.push_back({.level = topology_request["podSetSliceRequiredTopology"].string(), .size = size(topology_request["podSetSliceSize"])});
  }
  return ask;
}

}  // namespace fairlead::governance
