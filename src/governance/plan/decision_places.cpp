// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/decision_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace fairlead::governance {

using kube::Json;

namespace {

std::unexpected<Error> wrong(std::string_view field, std::string_view expected) { return fail(Code::Invalid, fmt::format("{}: {} is expected", field, expected)); }

Json labels_json(const kube::Labels& labels) {
  Json out = Json::object();
  for (const auto& [key, value] : labels) out.set(key, value);
  return out;
}
Json strings(const std::vector<std::string>& list) {
  Json out = Json::array();
  for (const std::string& one : list) out.push(one);
  return out;
}
Json amounts_json(const NamedAmounts& amounts) {
  Json out = Json::object();
  for (const auto& [name, amount] : amounts) out.set(name, amount);
  return out;
}
Json tolerations_json(const std::vector<Toleration>& tolerations) {
  Json out = Json::array();
  for (const Toleration& one : tolerations) out.push(Json::object({{"key", one.key}, {"operator", one.op}, {"value", one.value}, {"effect", one.effect}}));
  return out;
}
Json taints_json(const std::vector<Taint>& taints) {
  Json out = Json::array();
  for (const Taint& one : taints) out.push(Json::object({{"key", one.key}, {"value", one.value}, {"effect", one.effect}}));
  return out;
}
Json term_json(const NodeTerm& term) {
  Json labels = Json::array(), fields = Json::array();
  for (const NodeRequirement& one : term) (one.field ? fields : labels).push(Json::object({{"key", one.key}, {"operator", one.op}, {"values", strings(one.values)}}));
  return Json::object({{"matchExpressions", std::move(labels)}, {"matchFields", std::move(fields)}});
}
// As the spec of a pod has them.
Json needs_json(const NodeNeeds& needs) {
  Json affinity = Json::object();
  if (needs.required) {
    Json terms = Json::array();
    for (const NodeTerm& term : *needs.required) terms.push(term_json(term));
    affinity.set("requiredDuringSchedulingIgnoredDuringExecution", Json::object({{"nodeSelectorTerms", std::move(terms)}}));
  }
  if (!needs.preferred.empty()) {
    Json terms = Json::array();
    for (const PreferredNodeTerm& one : needs.preferred) terms.push(Json::object({{"weight", one.weight}, {"preference", term_json(one.term)}}));
    affinity.set("preferredDuringSchedulingIgnoredDuringExecution", std::move(terms));
  }
  Json out = Json::object({{"tolerations", tolerations_json(needs.tolerations)}, {"nodeSelector", labels_json(needs.selector)}});
  if (!affinity.members().empty()) out.set("affinity", Json::object({{"nodeAffinity", std::move(affinity)}}));
  return out;
}
// As a pod set has it.
Json ask_json(const TopologyAsk& ask) {
  Json out = Json::object();
  if (ask.required) out.set("required", *ask.required);
  if (ask.preferred) out.set("preferred", *ask.preferred);
  if (ask.named || ask.unconstrained) out.set("unconstrained", ask.unconstrained);
  if (ask.group) out.set("podSetGroupName", *ask.group);
  if (ask.slices.empty()) return out;
  Json slices = Json::array();
  for (const SliceLayer& layer : ask.slices) slices.push(Json::object({{"topology", layer.level}, {"size", std::int64_t{layer.size}}}));
  return out.set("podsetSliceRequiredTopologyConstraints", std::move(slices));
}

Result<NamedAmounts> read_amounts_of(const Json& json, std::string_view field) {
  NamedAmounts out;
  if (!json.is_object()) return wrong(field, "amounts by name");
  for (const auto& [name, amount] : json.members()) {
    if (!amount.is_number()) return wrong(field, "amounts by name");
    out[name] = std::max<std::int64_t>(0, amount.integer());
  }
  return out;
}
std::int32_t small(const Json& json) { return static_cast<std::int32_t>(std::clamp<std::int64_t>(json.integer(), 0, std::numeric_limits<std::int32_t>::max())); }

}  // namespace

