// SPDX-License-Identifier: Apache-2.0
#include "apiserver/claim_controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "apiserver/event_recorder.h"
#include "apiserver/kinds/resources.h"
#include "base/files.h"
#include "base/log.h"
#include "kube/pod_claims.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

std::vector<kube::ObjectKey> claims_of_pod(const kube::Change& change) {
  std::vector<kube::ObjectKey> out;
  const Json& pod = change.object();
  for (const Json& volume : pod["spec"]["volumes"].items())
    if (std::string name = kube::claim_of(pod, volume); !name.empty()) out.push_back({kube::space_of(pod), std::move(name)});
  return out;
}

// A claim that goes leaves its volume behind.
std::vector<kube::ObjectKey> claim_and_volume(const kube::Change& change) {
  std::vector<kube::ObjectKey> out{kube::key_of(change.object())};
  if (const std::string& volume = change.object()["spec"]["volumeName"].string(); !change.after && !volume.empty()) out.push_back({"", volume});
  return out;
}

bool gone(const Error& error) { return error.code == Code::NotFound; }
std::string dynamic_name(const Json& claim) { return "pvc-" + kube::uid_of(claim); }

std::int64_t size_of(const Json& quantity) {
  const auto size = kube::Quantity::from_json(quantity);
  return size ? size->value() : 0;
}

bool includes(const Json& all, const Json& some) {
  return std::all_of(some.items().begin(), some.items().end(), [&](const Json& one) { return std::find(all.items().begin(), all.items().end(), one) != all.items().end(); });
}

std::string mode_of(const Json& spec) { return spec["volumeMode"].string_or("Filesystem"); }

bool belongs_to(const Json& volume, const Json& claim) {
  const Json& reference = volume["spec"]["claimRef"];
  const bool named = reference["name"] == claim["metadata"]["name"] && reference["namespace"] == claim["metadata"]["namespace"];
  return named && (reference["uid"].string().empty() || reference["uid"].string() == kube::uid_of(claim));
}

// A volume of the CSI driver: others make it, attach it and grow it.
bool is_block(const Json& volume) { return volume["spec"]["csi"].is_object(); }
// The pool that its nodes reach, where it says so.
std::string pool_of(const Json& volume) {
  for (const Json& term : volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"].items())
    for (const Json& one : term["matchExpressions"].items())
      if (one["key"].string() == claim_pool_label && one["operator"].string() == "In" && one["values"].items().size() == 1) return one["values"].items()[0].string();
  return "";
}

Json reference_to(const Json& claim) {
  return Json::object({{"kind", "PersistentVolumeClaim"}, {"namespace", kube::space_of(claim)}, {"name", kube::name_of(claim)}, {"uid", kube::uid_of(claim)}, {"apiVersion", "v1"},
                       {"resourceVersion", kube::version_of(claim)}});
}

}  // namespace

std::vector<kube::Controller::Source> ClaimController::sources() const {
  const auto claims_of_class = [this](const kube::Change& change) {
    std::vector<kube::ObjectKey> out;
    for (const Json& claim : claims_->list(""))
      if (claim["spec"]["storageClassName"].string() == kube::name_of(change.object())) out.push_back(kube::key_of(claim));
    return out;
  };
  // A volume that came, or became free, may be what a claim waits for.
  const auto volume_and_claims = [this](const kube::Change& change) {
    std::vector<kube::ObjectKey> out{kube::key_of(change.object())};
    const Json& reference = change.object()["spec"]["claimRef"];
    if (!reference.is_null()) out.push_back({reference["namespace"].string(), reference["name"].string()});
    else
      for (const Json& claim : claims_->list(""))
        if (claim["status"]["phase"].string() == "Pending") out.push_back(kube::key_of(claim));
    return out;
  };
  return {{kube::resources::claims, "", claim_and_volume}, {kube::resources::pods, "", claims_of_pod}, {workloads::volumes, "", volume_and_claims}, {workloads::storage_classes, "", claims_of_class}};
}

Result<kube::Next> ClaimController::reconcile(const kube::ObjectKey& key) {
  const kube::Resource& resource = key.space.empty() ? workloads::volumes : kube::resources::claims;
  auto object = api_.get(resource, key);
  if (!object && gone(object.error())) return kube::Next{};
  if (!object) return std::unexpected(std::move(object.error()));
  if (key.space.empty()) return keep_volume(std::move(*object));
  return kube::deleting(*object) ? release(*object) : bind(std::move(*object));
}

