// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/instance_volumes.h"

#include <fmt/format.h>

#include "api/instance_volume.h"

namespace fairlead::fleet {

using kube::Json;

namespace {

Json owned(Json object, const Json& instance) {
  object.child("metadata").child("labels").set(api::kInstanceVolume, kube::name_of(instance));
  object.child("metadata").set("ownerReferences", Json::array({Json::object({{"apiVersion", api::kInstances.api_version()}, {"kind", api::kInstances.kind}, {"name", kube::name_of(instance)}, {"uid", kube::uid_of(instance)}})}));
  return object;
}

bool is_of(const Json& object, const Json& instance) {
  for (const Json& owner : object["metadata"]["ownerReferences"].items())
    if (owner["uid"].string() == kube::uid_of(instance)) return object["metadata"]["labels"][api::kInstanceVolume].string() == kube::name_of(instance);
  return false;
}

}  // namespace

InstanceVolumeStep plan_instance_volume(const InstanceVolumeFacts& facts) {
  const std::string id = kube::name_of(facts.instance);
  const std::int64_t size = std::int64_t{facts.group.volume_gib} << 30;
  InstanceVolumeStep out;
  const auto waits = [&](std::string why) {
    out.trouble = std::move(why);
    return out;
  };
  if (facts.volume == nullptr) {
    const auto key = api::key_called(facts.keys, facts.group.volume_key);
    if (!key) return waits(key.error().message);
    if (const std::string closed = api::why_closed(*key); !closed.empty()) return waits(closed);
    const auto pool = api::choose_pool_and_class(facts.pools, {.size = size, .klass = {}, .pools = {}, .node = facts.node}, true, facts.now);
    if (!pool) return waits(fmt::format("{}; a pool that node {} reaches is needed, with engines (docs/volumes.md)", pool.error().message, facts.node));
    api::VolumeSpec spec{.pool = pool->pool, .klass = pool->klass, .size = size, .from_volume = {}, .from_snapshot = {}, .iops = 0, .throughput = 0, .encrypted = true, .key = key->name == api::kServiceKey ? "" : key->name};
    out.create_volume = owned(api::new_volume(id, spec), facts.instance);
    return out;
  }
  if (!is_of(*facts.volume, facts.instance)) return waits(fmt::format("Volume {} is somebody else's: delete it, or replace the instance", id));
  if (kube::deleting(*facts.volume)) return waits(fmt::format("Volume {} is deleted: replace the instance", id));
  const auto has = api::read_volume(*facts.volume);
  if (!has) return waits(fmt::format("Volume {} cannot be read: {}", id, has.error().message));
  const Json& status = (*facts.volume)["status"];
  if (has->size < size) {
    out.grow_to = size;
    return out;
  }
  if (facts.attachment == nullptr) {
    if (const std::string& phase = status["phase"].string(); phase != "Available" && phase != "InUse") return waits(status["message"].string());
    Json object = owned(api::new_attachment(id, has->pool, facts.node, false), facts.instance);
    if (!has->key.empty()) api::set_grant(object, has->key, facts.group.role);
    out.create_attachment = std::move(object);
    return out;
  }
  if (!is_of(*facts.attachment, facts.instance)) return waits(fmt::format("Attachment {} is somebody else's: delete it", kube::name_of(*facts.attachment)));
  if (kube::deleting(*facts.attachment)) return waits(fmt::format("Attachment {} is deleted: it is made anew once it has gone", kube::name_of(*facts.attachment)));
  return waits((*facts.attachment)["status"]["message"].string_or(status["message"].string()));
}

}  // namespace fairlead::fleet