Json to_json(const PlaceAsk& ask) {
  return Json::object({{"ask", ask_json(ask.ask)}, {"implied", ask.implied}, {"count", std::int64_t{ask.count}}, {"perPod", amounts_json(ask.per_pod)}, {"needs", needs_json(ask.needs)}});
}
Json to_json(const EngineSpec::Places& places) {
  return Json::object({{"flavor", places.flavor}, {"topology", places.shape.name}, {"levels", strings(places.shape.levels)}, {"nodeLabels", labels_json(places.shape.flavor_labels)}, {"tolerations", tolerations_json(places.shape.tolerations)}});
}
Json to_json(const std::vector<TopologyNode>& nodes) {
  Json out = Json::array();
  for (const TopologyNode& node : nodes)
    out.push(Json::object({{"name", node.name}, {"labels", labels_json(node.labels)}, {"taints", taints_json(node.taints)}, {"ready", node.ready}, {"unschedulable", node.unschedulable}, {"allocatable", amounts_json(node.allocatable)}}));
  return out;
}
Json to_json(const ContinuousEngine::OtherUse& use) { return Json::object({{"requests", amounts_json(use.requests)}, {"pods", std::int64_t{use.pods}}}); }
Json to_json(const PlacesOf& places) {
  Json out = Json::array();
  for (const auto& one : places) out.push(one ? text(*one) : std::string());
  return out;
}
Json assignments_json(const PlacesOf& places) {
  Json out = Json::array();
  for (const auto& one : places) out.push(one ? v1beta1_json(*one) : Json());
  return out;
}

Result<PlaceAsk> read_place_ask(const Json& json) {
  if (!json["ask"].is_object() || json["count"].integer() < 1) return wrong("class.podSets.place", "an ask and a count");
  auto per_pod = read_amounts_of(json["perPod"], "class.podSets.place.perPod");
  if (!per_pod) return std::unexpected(std::move(per_pod.error()));
  return PlaceAsk{.ask = read_topology_ask(json["ask"]), .implied = json["implied"].boolean(), .count = small(json["count"]), .per_pod = std::move(*per_pod), .needs = read_node_needs(json["needs"])};
}
Result<EngineSpec::Places> read_places(const Json& json) {
  if (!json["flavor"].is_string() || !json["levels"].is_array() || json["levels"].items().empty()) return wrong("spec.places", "a flavor and levels");
  EngineSpec::Places out{.flavor = json["flavor"].string(), .shape = {.name = json["topology"].string(), .levels = {}, .flavor_labels = read_labels(json["nodeLabels"]), .tolerations = read_tolerations(json["tolerations"])}};
  for (const Json& level : json["levels"].items()) out.shape.levels.push_back(level.string());
  return out;
}
Result<std::vector<TopologyNode>> read_nodes(const Json& json) {
  if (!json.is_array()) return wrong("nodes", "a list");
  std::vector<TopologyNode> out;
  for (const Json& node : json.items()) {
    if (!node["name"].is_string()) return wrong("nodes", "names");
    auto allocatable = read_amounts_of(node["allocatable"], "nodes.allocatable");
    if (!allocatable) return std::unexpected(std::move(allocatable.error()));
    TopologyNode& into = out.emplace_back();
    into.name = node["name"].string(), into.labels = read_labels(node["labels"]), into.taints = read_taints(node["taints"]);
    into.ready = node["ready"].boolean(), into.unschedulable = node["unschedulable"].boolean(), into.allocatable = std::move(*allocatable);
  }
  return out;
}
Result<ContinuousEngine::OtherUse> read_other_use(const Json& json) {
  auto requests = read_amounts_of(json["requests"], "use.requests");
  if (!requests) return std::unexpected(std::move(requests.error()));
  return ContinuousEngine::OtherUse{.requests = std::move(*requests), .pods = small(json["pods"])};
}
PlacesOf read_assignments(const Json& json) {
  PlacesOf out;
  for (const Json& one : json.items()) out.push_back(one.is_null() ? std::nullopt : std::optional(read_topology_assignment(one)));
  return out;
}

}  // namespace fairlead::governance