std::string ClaimController::path_of(const Json& volume) const {
  const std::string& path = volume["spec"]["hostPath"]["path"].string();
  const bool beneath = path.starts_with(folder_ + "/") && path.size() > folder_.size() + 1 && path.find("/../") == std::string::npos && !path.ends_with("/..");
  return beneath ? path.substr(folder_.size() + 1) : std::string();
}

Result<void> ClaimController::tell(const Json& claim, bool warning, const std::string& reason, const std::string& message) {
  record_event(api_, clock_, "persistentvolume-controller", kube::resources::claims, claim, warning, reason, message);
  return {};
}

// The smallest free volume that fits, or the one that the claim or the volume names.
Result<Json> ClaimController::find_static(const Json& claim) {
  auto volumes = api_.list(workloads::volumes, "");
  if (!volumes) return pass(std::move(volumes.error()), "list volumes");
  const Json& spec = claim["spec"];
  const std::string& wanted = spec["volumeName"].string();
  const auto selector = kube::LabelSelector::from_object(spec["selector"]);
  const Json* best = nullptr;
  for (const Json& volume : volumes->items) {
    if (kube::deleting(volume) || (path_of(volume).empty() && !is_block(volume))) continue;
    const Json& of = volume["spec"];
    if (!of["claimRef"].is_null()) {
      if (!belongs_to(volume, claim)) continue;
      if (mode_of(of) != mode_of(spec)) {
        (void)tell(claim, true, "VolumeMismatch", fmt::format("Cannot bind to requested volume \"{}\": incompatible volumeMode", kube::name_of(volume)));
        continue;
      }
      if (!of["claimRef"]["uid"].string().empty()) return volume;
      // Kept for a claim of this name: from now on for this one. Nodes ask for the uid.
      Json taken = volume;
      taken.child("spec").set("claimRef", reference_to(claim));
      return api_.update(workloads::volumes, taken);
    }
    if (!wanted.empty() && kube::name_of(volume) != wanted) continue;
    // What is to begin as a copy is not given what happens to be free.
    if (wanted.empty() && (spec.has("dataSource") || spec.has("dataSourceRef"))) continue;
    if (mode_of(of) != mode_of(spec)) continue;
    if (of["storageClassName"].string() != spec["storageClassName"].string() || !includes(of["accessModes"], spec["accessModes"])) continue;
    if (size_of(of["capacity"]["storage"]) < size_of(spec["resources"]["requests"]["storage"])) continue;
    if (!spec["selector"].is_null() && (!selector || !selector->matches(volume["metadata"]["labels"]))) continue;
    if (best != nullptr && size_of((*best)["spec"]["capacity"]["storage"]) <= size_of(of["capacity"]["storage"])) continue;
    best = &volume;
  }
  if (best == nullptr) return Json();
  Json taken = *best;
  taken.child("spec").set("claimRef", reference_to(claim));
  return api_.update(workloads::volumes, taken);
}

Result<Json> ClaimController::make_volume(const Json& claim, const std::string& reclaim) {
  // An empty directory in place of a copy would be taken for lost data.
  if (claim["spec"].has("dataSource") || claim["spec"].has("dataSourceRef")) {
    (void)tell(claim, true, "ProvisioningFailed", "a shared directory is no copy of anything (dataSource): ask for a class of csi.fairlead.dev, or fill it from a pod");
    return Json();
  }
  if (mode_of(claim["spec"]) == "Block") {
    (void)tell(claim, true, "ProvisioningFailed", "a shared directory is no block device (volumeMode Block): ask for a class of csi.fairlead.dev");
    return Json();
  }
  const std::string path = fmt::format("{}/{}/{}-{}", folder_, kube::space_of(claim), kube::name_of(claim), kube::uid_of(claim));
  if (auto made = make_dirs(path, 0755); !made) return pass(std::move(made.error()), "make the directory of claim " + kube::key_of(claim).text());
  Json spec = Json::object({{"capacity", Json::object({{"storage", claim["spec"]["resources"]["requests"]["storage"]}})}, {"hostPath", Json::object({{"path", path}, {"type", ""}})},
                            {"accessModes", claim["spec"]["accessModes"]}, {"claimRef", reference_to(claim)}, {"persistentVolumeReclaimPolicy", reclaim}, {"volumeMode", "Filesystem"}});
  if (const std::string& name = claim["spec"]["storageClassName"].string(); !name.empty()) spec.set("storageClassName", name);
  const Json annotations = Json::object({{"pv.kubernetes.io/provisioned-by", workloads::directory_provisioner}});
  auto made = api_.create(workloads::volumes, Json::object({{"apiVersion", "v1"}, {"kind", "PersistentVolume"},
                                                            {"metadata", Json::object({{"name", dynamic_name(claim)}, {"annotations", annotations}, {"finalizers", Json::array({workloads::volume_finalizer})}})},
                                                            {"spec", std::move(spec)}}));
  if (!made && made.error().code == Code::Exists) return api_.get(workloads::volumes, {"", dynamic_name(claim)});
  if (made) (void)tell(claim, false, "ProvisioningSucceeded", "Successfully provisioned volume " + dynamic_name(claim));
  return made;
}

