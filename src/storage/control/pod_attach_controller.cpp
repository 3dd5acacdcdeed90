// SPDX-License-Identifier: Apache-2.0
#include "storage/control/pod_attach_controller.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/volume.h"
#include "base/log.h"
#include "kube/pod_claims.h"
#include "storage/control/events.h"
#include "storage/plan/attachments.h"

namespace fairlead::storage {

using kube::Json;
using namespace std::chrono_literals;
namespace resources = kube::resources;

namespace {

const kube::Resource kPersistent{"", "v1", "persistentvolumes", "PersistentVolume", false};
constexpr std::string_view kNodeKey = "node/";
constexpr const char* kComponent = "attachdetach-controller";

bool is_ours(const Json& persistent) { return persistent["spec"]["csi"]["driver"].string() == api::kVolumeDriver; }
// Its containers have ended: it needs no volume any more.
bool finished(const Json& pod) { return pod["status"]["phase"].string() == "Succeeded" || pod["status"]["phase"].string() == "Failed"; }
bool uses(const Json& pod, const std::string& claim) {
  const auto& volumes = pod["spec"]["volumes"].items();
  return std::any_of(volumes.begin(), volumes.end(), [&](const Json& one) { return kube::claim_of(pod, one) == claim; });
}

}  // namespace

std::vector<kube::Controller::Source> PodAttachController::sources() const {
  const auto of_pod = [this](const kube::Change& change) {
    std::vector<kube::ObjectKey> out;
    const Json& pod = change.object();
    if (caches_ == nullptr || pod["spec"]["nodeName"].string().empty()) return out;
    // Status alone moves often: what counts is whether it is there, where, and whether it has ended.
    if (change.before && change.after && (*change.before)["spec"]["nodeName"] == (*change.after)["spec"]["nodeName"] && finished(*change.before) == finished(*change.after)) return out;
    for (const Json& one : pod["spec"]["volumes"].items()) {
      const std::string claim = kube::claim_of(pod, one);
      if (claim.empty()) continue;
      if (const auto there = caches_->of(resources::claims).get({kube::space_of(pod), claim}); there && !(*there)["spec"]["volumeName"].string().empty()) out.push_back({"", (*there)["spec"]["volumeName"].string()});
    }
    return out;
  };
  const auto of_claim = [](const kube::Change& change) {
    const std::string& volume = change.object()["spec"]["volumeName"].string();
    return volume.empty() ? std::vector<kube::ObjectKey>() : std::vector<kube::ObjectKey>{{"", volume}};
  };
  const auto of_attachment = [this](const kube::Change& change) {
    std::vector<kube::ObjectKey> out;
    if (caches_ == nullptr) return out;
    caches_->of(kPersistent).each("", [&](const Json& one) {
      if (one["spec"]["csi"]["volumeHandle"] == change.object()["spec"]["volume"]) out.push_back(kube::key_of(one));
    });
    return out;
  };
  const auto of_pool = [](const kube::Change& change) {
    std::vector<kube::ObjectKey> out;
    if (change.before && change.after && (*change.before)["status"]["nodes"] == (*change.after)["status"]["nodes"]) return out;
    for (const auto& side : {change.before, change.after})
      if (side)
        for (const Json& node : (*side)["status"]["nodes"].items()) out.push_back({"", std::string(kNodeKey) + node.string()});
    return out;
  };
  const auto of_node = [](const kube::Change& change) {
    const bool news = !change.before || !change.after || (*change.before)["metadata"]["labels"] != (*change.after)["metadata"]["labels"];
    return news ? std::vector<kube::ObjectKey>{{"", std::string(kNodeKey) + kube::name_of(change.object())}} : std::vector<kube::ObjectKey>();
  };
  return {{resources::pods, "", of_pod}, {resources::claims, "", of_claim}, {kPersistent, "", kube::key_itself}, {api::kAttachments, "", of_attachment}, {api::kVolumes, "", [](const kube::Change&) { return std::vector<kube::ObjectKey>(); }}, {api::kVolumePools, "", of_pool}, {resources::nodes, "", of_node}};
}

Result<kube::Next> PodAttachController::label(const std::string& name) {
  const auto node = caches_->of(resources::nodes).get({"", name});
  if (!node) return kube::Next{};
  std::vector<std::string> reached;
  caches_->of(api::kVolumePools).each("", [&](const Json& one) {
    if (api::read_pool(one).reaches(name)) reached.push_back(kube::name_of(one));
  });
  const Json labels = labels_for_pools(kube::labels_of(*node), std::move(reached));
  if (labels.is_null()) return kube::Next{};
  const Json patch = Json::object({{"metadata", Json::object({{"resourceVersion", kube::version_of(*node)}, {"labels", labels}})}});
  auto done = api_.patch(resources::nodes, {"", name}, kube::PatchType::Merge, patch);
  if (!done && done.error().code != Code::NotFound) return pass(std::move(done.error()), "label node " + name);
  return kube::Next{};
}

Result<kube::Next> PodAttachController::reconcile(const kube::ObjectKey& key) {
  if (key.name.starts_with(kNodeKey)) return label(key.name.substr(kNodeKey.size()));
  const auto persistent = caches_->of(kPersistent).get(key);
  if (!persistent || !is_ours(*persistent)) return kube::Next{};
  const std::string& volume_id = (*persistent)["spec"]["csi"]["volumeHandle"].string();
  // Pods that are to have it: of all PersistentVolumes that are of this volume, for one that was made anew does not end what the other is for.
  std::vector<Wish> wishes;
  caches_->of(kPersistent).each("", [&](const Json& one) {
    if (!is_ours(one) || one["spec"]["csi"]["volumeHandle"].string() != volume_id) return;
    const Json& reference = one["spec"]["claimRef"];
    const auto claim = caches_->of(resources::claims).get({reference["namespace"].string(), reference["name"].string()});
    if (!claim || kube::uid_of(*claim) != reference["uid"].string() || (*claim)["spec"]["volumeName"].string() != kube::name_of(one)) return;
    const auto& modes = one["spec"]["accessModes"].items();
    const bool alone = std::any_of(modes.begin(), modes.end(), [](const Json& mode) { return mode.string() == "ReadWriteOncePod"; });
    caches_->of(resources::pods).each(reference["namespace"].string(), [&](const Json& pod) {
      if (!pod["spec"]["nodeName"].string().empty() && !finished(pod) && uses(pod, reference["name"].string())) wishes.push_back({.pod = pod, .read_only = api::is_read_only(one), .alone = alone});
    });
  });
  std::vector<Json> attachments;
  caches_->of(api::kAttachments).each("", [&](const Json& one) {
    if (one["spec"]["volume"].string() == volume_id) attachments.push_back(one);
  });
  const AttachPlan plan = plan_attachments(key.name, wishes, attachments);
  for (const Json& one : plan.remove) {
    // A pod that the cache has not seen yet would lose nothing: its node has it mounted, or it is attached anew.
    auto removed = api_.remove(api::kAttachments, kube::key_of(one), {.uid = kube::uid_of(one)});
    if (!removed && removed.error().code != Code::NotFound) return pass(std::move(removed.error()), fmt::format("detach volume {} from {}", volume_id, one["spec"]["node"].string()));
    log_info("no pod needs the volume there any more", {{"volume", volume_id}, {"node", one["spec"]["node"].string()}});
  }
  for (const auto& [pod, message] : plan.tell) tell(api_, clock_, kComponent, resources::pods, pod, "FailedAttachVolume", message);
  if (plan.make.empty()) return kube::Next{plan.look_again ? std::optional<std::chrono::nanoseconds>(1s) : std::nullopt};
  const auto volume = caches_->of(api::kVolumes).get({"", volume_id});
  if (!volume) {
    for (const Wish& one : wishes) tell(api_, clock_, kComponent, resources::pods, one.pod, "FailedAttachVolume", fmt::format("there is no volume {}", volume_id));
    return kube::Next{5s};
  }
  for (const AttachPlan::Make& one : plan.make) {
    Json attachment = api::new_attachment(volume_id, (*volume)["spec"]["pool"].string(), one.node, one.read_only, (*persistent)["spec"]["volumeMode"].string() != "Block");
    attachment.child("metadata").set("labels", Json::object({{api::kForPods, "true"}}));
    if (!one.pod.empty()) attachment.child("metadata").set("annotations", Json::object({{api::kForPod, one.pod}}));
    auto made = api_.create(api::kAttachments, attachment);
    if (!made && made.error().code != Code::Exists) return pass(std::move(made.error()), fmt::format("attach volume {} to {}", volume_id, one.node));
  }
  return kube::Next{};
}

}  // namespace fairlead::storage
