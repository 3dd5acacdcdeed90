// SPDX-License-Identifier: Apache-2.0
// AttachClusterNodeVolume and DetachClusterNodeVolume: Attachments of the site's Volumes. Errors hold "HyperPod - Ec2ErrCode: CODE", by which the EBS CSI driver knows them.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "api/instance_volume.h"
#include "api/volume.h"
#include "hyperpod/key_policy.h"
#include "hyperpod/made_cluster.h"
#include "hyperpod/node_volumes.h"
#include "hyperpod/operations.h"

namespace fairlead::hyperpod {
namespace {

constexpr const char *kAttach = "AttachClusterNodeVolume", *kDetach = "DetachClusterNodeVolume";

std::unexpected<AwsError> ec2_error(const char* code, const std::string& why) { return invalid(fmt::format("HyperPod - Ec2ErrCode: {}. {}", code, why)); }

struct Asked {
  Json cluster, instance, volume;
  std::string node;
  std::optional<FoundKey> key;  // of a customer's, that opens the volume; asked for where it is attached
};

// Detaching needs nothing of it.
Answer<std::optional<FoundKey>> key_of(const Sources& sources, const Call& call, const Json& volume, const std::string& id) {
  const std::string name = volume["status"]["key"].string_or(volume["spec"]["key"].string());
  if (name.empty() || name == api::kServiceKey) return std::optional<FoundKey>();
  auto key = named_key(sources.api, name);
  if (!key || !*key) return key;
  if (auto done = allow_attach(call, **key, id); !done) return std::unexpected(done.error());
  return key;
}

// Who may, and what is meant. `ec2`: the action on the volume. eks:DescribeCluster is asked for as in AWS, whose service reads the cluster in the caller's name.
Answer<Asked> read(const Sources& sources, const Call& call, const char* action, const char* ec2, const Json& input) {
  Json named = input;
  named.set("ClusterName", input["ClusterArn"]);
  auto cluster = cluster_to_change(sources, call, action, named);
  if (!cluster) return std::unexpected(cluster.error());
  const api::Cluster about = api::read_cluster(*cluster);
  if (about.orchestrator != api::Orchestrator::Eks) return invalid(fmt::format("Cluster {} is orchestrated by Slurm: volumes are attached to nodes of clusters that Kubernetes orchestrates", name_of_entity(*cluster)));
  const std::string &id = input["NodeId"].string(), &volume_id = input["VolumeId"].string();
  if (auto done = call.allow("eks:DescribeCluster", (*cluster)["spec"]["orchestrator"]["eks"]["clusterArn"].string()); !done) return std::unexpected(done.error());
  const auto all = sources.api.list(api::kVolumes, "");
  if (!all) return std::unexpected(aws_error(all.error(), action));
  const auto found = std::find_if(all->items.begin(), all->items.end(), [&](const Json& one) { return api::ec2_id(kube::name_of(one), "vol-") == volume_id; });
  iam::Keys keys;
  if (found != all->items.end())
    for (const auto& [key, value] : (*found)["spec"]["tags"].members())
      for (const char* const family : {"aws:ResourceTag/", "ec2:ResourceTag/"}) keys.set(family + key, {value.string()});
  if (auto done = call.allow(ec2, fmt::format("arn:aws:ec2:{}:{}:volume/{}", call.site.region, call.site.account, volume_id), keys); !done) return std::unexpected(done.error());
  std::optional<FoundKey> key;
  if (action == std::string_view(kAttach) && found != all->items.end()) {
    auto its = key_of(sources, call, *found, volume_id);
    if (!its) return std::unexpected(its.error());
    key = std::move(*its);
  }
  auto instance = instance_by_id(sources, *cluster, id);
  if (!instance) return refuse("ResourceNotFound", fmt::format("Node {} of cluster {} not found", id, name_of_entity(*cluster)));
  if (found == all->items.end()) return ec2_error("InvalidVolume.NotFound", fmt::format("The volume '{}' does not exist: `fairlead volume list` tells those of this site", volume_id));
  Asked out{.cluster = std::move(*cluster), .instance = std::move(*instance), .volume = *found, .node = {}, .key = std::move(key)};
  out.node = out.instance["status"]["node"].string();
  return out;
}

Json answer(const Call& call, const Asked& asked, const Json& input, const Json& attachment, const std::string& status) {
  const auto made = parse_time(attachment["metadata"]["creationTimestamp"].string());
  return Json::object({{"ClusterArn", cluster_arn(call.site, asked.cluster)}, {"NodeId", input["NodeId"]}, {"VolumeId", input["VolumeId"]}, {"AttachTime", std::chrono::duration<double>((made ? *made : call.now).time_since_epoch()).count()}, {"Status", status}, {"DeviceName", attachment["spec"]["deviceName"].string_or("/dev/sdf")}});
}

std::string status_of(const Json& attachment) {
  const std::string& phase = attachment["status"]["phase"].string();
  if (kube::deleting(attachment)) return attachment["status"]["message"].string().empty() ? "detaching" : "busy";
  return phase == "Attached" ? "attached" : "attaching";
}

Answer<Json> attach(const Sources& sources, const Call& call, const Json& input) {
  const auto asked = read(sources, call, kAttach, "ec2:AttachVolume", input);
  if (!asked) return std::unexpected(asked.error());
  const std::string &id = input["NodeId"].string(), name = kube::name_of(asked->volume), pool = asked->volume["spec"]["pool"].string();
  const std::string status = kube::deleting(asked->instance) ? "ShuttingDown" : asked->instance["status"]["phase"].string_or("Pending");
  if (status != "Running" || asked->node.empty()) return ec2_error("IncorrectState", fmt::format("Node {} is {}: a volume is attached to one that is Running", id, status));
  // A name is chosen and taken by one call at a time; what another server takes meanwhile is seen below.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const auto all = sources.api.list(api::kAttachments, "");
  if (!all) return std::unexpected(aws_error(all.error(), kAttach));
  std::vector<std::string> taken;
  std::size_t here = 0;
  for (const Json& one : all->items) {
    const bool same_node = one["spec"]["node"].string() == asked->node;
    here += same_node ? 1 : 0;
    // Names are of the machine that has the pool: its nodes may share one /dev.
    if (one["spec"]["pool"].string() == pool) taken.push_back(one["spec"]["deviceName"].string());
    if (one["spec"]["volume"].string() != name) continue;
    if (same_node && !kube::deleting(one)) return answer(call, *asked, input, one, status_of(one));  // it was sent again
    return ec2_error("IncorrectState", fmt::format("Volume {} is {}", input["VolumeId"].string(), kube::deleting(one) ? "being detached" : "in use"));
  }
  const std::string& phase = asked->volume["status"]["phase"].string();
  if (kube::deleting(asked->volume) || phase != "Available") return ec2_error("IncorrectState", fmt::format("Volume {} is {}: one that is available is attached", input["VolumeId"].string(), kube::deleting(asked->volume) ? "being deleted" : phase.empty() ? "being made" : phase));
  if (const std::string why = asked->key ? api::why_closed(asked->key->key) : ""; !why.empty()) return ec2_error("InvalidKMSKey.InvalidState", why);
  const auto device = free_device_name(taken);
  if (!device || here >= kMostVolumesOfANode) return ec2_error("AttachmentLimitExceeded", fmt::format("Node {} has {} volumes, and that is how many it may have", id, here));
  const auto facts = sources.api.get(api::kVolumePools, {"", pool});
  if (!facts && facts.error().code != Code::NotFound) return std::unexpected(aws_error(facts.error(), kAttach));
  if (!facts || !api::read_pool(*facts).reaches(asked->node)) return ec2_error("InvalidVolume.ZoneMismatch", fmt::format("Volume {} is in pool {}, which node {} does not reach: restore a snapshot of it elsewhere, or attach it to a node there", input["VolumeId"].string(), pool, id));
  Json object = api::new_attachment(name, pool, asked->node, false);
  object.child("spec").set("deviceName", *device);
  if (asked->key) api::set_grant(object, asked->key->key.name, call.who.arn);
  // It goes with the instance.
  object.child("metadata").set("ownerReferences", Json::array({Json::object({{"apiVersion", api::kInstances.api_version()}, {"kind", api::kInstances.kind}, {"name", kube::name_of(asked->instance)}, {"uid", kube::uid_of(asked->instance)}})}));
  note(object, maker_note, kube::print_json(as_context(call)));
  const auto made = sources.api.create(api::kAttachments, object);
  if (!made && made.error().code == Code::Exists) return ec2_error("IncorrectState", fmt::format("Volume {} is in use", input["VolumeId"].string()));
  if (!made) return std::unexpected(aws_error(made.error(), kAttach));
  const auto again = sources.api.list(api::kAttachments, "");
  if (!again) return std::unexpected(aws_error(again.error(), kAttach));
  for (const Json& one : again->items)
    if (kube::uid_of(one) != kube::uid_of(*made) && one["spec"]["pool"].string() == pool && one["spec"]["deviceName"].string() == *device) {
      (void)sources.api.remove(api::kAttachments, kube::key_of(*made), {.grace_seconds = {}, .uid = kube::uid_of(*made), .resource_version = {}});
      return ec2_error("IncorrectState", fmt::format("Another volume took {} meanwhile: try again", *device));
    }
  return answer(call, *asked, input, *made, "attaching");
}

Answer<Json> detach(const Sources& sources, const Call& call, const Json& input) {
  const auto asked = read(sources, call, kDetach, "ec2:DetachVolume", input);
  if (!asked) return std::unexpected(asked.error());
  const std::string name = kube::name_of(asked->volume);
  const auto there = asked->node.empty() ? Result<Json>(fail(Code::NotFound, "")) : sources.api.get(api::kAttachments, {"", api::attachment_name(name, asked->node)});
  if (!there && there.error().code != Code::NotFound) return std::unexpected(aws_error(there.error(), kDetach));
  if (!there) return ec2_error("InvalidAttachment.NotFound", fmt::format("Volume {} is not attached to node {}", input["VolumeId"].string(), input["NodeId"].string()));
  if ((*there)["metadata"]["labels"].has(api::kForPods)) return ec2_error("IncorrectState", fmt::format("Volume {} is attached for pods of node {}: it is detached when they have ended", input["VolumeId"].string(), input["NodeId"].string()));
  if ((*there)["metadata"]["labels"].has(api::kInstanceVolume)) return ec2_error("OperationNotPermitted", fmt::format("Volume {} is the instance's own (InstanceStorageConfigs): it goes with node {}", input["VolumeId"].string(), input["NodeId"].string()));
  if (!kube::deleting(*there)) {
    const auto done = sources.api.remove(api::kAttachments, kube::key_of(*there), {.grace_seconds = {}, .uid = kube::uid_of(*there), .resource_version = {}});
    if (!done && done.error().code != Code::NotFound) return std::unexpected(aws_error(done.error(), kDetach));
  }
  return answer(call, *asked, input, *there, kube::deleting(*there) ? status_of(*there) : "detaching");
}

}  // namespace

std::optional<std::string> free_device_name(const std::vector<std::string>& taken) {
  for (const char* const begin : {"/dev/xvd", "/dev/sd"})
    for (char letter = 'f'; letter <= 'z'; ++letter)
      if (std::string name = std::string(begin) + letter; std::find(taken.begin(), taken.end(), name) == taken.end()) return name;
  return std::nullopt;
}

void add_node_volume_operations(Operations& operations, const Sources& sources) {
  operations[kAttach] = [sources](const Call& call, const Json& input) { return attach(sources, call, input); };
  operations[kDetach] = [sources](const Call& call, const Json& input) { return detach(sources, call, input); };
}

}  // namespace fairlead::hyperpod