Result<Json> ClaimController::choose(const Json& claim) {
  auto there = find_static(claim);
  if (!there || !there->is_null()) return there;
  const Json& spec = claim["spec"];
  if (!spec["volumeName"].string().empty() && spec["volumeName"].string() != dynamic_name(claim)) {
    (void)tell(claim, true, "FailedBinding", fmt::format("volume \"{}\" is not there, or does not fit", spec["volumeName"].string()));
    return Json();
  }
  const std::string& name = spec["storageClassName"].string();
  if (name.empty() && spec.has("storageClassName")) {
    (void)tell(claim, false, "FailedBinding", "no persistent volumes available for this claim and no storage class is set");
    return Json();
  }
  if (name.empty()) return make_volume(claim, "Retain");
  const auto storage = api_.get(workloads::storage_classes, {"", name});
  if (!storage && !gone(storage.error())) return std::unexpected(storage.error());
  if (!storage) {
    (void)tell(claim, true, "ProvisioningFailed", fmt::format("storageclass.storage.k8s.io \"{}\" not found", name));
    return Json();
  }
  const std::string& provisioner = (*storage)["provisioner"].string();
  if (provisioner != workloads::directory_provisioner) {
    (void)tell(claim, false, "ExternalProvisioning",
               fmt::format("Waiting for a volume to be created either by the external provisioner '{}' or manually by the system administrator. If volume creation is delayed, please verify that the "
                           "provisioner is running and correctly registered.", provisioner));
    return Json();
  }
  if ((*storage)["volumeBindingMode"].string() == "WaitForFirstConsumer" && claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].string().empty()) {
    (void)tell(claim, false, "WaitForFirstConsumer", "waiting for first consumer to be created before binding");
    return Json();
  }
  return make_volume(claim, (*storage)["reclaimPolicy"].string());
}

