// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/instance_volume_controller.h"

#include <fmt/format.h>

#include "api/instance_volume.h"
#include "base/log.h"
#include "fleet/plan/instance_volumes.h"

namespace fairlead::fleet {

using kube::Json;
namespace resources = kube::resources;

std::optional<kube::Access> InstanceVolumeController::access() const { return kube::Access().may({"create", "patch"}, api::kVolumes).may({"create"}, api::kAttachments).may({"get"}, api::kInstances).may({"patch"}, resources::nodes); }

std::vector<kube::Controller::Source> InstanceVolumeController::sources() const {
  const auto none = [](const kube::Change&) { return std::vector<kube::ObjectKey>(); };
  const auto of_label = [](const kube::Change& change) {
    const std::string& id = change.object()["metadata"]["labels"][api::kInstanceVolume].string();
    return id.empty() ? std::vector<kube::ObjectKey>() : std::vector<kube::ObjectKey>{{"", id}};
  };
  const auto of_instance = [](const kube::Change& change) {
    const bool news = !change.before || !change.after || (*change.before)["status"]["node"] != (*change.after)["status"]["node"];
    return news ? std::vector<kube::ObjectKey>{kube::key_of(change.object())} : std::vector<kube::ObjectKey>();
  };
  const auto of_cluster = [this](const kube::Change& change) {
    std::vector<kube::ObjectKey> out;
    if (!change.after || (change.before && (*change.before)["spec"] == (*change.after)["spec"])) return out;
    caches_->of(api::kInstances).each("", [&](const Json& one) {
      if (one["spec"]["cluster"].string() == kube::name_of(*change.after)) out.push_back(kube::key_of(one));
    });
    return out;
  };
  const auto of_node = [](const kube::Change& change) {
    const auto told = [](const std::optional<Json>& node) { return node ? Json::array({(*node)["metadata"]["labels"][api::kInstanceLabel], (*node)["metadata"]["annotations"][api::kVolumeTroubleNote]}) : Json(); };
    const std::string& id = change.object()["metadata"]["labels"][api::kInstanceLabel].string();
    return id.empty() || told(change.before) == told(change.after) ? std::vector<kube::ObjectKey>() : std::vector<kube::ObjectKey>{{"", id}};
  };
  return {{api::kInstances, "", of_instance}, {api::kClusters, "", of_cluster}, {resources::nodes, "", of_node}, {api::kVolumes, "", of_label}, {api::kAttachments, "", of_label}, {api::kVolumePools, "", none}, {api::kVolumeKeys, "", none}};
}

Result<void> InstanceVolumeController::tell(const std::string& node, const std::string& trouble) {
  const auto object = caches_->of(resources::nodes).get({"", node});
  if (!object || (*object)["metadata"]["annotations"][api::kVolumeTroubleNote].string() == trouble) return {};
  auto done = api_.patch(resources::nodes, {"", node}, kube::PatchType::Merge, Json::object({{"metadata", Json::object({{"uid", kube::uid_of(*object)}, {"annotations", Json::object({{api::kVolumeTroubleNote, trouble.empty() ? Json() : Json(trouble)}})}})}}));
  return done || done.error().code == Code::NotFound ? Result<void>() : pass(std::move(done.error()), "tell of the volume of node " + node);
}

Result<kube::Next> InstanceVolumeController::reconcile(const kube::ObjectKey& key) {
  const auto instance = caches_->of(api::kInstances).get(key);
  if (!instance) return kube::Next{};
  const api::Instance about = api::read_instance(*instance);
  const auto node = about.node.empty() ? std::nullopt : caches_->of(resources::nodes).get({"", about.node});
  if (about.deleting || !node || (*node)["metadata"]["labels"][api::kInstanceLabel].string() != about.id) return kube::Next{};
  const auto cluster = caches_->of(api::kClusters).get({"", about.cluster});
  if (!cluster || kube::uid_of(*cluster) != about.cluster_uid) return kube::Next{std::chrono::seconds(10)};
  const api::Cluster read = api::read_cluster(*cluster);
  const api::InstanceGroup* group = read.group(about.group);
  if (group == nullptr || group->volume_gib == 0 || group->volume_key.empty()) {
    if (auto told = tell(about.node, ""); !told) return std::unexpected(std::move(told.error()));
    return kube::Next{};
  }
  std::vector<api::PoolFacts> pools;
  caches_->of(api::kVolumePools).each("", [&](const Json& one) { pools.push_back(api::read_pool(one)); });
  std::vector<api::VolumeKey> keys;
  caches_->of(api::kVolumeKeys).each("", [&](const Json& one) { keys.push_back(api::read_volume_key(one)); });
  const auto volume = caches_->of(api::kVolumes).get({"", about.id}), attachment = caches_->of(api::kAttachments).get({"", api::attachment_name(about.id, about.node)});
  InstanceVolumeStep step = plan_instance_volume({.instance = *instance, .group = *group, .node = about.node, .volume = volume ? &*volume : nullptr, .attachment = attachment ? &*attachment : nullptr, .pools = pools, .keys = keys, .now = clock_.now()});
  if (!step.create_volume.is_null() || !step.create_attachment.is_null()) {
    // By a view of before, what is made would be nobody's: its owner has gone.
    const auto live = api_.get(api::kInstances, key);
    if (!live && live.error().code != Code::NotFound) return pass(live.error(), "look at instance " + key.name);
    if (!live || kube::deleting(*live) || kube::uid_of(*live) != kube::uid_of(*instance)) return kube::Next{std::chrono::seconds(5)};
    const bool attaches = step.create_volume.is_null();
    const Json& object = attaches ? step.create_attachment : step.create_volume;
    auto made = api_.create(attaches ? api::kAttachments : api::kVolumes, object);
    if (!made && made.error().code != Code::Exists) return pass(std::move(made.error()), "make the volume of instance " + key.name);
    if (made) log_info(attaches ? "the volume of an instance is attached" : "the volume of an instance is made", {{"instance", key.name}, {"node", about.node}, {"pool", object["spec"]["pool"].string()}});
  }
  if (step.grow_to > 0) {
    auto grown = api_.patch(api::kVolumes, key, kube::PatchType::Merge, Json::object({{"metadata", Json::object({{"uid", kube::uid_of(*volume)}})}, {"spec", Json::object({{"size", api::print_volume_size(step.grow_to)}})}}));
    if (!grown && grown.error().code != Code::NotFound) return pass(std::move(grown.error()), "grow the volume of instance " + key.name);
  }
  if (auto told = tell(about.node, step.trouble); !told) return std::unexpected(std::move(told.error()));
  // Pools and keys come and go without a word to us.
  return step.trouble.empty() ? kube::Next{} : kube::Next{std::chrono::seconds(10)};
}

}  // namespace fairlead::fleet
