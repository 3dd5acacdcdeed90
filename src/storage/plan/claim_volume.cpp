// SPDX-License-Identifier: Apache-2.0
#include "storage/plan/claim_volume.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "kube/selector.h"

namespace fairlead::storage {

using kube::Json;
using Do = ClaimNext::Do;

namespace {

constexpr const char* kSelectedNode = "volume.kubernetes.io/selected-node";
constexpr const char* kFileSystem = "csi.storage.k8s.io/fstype";

ClaimNext tell(std::string reason, std::string message, bool again = false) { return {.what = Do::Nothing, .object = {}, .reason = std::move(reason), .message = std::move(message), .look_again = again}; }
ClaimNext act(Do what, Json object, std::string reason = "", std::string message = "") { return {.what = what, .object = std::move(object), .reason = std::move(reason), .message = std::move(message), .look_again = false}; }
ClaimNext nothing(bool again = false) { return tell("", "", again); }

std::int64_t bytes_of(const Json& quantity) {
  const auto read = kube::Quantity::from_json(quantity);
  return read ? read->value() : 0;
}

const std::string& attributes_of(const Json& object) { return object["spec"]["volumeAttributesClassName"].string(); }

// Why no volume can be made for it; empty: one can.
std::string against(const Json& claim, const Json& storage_class) {
  const auto& modes = claim["spec"]["accessModes"].items();
  for (const Json& mode : modes) {
    if (mode.string() != "ReadWriteOnce" && mode.string() != "ReadOnlyMany" && mode.string() != "ReadWriteOncePod") return fmt::format("access mode {}: one node at a time has a volume of {}, or several that all read it; ask for ReadWriteOnce or ReadOnlyMany, or for a class of shared directories", mode.string(), api::kVolumeDriver);
    if (mode != modes.front()) return "accessModes: one of ReadWriteOnce, ReadWriteOncePod and ReadOnlyMany is expected: who reads beside others has a volume of which nobody writes";
  }
  if (!modes.empty() && modes.front().string() == "ReadOnlyMany" && source_of(claim).kind == ClaimSource::Kind::None) return "access mode ReadOnlyMany: an empty volume that nobody writes is of no use: say what it is to be a copy of (dataSource: another claim, or a Snapshot)";
  const Json& parameters = storage_class["parameters"];
  for (const auto& [key, value] : parameters.members()) {
    if (key == kFileSystem) {
      if (value.string() != "ext4" && value.string() != "xfs") return fmt::format("parameter {}: \"{}\": ext4 or xfs is expected", key, value.string().substr(0, 40));
    } else if (key == "class") {
      if (!api::is_volume_class(value.string())) return fmt::format("parameter class: there is no \"{}\"; {} are what there is", value.string().substr(0, 40), api::kVolumeClasses);
    } else if (key == "iops" || key == "throughput") {
      const auto limit = key == "iops" ? api::parse_iops(value) : api::parse_throughput(value);
      if (!limit) return "parameter " + limit.error().message;
      if (*limit > 0 && parameters["class"].string() == api::kLocalFast) return fmt::format("parameter {}: it is of class {}", key, api::kLocalManaged);
    } else if (key == "encrypted" || key == "key") {
      if (key == "encrypted" && value.string() != "true" && value.string() != "false") return "parameter encrypted: \"true\" or \"false\" is expected";
      if (parameters["encrypted"].string() == "true" && parameters["class"].string() == api::kLocalFast) return fmt::format("parameter encrypted: it is of class {}", api::kLocalManaged);
      if (key == "key" && (parameters["encrypted"].string() != "true" || !api::is_volume_name(value.string()))) return "parameter key: the name of a key is expected, and encrypted: \"true\"";
    } else if (key != "pool") {
      return fmt::format("there is no parameter \"{}\": class, pool, encrypted, key, iops, throughput and {} are what there is", key.substr(0, 60), kFileSystem);
    }
  }
  return "";
}

Json persistent_for(const Json& claim, const Json& storage_class, const Json& volume) {
  const std::string name = volume_name_for(claim), pool = volume["spec"]["pool"].string();
  const std::string mode = claim["spec"]["volumeMode"].string_or("Filesystem");
  Json csi = Json::object({{"driver", api::kVolumeDriver}, {"volumeHandle", name}, {"volumeAttributes", Json::object({{"class", volume["spec"]["class"].string_or(api::kLocalFast)}})}});
  if (claim["spec"]["accessModes"].items().size() > 0 && claim["spec"]["accessModes"].items().front().string() == "ReadOnlyMany") csi.set("readOnly", true);
  if (mode != "Block") csi.set("fsType", storage_class["parameters"][kFileSystem].string_or("ext4"));
  const Json reaches = Json::object({{"required", api::reaches_pool(pool)}});
  Json spec = Json::object({{"capacity", Json::object({{"storage", api::print_volume_size(volume["status"]["sizeBytes"].integer())}})},
                            {"accessModes", claim["spec"]["accessModes"]},
                            {"claimRef", Json::object({{"kind", "PersistentVolumeClaim"}, {"namespace", kube::space_of(claim)}, {"name", kube::name_of(claim)}, {"uid", kube::uid_of(claim)}, {"apiVersion", "v1"}, {"resourceVersion", kube::version_of(claim)}})},
                            {"persistentVolumeReclaimPolicy", storage_class["reclaimPolicy"].string_or("Delete")},
                            {"storageClassName", kube::name_of(storage_class)},
                            {"volumeMode", mode},
                            {"csi", std::move(csi)},
                            {"nodeAffinity", reaches}});
  if (const std::string& attributes = attributes_of(claim); !attributes.empty()) spec.set("volumeAttributesClassName", attributes);
  if (mode != "Block" && storage_class["mountOptions"].is_array()) spec.set("mountOptions", storage_class["mountOptions"]);
  return Json::object({{"apiVersion", "v1"}, {"kind", "PersistentVolume"}, {"metadata", Json::object({{"name", name}, {"annotations", Json::object({{"pv.kubernetes.io/provisioned-by", api::kVolumeDriver}})}, {"finalizers", Json::array({Json("kubernetes.io/pv-protection")})}})}, {"spec", std::move(spec)}});
}

// What the volume begins with: its Volume or Snapshot, or what is told instead.
struct Origin {
  std::string from_volume, from_snapshot, pool;
  std::int64_t least = 0;
};
Result<Origin> origin_of(const ClaimSeen& seen) {
  const ClaimSource wanted = source_of(seen.claim);
  const std::string& space = kube::space_of(seen.claim);
  switch (wanted.kind) {
    case ClaimSource::Kind::None: return Origin{};
    case ClaimSource::Kind::Unknown: return fail(Code::Invalid, "dataSource: a PersistentVolumeClaim, or a Snapshot of apiGroup fairlead.dev, is expected");
    case ClaimSource::Kind::Claim:
      if (!seen.source_claim || kube::deleting(*seen.source_claim)) return fail(Code::NotFound, fmt::format("dataSource: there is no claim {} in namespace {}", wanted.name, space));
      if ((*seen.source_claim)["status"]["phase"].string() != "Bound") return fail(Code::Unavailable, fmt::format("dataSource: claim {} has no volume yet", wanted.name));
      if (!seen.source) return fail(Code::NotFound, fmt::format("dataSource: claim {} has no volume of {}: such alone are copied", wanted.name, api::kVolumeDriver));
      break;
    case ClaimSource::Kind::Snapshot:
      // One of another namespace is as one that is not there: whoever asks learns nothing of it.
      if (!seen.source || kube::deleting(*seen.source) || !may_have(seen.claim, *seen.source)) return fail(Code::NotFound, fmt::format("dataSource: there is no snapshot {} of a claim in namespace {} (fairlead volume snapshot VOLUME makes one)", wanted.name, space));
      if ((*seen.source)["status"]["phase"].string() != "Ready") return fail(Code::Unavailable, fmt::format("dataSource: snapshot {} is not ready yet", wanted.name));
      break;
  }
  const Json& source = *seen.source;
  Origin out{.from_volume = {}, .from_snapshot = {}, .pool = source["spec"]["pool"].string(), .least = source["status"]["sizeBytes"].integer()};
  (wanted.kind == ClaimSource::Kind::Claim ? out.from_volume : out.from_snapshot) = kube::name_of(source);
  return out;
}

// What the claim's VolumeAttributesClass changes of a volume of this class; NotFound: there is none of that name.
Result<api::VolumeChange> change_of(const ClaimSeen& seen, std::string_view klass) {
  const std::string& name = attributes_of(seen.claim);
  if (name.empty()) return api::VolumeChange{};
  if (!seen.attributes) return fail(Code::NotFound, fmt::format("volumeattributesclass.storage.k8s.io \"{}\" not found", name));
  if (const std::string& driver = (*seen.attributes)["driverName"].string(); driver != api::kVolumeDriver) return fail(Code::Invalid, fmt::format("VolumeAttributesClass {} is of driver {}, and the volume of {}", name, driver, api::kVolumeDriver));
  std::map<std::string, std::string> parameters;
  for (const auto& [key, value] : (*seen.attributes)["parameters"].members()) parameters[key] = value.string();
  auto read = api::read_volume_change(parameters, klass);
  if (!read) return pass(std::move(read.error()), "VolumeAttributesClass " + name);
  return read;
}

ClaimNext make_volume(const ClaimSeen& seen, Instant now) {
  const Json &claim = seen.claim, &of = seen.storage_class;
  const std::string node = claim["metadata"]["annotations"][kSelectedNode].string();
  const std::int64_t asked = bytes_of(claim["spec"]["resources"]["requests"]["storage"]);
  const auto size = api::parse_volume_size(Json(std::max(asked, api::kLeastVolume)));
  if (!size) return tell("ProvisioningFailed", size.error().message);
  const auto origin = origin_of(seen);
  if (!origin) return tell("ProvisioningFailed", origin.error().message, true);
  if (*size < origin->least) return tell("ProvisioningFailed", fmt::format("{} are asked for, and what it is to be a copy of has {}", print(Bytes{*size}), print(Bytes{origin->least})));
  api::PoolWish wish{.size = *size, .klass = of["parameters"]["class"].string(), .pools = {}, .node = node};
  const auto change = change_of(seen, wish.klass);
  if (!change) return tell("ProvisioningFailed", change.error().message);
  const auto iops = api::parse_iops(of["parameters"]["iops"]), throughput = api::parse_throughput(of["parameters"]["throughput"]);
  const std::string& named = of["parameters"]["pool"].string();
  if (!named.empty() && !origin->pool.empty() && named != origin->pool) return tell("ProvisioningFailed", fmt::format("class {} is of pool {}, and what it is to be a copy of is in pool {}", kube::name_of(of), named, origin->pool));
  // Copies share their blocks with what they are of: they are in its pool.
  if (const std::string& pool = origin->pool.empty() ? named : origin->pool; !pool.empty()) wish.pools = {pool};
  const bool encrypted = of["parameters"]["encrypted"].string() == "true";
  const bool engine = encrypted || iops.value_or(0) > 0 || throughput.value_or(0) > 0 || change->iops.value_or(0) > 0 || change->throughput.value_or(0) > 0;
  const auto pool = api::choose_pool_and_class(seen.pools, wish, engine, now);
  if (!pool) return tell("ProvisioningFailed", pool.error().message, true);
  Json volume = api::new_volume(volume_name_for(claim), {.pool = pool->pool, .klass = pool->klass, .size = *size, .from_volume = origin->from_volume, .from_snapshot = origin->from_snapshot, .iops = iops.value_or(0), .throughput = throughput.value_or(0), .encrypted = encrypted, .key = of["parameters"]["key"].string()});
  volume.child("spec").set("tags", Json::object({{"pvc/namespace", kube::space_of(claim)}, {"pvc/name", kube::name_of(claim)}}));
  api::apply(*change, volume);
  volume.child("metadata").set("annotations", Json::object({{kProvisioning, kube::uid_of(claim)}}));
  return act(Do::MakeVolume, std::move(volume));
}

ClaimNext grow(const ClaimSeen& seen) {
  const std::int64_t asked = bytes_of(seen.claim["spec"]["resources"]["requests"]["storage"]), has = bytes_of((*seen.persistent)["spec"]["capacity"]["storage"]);
  if (asked <= has || !seen.volume) return nothing();
  if (!seen.storage_class["allowVolumeExpansion"].boolean()) return tell("VolumeResizeFailed", fmt::format("storage class {} does not allow it (allowVolumeExpansion)", kube::name_of(seen.storage_class)));
  const auto size = api::parse_volume_size(Json(asked));
  if (!size) return tell("VolumeResizeFailed", size.error().message);
  const Json& volume = *seen.volume;
  if (volume["status"]["sizeBytes"].integer() >= *size) {
    Json persistent = *seen.persistent;
    persistent.child("spec").child("capacity").set("storage", api::print_volume_size(volume["status"]["sizeBytes"].integer()));
    return act(Do::GrowPersistent, std::move(persistent), "VolumeResizeSuccessful", fmt::format("the volume has {}", print(Bytes{volume["status"]["sizeBytes"].integer()})));
  }
  const auto wanted = api::parse_volume_size(volume["spec"]["size"]);
  if (!wanted || *wanted < *size) {
    Json next = volume;
    next.child("spec").set("size", api::print_volume_size(*size));
    return act(Do::GrowVolume, std::move(next));
  }
  const std::string& why = volume["status"]["message"].string();
  return why.empty() ? nothing() : tell("VolumeResizeFailed", why);
}

// Status of the claim as it is to be told: modifyVolumeStatus of Kubernetes.
ClaimNext tell_modify(const Json& claim, const char* status, std::string reason, std::string message) {
  const Json change = Json::object({{"targetVolumeAttributesClassName", attributes_of(claim)}, {"status", status}});
  if (claim["status"]["modifyVolumeStatus"] == change) return tell(std::move(reason), std::move(message));
  Json next = claim;
  next.child("status").set("modifyVolumeStatus", change);
  return act(Do::TellModify, std::move(next), std::move(reason), std::move(message));
}

// The volume takes on the attributes that its claim names; that it has them is said by its PersistentVolume, and from there in the claim's status by who binds.
ClaimNext modify(const ClaimSeen& seen) {
  const std::string& wanted = attributes_of(seen.claim);
  // Wanted back before all of the other was in force.
  const Json& under_way = seen.claim["status"]["modifyVolumeStatus"];
  const bool has = wanted == attributes_of(*seen.persistent), back = has && under_way.is_object() && under_way["targetVolumeAttributesClassName"].string() != wanted;
  if (wanted.empty() || (has && !back) || !seen.volume) return nothing();
  const Json& volume = *seen.volume;
  const auto change = change_of(seen, volume["spec"]["class"].string_or(api::kLocalFast));
  if (!change) return tell_modify(seen.claim, change.error().code == Code::NotFound ? "Pending" : "Infeasible", "VolumeModifyFailed", change.error().message);
  if (!back)
    if (auto begun = tell_modify(seen.claim, "InProgress", "VolumeModify", fmt::format("volume {} is given the attributes of VolumeAttributesClass {}", kube::name_of(volume), wanted)); begun.what != Do::Nothing) return begun;
  Json next = volume;
  api::apply(*change, next);
  if (next != volume) return act(Do::ModifyVolume, std::move(next));
  if (!api::limits_in_force(volume)) return volume["status"]["message"].string().empty() ? nothing() : tell("VolumeModifyFailed", volume["status"]["message"].string());
  if (back) {
    Json claim = seen.claim;
    claim.child("status").erase("modifyVolumeStatus");
    return act(Do::TellModify, std::move(claim));
  }
  Json persistent = *seen.persistent;
  persistent.child("spec").set("volumeAttributesClassName", wanted);
  return act(Do::ModifyPersistent, std::move(persistent), "VolumeModifySuccessful", fmt::format("volume {} has the attributes of VolumeAttributesClass {}", kube::name_of(volume), wanted));
}

// Neither waits for the other.
ClaimNext modify_and_grow(const ClaimSeen& seen) {
  ClaimNext modified = modify(seen);
  if (modified.what != Do::Nothing) return modified;
  ClaimNext grown = grow(seen);
  return grown.what != Do::Nothing || modified.reason.empty() ? grown : modified;
}

}  // namespace

ClaimSource source_of(const Json& claim) {
  const Json& spec = claim["spec"];
  const Json& source = spec.has("dataSourceRef") ? spec["dataSourceRef"] : spec["dataSource"];
  if (source.is_null()) return {};
  const std::string &group = source["apiGroup"].string(), &kind = source["kind"].string();
  using Kind = ClaimSource::Kind;
  return {group.empty() && kind == "PersistentVolumeClaim" ? Kind::Claim : group == api::kSnapshots.group && kind == "Snapshot" ? Kind::Snapshot : Kind::Unknown, source["name"].string()};
}

bool may_have(const Json& claim, const Json& snapshot) {
  const std::string& space = kube::space_of(claim);
  return !space.empty() && snapshot["spec"]["tags"]["pvc/namespace"].string() == space;
}

bool is_left_over(const Json& volume, const std::optional<Json>& claim, bool has_persistent) {
  const std::string& uid = volume["metadata"]["annotations"][kProvisioning].string();
  return !uid.empty() && !has_persistent && !kube::deleting(volume) && (!claim || kube::uid_of(*claim) != uid);
}
bool is_of_ours(const Json& storage_class) { return storage_class["provisioner"].string() == api::kVolumeDriver; }
std::string volume_name_for(const Json& claim) { return "pvc-" + kube::uid_of(claim); }

ClaimNext next_for_claim(const ClaimSeen& seen, Instant now) {
  const Json& claim = seen.claim;
  if (!is_of_ours(seen.storage_class) || kube::deleting(claim)) return nothing();
  if (seen.persistent) return kube::deleting(*seen.persistent) || (*seen.persistent)["spec"]["claimRef"]["uid"].string() != kube::uid_of(claim) ? nothing() : modify_and_grow(seen);
  const std::string& named = claim["spec"]["volumeName"].string();
  if (!named.empty() && named != volume_name_for(claim)) return nothing();  // it is for one that somebody made
  if (claim["status"]["phase"].string() == "Bound") return nothing();       // lost, which is told by who binds
  const bool waits = seen.storage_class["volumeBindingMode"].string() == "WaitForFirstConsumer";
  if (waits && claim["metadata"]["annotations"][kSelectedNode].string().empty()) return nothing();
  if (std::string why = against(claim, seen.storage_class); !why.empty()) return tell("ProvisioningFailed", std::move(why));
  if (!seen.volume) return make_volume(seen, now);
  const Json& status = (*seen.volume)["status"];
  const std::string& phase = status["phase"].string();
  if (kube::deleting(*seen.volume)) return nothing(true);
  if ((phase == "Available" || phase == "InUse") && (*seen.volume)["metadata"]["annotations"].has(kProvisioning)) {
    Json settled = *seen.volume;
    settled.child("metadata").child("annotations").erase(kProvisioning);
    return act(Do::Settle, std::move(settled));
  }
  if (phase == "Available" || phase == "InUse") return act(Do::MakePersistent, persistent_for(claim, seen.storage_class, *seen.volume), "ProvisioningSucceeded", "Successfully provisioned volume " + volume_name_for(claim));
  // One that never was, for want of room: another pool may have some.
  if (phase == "Failed" && status["poolID"].string().empty()) return act(Do::DropVolume, *seen.volume, "ProvisioningFailed", status["message"].string());
  return status["message"].string().empty() ? nothing() : tell("ProvisioningFailed", status["message"].string());
}

PersistentNext next_for_persistent(const Json& persistent, const std::optional<Json>& volume) {
  using To = PersistentNext::Do;
  if (persistent["spec"]["csi"]["driver"].string() != api::kVolumeDriver || persistent["status"]["phase"].string() != "Released") return {};
  if (persistent["spec"]["persistentVolumeReclaimPolicy"].string() != "Delete") return {};
  // What somebody made by hand, and gave this driver, is deleted as well: so it says.
  if (!volume) return {To::DropPersistent};
  return {kube::deleting(*volume) ? To::Nothing : To::DeleteVolume};
}

}  // namespace fairlead::storage