Result<kube::Next> ClaimController::bind(Json claim) {
  if (!kube::has_finalizer(claim, claim_finalizer)) {
    // The finalizer is there before the directory is, so that no directory is ever forgotten.
    kube::add_finalizer(claim, claim_finalizer);
    auto written = api_.update(kube::resources::claims, claim);
    if (!written) return std::unexpected(std::move(written.error()));
    claim = std::move(*written);
  }
  if (claim["status"]["phase"].string() == "Bound" && !claim["spec"]["volumeName"].string().empty()) {
    const auto volume = api_.get(workloads::volumes, {"", claim["spec"]["volumeName"].string()});
    if (!volume && !gone(volume.error())) return std::unexpected(volume.error());
    if (!volume) {
      claim.child("status").set("phase", "Lost");
      auto written = api_.update_status(kube::resources::claims, claim);
      if (!written) return std::unexpected(std::move(written.error()));
      return kube::Next{};
    }
  }
  auto volume = choose(claim);
  if (!volume) return std::unexpected(std::move(volume.error()));
  if (volume->is_null()) return kube::Next{};
  // A claim that grows takes its own volume with it.
  const Json& asked = claim["spec"]["resources"]["requests"]["storage"];
  if (!is_block(*volume) && kube::name_of(*volume) == dynamic_name(claim) && size_of(asked) > size_of((*volume)["spec"]["capacity"]["storage"])) {
    volume->child("spec").child("capacity").set("storage", asked);
    auto written = api_.update(workloads::volumes, *volume);
    if (!written) return std::unexpected(std::move(written.error()));
    volume = std::move(*written);
  }
  const std::string path = path_of(*volume), pool = pool_of(*volume);
  if (auto made = path.empty() ? Result<void>() : make_dirs(folder_ + "/" + path, 0755); !made) return pass(std::move(made.error()), "make the directory of claim " + kube::key_of(claim).text());
  if (claim["spec"]["volumeName"].string() != kube::name_of(*volume) || claim["metadata"]["annotations"][claim_path_annotation].string() != path || claim["metadata"]["annotations"][claim_pool_annotation].string() != pool) {
    claim.child("spec").set("volumeName", kube::name_of(*volume));
    Json& annotations = claim.child("metadata").child("annotations");
    if (!path.empty()) annotations.set(claim_path_annotation, path);
    if (!pool.empty()) annotations.set(claim_pool_annotation, pool);
    annotations.set("pv.kubernetes.io/bind-completed", "yes");
    annotations.set("pv.kubernetes.io/bound-by-controller", "yes");
    auto written = api_.update(kube::resources::claims, claim);
    if (!written) return std::unexpected(std::move(written.error()));
    claim = std::move(*written);
  }
  if ((*volume)["status"]["phase"].string() != "Bound") {
    volume->set("status", Json::object({{"phase", "Bound"}}));
    auto written = api_.update_status(workloads::volumes, *volume);
    if (!written) return std::unexpected(std::move(written.error()));
  }
  const Json capacity = Json::object({{"storage", (*volume)["spec"]["capacity"]["storage"]}});
  Json status = Json::object({{"phase", "Bound"}, {"accessModes", (*volume)["spec"]["accessModes"]}, {"capacity", capacity}});
  // Whose attributes the volume has is the volume's to say; what is under way with them, who changes it tells.
  const std::string& attributes = (*volume)["spec"]["volumeAttributesClassName"].string();
  if (!attributes.empty()) status.set("currentVolumeAttributesClassName", attributes);
  if (const Json& change = claim["status"]["modifyVolumeStatus"]; change.is_object() && change["targetVolumeAttributesClassName"].string() != attributes) status.set("modifyVolumeStatus", change);
  if (claim["status"] == status) return kube::Next{};
  claim.set("status", status);
  auto written = api_.update_status(kube::resources::claims, claim);
  if (!written) return std::unexpected(std::move(written.error()));
  log_info("claim bound", {{"claim", kube::key_of(claim).text()}, {"volume", kube::name_of(*volume)}});
  return kube::Next{};
}

Result<bool> ClaimController::in_use(const Json& claim) {
  auto pods = api_.list(kube::resources::pods, kube::space_of(claim), {.field_selector = "status.phase!=Succeeded,status.phase!=Failed"});
  if (!pods) return pass(std::move(pods.error()), "list pods");
  for (const Json& pod : pods->items)
    for (const Json& volume : pod["spec"]["volumes"].items())
      if (kube::claim_of(pod, volume) == kube::name_of(claim)) return true;
  return false;
}

