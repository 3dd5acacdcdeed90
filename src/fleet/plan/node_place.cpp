// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/node_place.h"

#include <fmt/format.h>

#include <algorithm>

#include "kube/object.h"

namespace fairlead::fleet {

using kube::Json;

namespace {

std::string id_of(const NodePlace& place) { return fmt::format("/sagemaker/cluster/hyperpod-{}-{}", place.cluster, place.instance); }

}  // namespace

std::string provider_id(const NodePlace& place) { return "aws:///" + place.zone + id_of(place); }

Json plan_node_place(const Json& node, const std::optional<NodePlace>& place, bool id_changes) {
  if (place && (place->zone.empty() || place->region.empty())) return {};
  const auto& taints = node["spec"]["taints"].items();
  if (place && std::any_of(taints.begin(), taints.end(), [](const Json& taint) { return taint["key"].string() == kNoCloudYet; })) return {};
  const auto parsed = kube::parse_json(node["metadata"]["annotations"][kPlaceNote].string());
  const Json before = parsed && parsed->is_object() ? *parsed : Json::object();
  Json labels = Json::object(), ours = Json::object();
  for (const auto& [key, wanted] : {std::pair<std::string, std::string>(kRegionLabel, place ? place->region : ""), {kZoneLabel, place ? place->zone : ""}}) {
    const std::string &now = node["metadata"]["labels"][key].string(), &given = before["labels"][key].string();
    const bool is_ours = now.empty() || now == given;
    if (!is_ours) continue;
    if (!wanted.empty()) ours.set(key, wanted);
    if (now != wanted) labels.set(key, wanted.empty() ? Json() : Json(wanted));
  }
  Json spec = Json::object(), note = Json::object();
  const std::string &now = node["spec"]["providerID"].string(), &given = before["providerID"].string();
  std::string kept = !now.empty() && now == given ? now : "";
  // The pool in it is that of the day: who reads it wants the instance.
  const bool right = place && !now.empty() && now.ends_with(id_of(*place));
  if (place && now.empty()) spec.set("providerID", kept = provider_id(*place));
  else if (!kept.empty() && !right && id_changes) {
    kept = place ? provider_id(*place) : "";
    spec.set("providerID", place ? Json(kept) : Json());
  }
  if (!kept.empty()) note.set("providerID", kept);
  if (!ours.members().empty()) note.set("labels", std::move(ours));
  const std::string text = note.members().empty() ? "" : kube::print_json(note);
  const std::string& told = node["metadata"]["annotations"][kPlaceNote].string();
  if (text == told && labels.members().empty() && spec.members().empty()) return {};
  Json metadata = Json::object({{"resourceVersion", kube::version_of(node)}});
  if (!labels.members().empty()) metadata.set("labels", std::move(labels));
  if (text != told) metadata.set("annotations", Json::object({{kPlaceNote, text.empty() ? Json() : Json(text)}}));
  Json patch = Json::object({{"metadata", std::move(metadata)}});
  if (!spec.members().empty()) patch.set("spec", std::move(spec));
  return patch;
}

}  // namespace fairlead::fleet
