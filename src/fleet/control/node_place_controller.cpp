// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/node_place_controller.h"

#include <fmt/format.h>

#include "api/cluster.h"
#include "api/identity_crds.h"
#include "api/volume.h"
#include "base/log.h"
#include "fleet/plan/node_place.h"

namespace fairlead::fleet {

using kube::Json;
namespace resources = kube::resources;

std::optional<kube::Access> NodePlaceController::access() const {
  kube::Access out = kube::Access().may({"patch"}, resources::nodes);
  // Without a namespace it is no right that is asked for: the AWS face has it, there alone.
  if (!options_.space.empty()) out.may({"get"}, resources::config_maps, "", options_.space, {api::identities::settings_name});
  return out;
}

std::vector<kube::Controller::Source> NodePlaceController::sources() const {
  const auto sides = [](const kube::Change& change, const auto& each) {
    for (const auto* object : {change.before ? &*change.before : nullptr, change.after ? &*change.after : nullptr})
      if (object != nullptr) each(*object);
  };
  const auto none = [](const kube::Change&) { return std::vector<kube::ObjectKey>(); };
  const auto of_instance = [sides](const kube::Change& change) {
    std::vector<kube::ObjectKey> out;
    if (change.before && change.after && (*change.before)["status"]["node"] == (*change.after)["status"]["node"]) return out;
    sides(change, [&](const Json& one) {
      if (const std::string& node = one["status"]["node"].string(); !node.empty()) out.push_back({"", node});
    });
    return out;
  };
  const auto of_pool = [sides](const kube::Change& change) {
    std::vector<kube::ObjectKey> out;
    if (change.before && change.after && (*change.before)["status"]["nodes"] == (*change.after)["status"]["nodes"]) return out;
    sides(change, [&](const Json& one) {
      for (const Json& node : one["status"]["nodes"].items()) out.push_back({"", node.string()});
    });
    return out;
  };
  const auto as_node = [](const Json& node) { return Json::array({node["metadata"]["labels"], node["metadata"]["annotations"][kPlaceNote], node["spec"]["providerID"], node["spec"]["taints"]}); };
  const auto of_node = [sides, as_node](const kube::Change& change) {
    bool matters = false;
    sides(change, [&](const Json& one) { matters = matters || one["metadata"]["labels"].has(api::kInstanceLabel) || one["metadata"]["annotations"].has(kPlaceNote); });
    const bool news = !change.before || !change.after || as_node(*change.before) != as_node(*change.after);
    return matters && news ? std::vector<kube::ObjectKey>{kube::key_of(change.object())} : std::vector<kube::ObjectKey>();
  };
  return {{resources::nodes, "", of_node}, {api::kInstances, "", of_instance}, {api::kVolumePools, "", of_pool}, {api::kClusters, "", none}};
}

Result<std::string> NodePlaceController::region() {
  const std::lock_guard lock(mutex_);
  if (!region_.empty()) return region_;
  const auto settings = api_.get(resources::config_maps, {options_.space, api::identities::settings_name});
  // Without a face there may be no right to it.
  if (!settings && settings.error().code != Code::NotFound && settings.error().code != Code::Forbidden) return pass(settings.error(), "read the region of the site");
  return region_ = settings ? (*settings)["data"]["region"].string() : "";
}

Result<kube::Next> NodePlaceController::reconcile(const kube::ObjectKey& key) {
  const auto node = caches_->of(resources::nodes).get(key);
  if (!node) return kube::Next{};
  std::optional<NodePlace> place;
  if (const std::string& id = (*node)["metadata"]["labels"][api::kInstanceLabel].string(); !id.empty()) {
    // A Node may write its own labels: what the server has written of the instance has to agree. Until it does nothing is taken back either.
    const auto instance = caches_->of(api::kInstances).get({"", id});
    if (!instance || (*instance)["status"]["node"].string() != key.name) return kube::Next{};
    const auto cluster = caches_->of(api::kClusters).get({"", (*instance)["spec"]["cluster"].string()});
    if (!cluster || kube::uid_of(*cluster) != (*instance)["spec"]["clusterUid"].string()) return kube::Next{std::chrono::seconds(10)};
    if (api::read_cluster(*cluster).orchestrator == api::Orchestrator::Eks) place = NodePlace{.region = {}, .zone = {}, .cluster = api::entity_id(kube::uid_of(*cluster)), .instance = id};
  }
  if (place) {
    const std::string& labelled = (*node)["metadata"]["labels"][api::kPoolLabel].string();
    caches_->of(api::kVolumePools).each("", [&](const Json& object) {
      const api::PoolFacts pool = api::read_pool(object);
      if (!pool.reaches(key.name)) return;
      if (pool.name == labelled || place->zone.empty() || (place->zone != labelled && pool.name < place->zone)) place->zone = pool.name;
    });
    if (!place->zone.empty()) {
      auto known = region();
      if (!known) return std::unexpected(std::move(known.error()));
      place->region = std::move(*known);
      if (place->region.empty()) return kube::Next{std::chrono::minutes(1)};  // nobody has served AWS's clients here yet
    }
  }
  const Json patch = plan_node_place(*node, place, options_.id_changes);
  if (patch.is_null()) return kube::Next{};
  auto done = api_.patch(resources::nodes, key, kube::PatchType::Merge, patch);
  if (!done && done.error().code == Code::NotFound) return kube::Next{};
  if (!done) return pass(std::move(done.error()), fmt::format("say where node {} is", key.name));
  log_info("where a node is", {{"node", key.name}, {"instance", place ? place->instance : ""}, {"zone", place ? place->zone : ""}, {"providerID", (*done)["spec"]["providerID"].string()}});
  return kube::Next{};
}

}  // namespace fairlead::fleet