Result<kube::Next> ClaimController::release(const Json& claim) {
  if (!kube::has_finalizer(claim, claim_finalizer)) return kube::Next{};
  auto used = in_use(claim);
  if (!used) return std::unexpected(std::move(used.error()));
  if (*used) return kube::Next{};  // the pod's end is a change that brings us back
  // Of a claim without a class nothing stays in the way of a new one: what it leaves lies in `released`.
  const bool own = !claim["spec"].has("storageClassName") && (claim["spec"]["volumeName"].string().empty() || claim["spec"]["volumeName"].string() == dynamic_name(claim));
  const bool erase = claim["metadata"]["annotations"][claim_reclaim_annotation].string() == "Delete";
  if (own) {
    const std::string path = fmt::format("{}/{}/{}-{}", folder_, kube::space_of(claim), kube::name_of(claim), kube::uid_of(claim));
    if (exists(path) && erase) {
      if (auto removed = remove_tree(path); !removed) return pass(std::move(removed.error()), "delete the directory of claim " + kube::key_of(claim).text());
    } else if (exists(path)) {
      if (auto made = make_dirs(folder_ + "/released", 0755); !made) return std::unexpected(std::move(made.error()));
      const std::string target = fmt::format("{}/released/{}-{}-{}", folder_, kube::space_of(claim), kube::name_of(claim), kube::uid_of(claim));
      if (std::rename(path.c_str(), target.c_str()) != 0) return fail_errno(errno, "keep the directory of claim " + kube::key_of(claim).text() + " as " + target);
    }
    auto volume = api_.get(workloads::volumes, {"", dynamic_name(claim)});
    if (!volume && !gone(volume.error())) return std::unexpected(std::move(volume.error()));
    if (volume)
      if (auto dropped = drop_volume(*volume); !dropped) return std::unexpected(std::move(dropped.error()));
  }
  Json next = claim;
  kube::remove_finalizer(next, claim_finalizer);
  auto written = api_.update(kube::resources::claims, next);
  if (!written && !gone(written.error())) return std::unexpected(std::move(written.error()));
  log_info("claim released", {{"claim", kube::key_of(claim).text()}, {"kept", erase ? "no" : "yes"}});
  return kube::Next{};
}

Result<void> ClaimController::drop_volume(const Json& volume) {
  Json next = volume;
  if (kube::has_finalizer(volume, workloads::volume_finalizer)) {
    kube::remove_finalizer(next, workloads::volume_finalizer);
    auto written = api_.update(workloads::volumes, next);
    if (!written && gone(written.error())) return {};
    if (!written) return std::unexpected(std::move(written.error()));
    if (kube::deleting(volume)) return {};  // that was all that held it
  }
  auto removed = api_.remove(workloads::volumes, kube::key_of(volume), {.uid = kube::uid_of(volume)});
  if (!removed && !gone(removed.error())) return removed;
  return {};
}

// What becomes of a volume whose claim is, or is not, there.
Result<kube::Next> ClaimController::keep_volume(Json volume) {
  const Json& reference = volume["spec"]["claimRef"];
  std::string phase = "Available", message;
  if (path_of(volume).empty() && !is_block(volume)) {
    phase = "Failed";
    message = fmt::format("the path of a volume must lie beneath {}", folder_);
  } else if (!reference.is_null() && !reference["uid"].string().empty()) {
    const auto claim = api_.get(kube::resources::claims, {reference["namespace"].string(), reference["name"].string()});
    if (!claim && !gone(claim.error())) return std::unexpected(claim.error());
    if (claim && kube::uid_of(*claim) == reference["uid"].string()) return kube::Next{};  // the claim keeps it, also from being deleted
    phase = "Released";
    if (volume["spec"]["persistentVolumeReclaimPolicy"].string() == "Delete" && !is_block(volume)) {
      const std::string path = folder_ + "/" + path_of(volume);
      if (exists(path))
        if (auto removed = remove_tree(path); !removed) return pass(std::move(removed.error()), "delete the directory of volume " + kube::name_of(volume));
      if (auto dropped = drop_volume(volume); !dropped) return std::unexpected(std::move(dropped.error()));
      log_info("volume removed", {{"volume", kube::name_of(volume)}});
      return kube::Next{};
    }
  }
  // What is behind it goes first, and who sees to that waits for the phase.
  const bool others = is_block(volume) && phase == "Released" && volume["spec"]["persistentVolumeReclaimPolicy"].string() == "Delete";
  if (kube::deleting(volume) && !others) {
    if (auto dropped = drop_volume(volume); !dropped) return std::unexpected(std::move(dropped.error()));
    return kube::Next{};
  }
  if (!kube::has_finalizer(volume, workloads::volume_finalizer)) {
    kube::add_finalizer(volume, workloads::volume_finalizer);
    auto written = api_.update(workloads::volumes, volume);
    if (!written) return std::unexpected(std::move(written.error()));
    volume = std::move(*written);
  }
  if (volume["status"]["phase"].string() == phase) return kube::Next{};
  volume.set("status", Json::object({{"phase", phase}}));
  if (!message.empty()) volume.child("status").set("message", message);
  auto written = api_.update_status(workloads::volumes, volume);
  if (!written && !gone(written.error())) return std::unexpected(std::move(written.error()));
  return kube::Next{};
}

}  // namespace fairlead::apiserver
