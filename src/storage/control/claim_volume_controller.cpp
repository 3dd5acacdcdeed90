// SPDX-License-Identifier: Apache-2.0
#include "storage/control/claim_volume_controller.h"

#include <fmt/format.h>

#include "base/log.h"
#include "storage/control/events.h"
#include "storage/plan/claim_volume.h"

namespace fairlead::storage {

using kube::Json;
using namespace std::chrono_literals;
namespace resources = kube::resources;

namespace {

const kube::Resource kClasses{"storage.k8s.io", "v1", "storageclasses", "StorageClass", false};
const kube::Resource kPersistent{"", "v1", "persistentvolumes", "PersistentVolume", false};
const kube::Resource kAttributes{"storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", false};
constexpr auto kLooks = 5s;
constexpr const char* kComponent = "csi.fairlead.dev";

bool gone(const Error& error) { return error.code == Code::NotFound; }

}  // namespace

std::vector<kube::Controller::Source> ClaimVolumeController::sources() const {
  const auto none = [](const kube::Change&) { return std::vector<kube::ObjectKey>(); };
  const auto of_class = [this](const kube::Change& change) {
    std::vector<kube::ObjectKey> out;
    if (caches_ == nullptr) return out;
    caches_->of(resources::claims).each("", [&](const Json& claim) {
      if (claim["spec"]["storageClassName"].string() == kube::name_of(change.object())) out.push_back(kube::key_of(claim));
    });
    return out;
  };
  const auto of_attributes = [this](const kube::Change& change) {
    std::vector<kube::ObjectKey> out;
    if (caches_ == nullptr) return out;
    caches_->of(resources::claims).each("", [&](const Json& claim) {
      if (claim["spec"]["volumeAttributesClassName"].string() == kube::name_of(change.object())) out.push_back(kube::key_of(claim));
    });
    return out;
  };
  // A Volume says whose it is, and a PersistentVolume may be of its name.
  const auto of_volume = [](const kube::Change& change) {
    const Json& tags = change.object()["spec"]["tags"];
    std::vector<kube::ObjectKey> out{{"", kube::name_of(change.object())}};
    if (!tags["pvc/name"].string().empty()) out.push_back({tags["pvc/namespace"].string(), tags["pvc/name"].string()});
    return out;
  };
  const auto of_persistent = [](const kube::Change& change) {
    const Json& reference = change.object()["spec"]["claimRef"];
    std::vector<kube::ObjectKey> out{kube::key_of(change.object())};
    if (!reference["name"].string().empty()) out.push_back({reference["namespace"].string(), reference["name"].string()});
    return out;
  };
  // One that goes may leave a volume that is being made.
  const auto of_claim = [](const kube::Change& change) {
    std::vector<kube::ObjectKey> out{kube::key_of(change.object())};
    if (!change.after) out.push_back({"", volume_name_for(change.object())});
    return out;
  };
  return {{resources::claims, "", of_claim}, {kPersistent, "", of_persistent}, {kClasses, "", of_class}, {kAttributes, "", of_attributes}, {api::kVolumes, "", of_volume}, {api::kVolumePools, "", none}, {api::kSnapshots, "", none}};
}

Result<kube::Next> ClaimVolumeController::reconcile(const kube::ObjectKey& key) {
  const auto object = caches_->of(key.space.empty() ? kPersistent : resources::claims).get(key);
  if (!object) return key.space.empty() ? drop_left_over(key.name) : Result<kube::Next>(kube::Next{});
  return key.space.empty() ? keep_persistent(*object) : keep_claim(*object);
}

// All is asked of the API itself: nothing is deleted for what a cache has not seen yet.
Result<kube::Next> ClaimVolumeController::drop_left_over(const std::string& name) {
  const auto cached = caches_->of(api::kVolumes).get({"", name});
  if (!cached || !(*cached)["metadata"]["annotations"].has(kProvisioning)) return kube::Next{};
  const auto volume = api_.get(api::kVolumes, {"", name});
  if (!volume) return gone(volume.error()) ? Result<kube::Next>(kube::Next{}) : pass(volume.error(), "read volume " + name);
  const Json& tags = (*volume)["spec"]["tags"];
  const auto claim = api_.get(resources::claims, {tags["pvc/namespace"].string(), tags["pvc/name"].string()});
  if (!claim && !gone(claim.error())) return pass(claim.error(), "look for the claim of volume " + name);
  const auto persistent = api_.get(kPersistent, {"", name});
  if (!persistent && !gone(persistent.error())) return pass(persistent.error(), "look for the PersistentVolume of volume " + name);
  if (!is_left_over(*volume, claim ? std::optional(*claim) : std::nullopt, persistent.has_value())) return kube::Next{};
  log_info("a claim has gone before its volume was there", {{"volume", name}});
  auto removed = api_.remove(api::kVolumes, {"", name}, {.uid = kube::uid_of(*volume), .resource_version = kube::version_of(*volume)});
  if (!removed && !gone(removed.error())) return pass(std::move(removed.error()), "delete volume " + name);
  return kube::Next{};
}

Result<kube::Next> ClaimVolumeController::keep_claim(const Json& claim) {
  const std::string& of = claim["spec"]["storageClassName"].string();
  const auto storage_class = of.empty() ? std::nullopt : caches_->of(kClasses).get({"", of});
  if (!storage_class || !is_of_ours(*storage_class)) return kube::Next{};
  const std::string named = claim["spec"]["volumeName"].string_or(volume_name_for(claim));
  ClaimSeen seen{.claim = claim, .storage_class = *storage_class, .pools = {}, .volume = {}, .persistent = caches_->of(kPersistent).get({"", named})};
  seen.volume = caches_->of(api::kVolumes).get({"", seen.persistent ? (*seen.persistent)["spec"]["csi"]["volumeHandle"].string() : volume_name_for(claim)});
  caches_->of(api::kVolumePools).each("", [&](const Json& one) { seen.pools.push_back(api::read_pool(one)); });
  if (const std::string& attributes = claim["spec"]["volumeAttributesClassName"].string(); !attributes.empty()) seen.attributes = caches_->of(kAttributes).get({"", attributes});
  const ClaimSource source = source_of(claim);
  if (source.kind == ClaimSource::Kind::Snapshot) seen.source = caches_->of(api::kSnapshots).get({"", source.name});
  if (source.kind == ClaimSource::Kind::Claim) {
    seen.source_claim = caches_->of(resources::claims).get({kube::space_of(claim), source.name});
    const auto behind = seen.source_claim ? caches_->of(kPersistent).get({"", (*seen.source_claim)["spec"]["volumeName"].string()}) : std::nullopt;
    // A PersistentVolume of that name may be another claim's by now.
    if (behind && (*behind)["spec"]["csi"]["driver"].string() == api::kVolumeDriver && (*behind)["spec"]["claimRef"]["uid"].string() == kube::uid_of(*seen.source_claim)) seen.source = caches_->of(api::kVolumes).get({"", (*behind)["spec"]["csi"]["volumeHandle"].string()});
  }
  const ClaimNext next = next_for_claim(seen, clock_.now());
  Result<Json> done;
  Result<void> dropped;
  using Do = ClaimNext::Do;
  switch (next.what) {
    case Do::MakeVolume: done = api_.create(api::kVolumes, next.object); break;
    case Do::MakePersistent: done = api_.create(kPersistent, next.object); break;
    case Do::Settle:
    case Do::ModifyVolume:
    case Do::GrowVolume: done = api_.update(api::kVolumes, next.object); break;
    case Do::ModifyPersistent:
    case Do::GrowPersistent: done = api_.update(kPersistent, next.object); break;
    case Do::TellModify: done = api_.update_status(resources::claims, next.object); break;
    case Do::DropVolume: dropped = api_.remove(api::kVolumes, kube::key_of(next.object), {.uid = kube::uid_of(next.object)}); break;
    default: break;
  }
  if (!dropped && !gone(dropped.error())) return pass(std::move(dropped.error()), "drop the volume of claim " + kube::key_of(claim).text());
  // Made already: the cache will tell.
  if (!done && done.error().code != Code::Exists && !gone(done.error())) return pass(std::move(done.error()), "make the volume of claim " + kube::key_of(claim).text());
  tell(api_, clock_, kComponent, resources::claims, claim, next.reason, next.message);
  return kube::Next{next.look_again ? std::optional<std::chrono::nanoseconds>(kLooks) : std::nullopt};
}

Result<kube::Next> ClaimVolumeController::keep_persistent(const Json& persistent) {
  const std::string& handle = persistent["spec"]["csi"]["volumeHandle"].string();
  const auto next = next_for_persistent(persistent, handle.empty() ? std::nullopt : caches_->of(api::kVolumes).get({"", handle}));
  if (next.what == PersistentNext::Do::Nothing) return kube::Next{};
  // That a claim has gone, and that a volume has, is asked of the API itself: nothing is deleted for what a cache has not seen yet.
  const Json& reference = persistent["spec"]["claimRef"];
  const auto claim = api_.get(resources::claims, {reference["namespace"].string(), reference["name"].string()});
  if (!claim && !gone(claim.error())) return pass(claim.error(), "look for the claim of " + kube::name_of(persistent));
  if (claim && kube::uid_of(*claim) == reference["uid"].string()) return kube::Next{};
  auto volume = api_.get(api::kVolumes, {"", handle});
  if (!volume && !gone(volume.error())) return pass(std::move(volume.error()), "look for volume " + handle);
  if (volume) {
    if (kube::deleting(*volume)) return kube::Next{};
    log_info("a claim has gone, and its volume goes", {{"volume", handle}, {"claim", reference["namespace"].string() + "/" + reference["name"].string()}});
    auto removed = api_.remove(api::kVolumes, {"", handle}, {.uid = kube::uid_of(*volume)});
    if (!removed && !gone(removed.error())) return pass(std::move(removed.error()), "delete volume " + handle);
    return kube::Next{};
  }
  if (!kube::deleting(persistent))
    if (auto removed = api_.remove(kPersistent, kube::key_of(persistent), {.uid = kube::uid_of(persistent)}); !removed && !gone(removed.error())) return pass(std::move(removed.error()), "delete " + kube::name_of(persistent));
  auto now = api_.get(kPersistent, kube::key_of(persistent));
  if (!now) return gone(now.error()) ? Result<kube::Next>(kube::Next{}) : pass(std::move(now.error()), "read " + kube::name_of(persistent));
  kube::remove_finalizer(*now, "kubernetes.io/pv-protection");
  if (auto written = api_.update(kPersistent, *now); !written && !gone(written.error())) return pass(std::move(written.error()), "delete " + kube::name_of(persistent));
  return kube::Next{};
}

}  // namespace fairlead::storage
