// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/node_identity.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/cluster.h"
#include "hyperpod/operations.h"
#include "hyperpod/sts.h"
#include "hyperpod/trust.h"

namespace fairlead::hyperpod {
namespace {

constexpr std::string_view node_prefix = "system:node:";
constexpr const char* nodes_group = "system:nodes";
constexpr std::chrono::hours longest_life{6};  // as EC2 hands out; a role's own limit may be shorter

// Why its processes may not have this role now; empty: they may.
std::string why_not(const Identity* role, const std::string& arn, const std::string& cluster, const Site& site, Instant now) {
  if (role == nullptr || role->arn != arn) return fmt::format("role {} does not exist", arn);
  iam::Keys keys;
  keys.set("aws:SourceArn", {cluster});
  const std::string why = why_not_trusted(*role, "sagemaker.amazonaws.com", "sts:AssumeRole", std::move(keys), site, now);
  return why.empty() ? "" : fmt::format("{} does not let sagemaker.amazonaws.com assume it: {}", arn, why);
}

}  // namespace

void NodeIndex::follow(const kube::Change& change) {
  const std::string& id = kube::name_of(change.object());
  const std::lock_guard lock(mutex_);
  const auto node_of = [](const std::optional<Json>& object) { return object ? (*object)["status"]["node"].string() : std::string(); };
  const std::string before = node_of(change.before), after = node_of(change.after);
  if (before == after) return;
  if (const auto at = by_node_.find(before); at != by_node_.end()) {
    at->second.erase(id);
    if (at->second.empty()) by_node_.erase(at);
  }
  if (!after.empty()) by_node_[after].insert(id);
}

std::optional<std::string> NodeIndex::instance_on(const std::string& node) const {
  const std::lock_guard lock(mutex_);
  const auto at = by_node_.find(node);
  if (at == by_node_.end() || at->second.size() != 1) return std::nullopt;
  return *at->second.begin();
}

std::string node_of(const http::Peer& peer) {
  if (!peer.common_name.starts_with(node_prefix) || std::ranges::find(peer.organizations, nodes_group) == peer.organizations.end()) return "";
  return peer.common_name.substr(node_prefix.size());
}

Answer<NodeDocument> node_document(const std::string& node, const NodeIndex& index, const kube::Reader& instances, const kube::Reader& clusters, const Directory& directory, const SessionSeal& seal, Instant now) {
  const Site& site = directory.site();
  const auto nothing = [&] { return refuse("ResourceNotFoundException", fmt::format("node {} is no instance of a cluster", node), 404); };
  const auto id = index.instance_on(node);
  const auto object = id ? instances.get({"", *id}) : std::nullopt;
  if (!object) return nothing();
  const api::Instance instance = api::read_instance(*object);
  const auto owner = clusters.get({"", instance.cluster});
  // What is kept here of both comes by two watches: neither may be of before.
  if (!owner || kube::uid_of(*owner) != instance.cluster_uid || instance.node != node) return nothing();
  const api::Cluster cluster = api::read_cluster(*owner);
  const std::string arn = cluster_arn(site, *owner);
  NodeDocument out{.body = Json::object({{"accountId", site.account}, {"region", site.region}, {"instanceId", instance.id}, {"instanceType", instance.type}, {"clusterName", cluster.title}, {"clusterArn", arn}, {"instanceGroupName", instance.group}}), .arn = {}, .user_id = {}};
  if (cluster.orchestrator == api::Orchestrator::Slurm) out.body.set("slurmCluster", cluster.space + "/" + cluster.slurm_name);
  const api::InstanceGroup* const group = cluster.group(instance.group);
  if (group == nullptr) {
    out.body.set("problem", fmt::format("its cluster has no group {} any more", instance.group));
    return out;
  }
  const auto name = role_object(group->role, site);
  const auto role = name ? directory.identity(*name) : nullptr;
  out.body.set("roleName", group->role.substr(group->role.rfind('/') + 1)).set("roleArn", group->role).set("roleId", role ? role->id : "");
  if (const std::string why = why_not(role.get(), group->role, arn, site, now); !why.empty()) {
    out.body.set("problem", why);
    return out;
  }
  const auto made = open_session(*role, Session{.role = {}, .role_id = {}, .name = instance.id, .key_id = {}, .secret = {}, .policies = {}, .issued = now, .expires = std::chrono::floor<std::chrono::seconds>(now) + std::min<std::chrono::seconds>(longest_life, role->longest_session)}, seal);
  if (!made) return std::unexpected(made.error());
  const Session& of = made->session;
  out.body.set("credentials", Json::object({{"AccessKeyId", of.key_id}, {"SecretAccessKey", of.secret}, {"Token", made->token}, {"LastUpdated", print_time(std::chrono::floor<std::chrono::seconds>(now))}, {"Expiration", print_time(of.expires)}}));
  out.arn = session_arn(*role, of.name, site);
  out.user_id = role->id + ":" + of.name;
  return out;
}

}  // namespace fairlead::hyperpod
