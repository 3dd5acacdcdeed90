// SPDX-License-Identifier: Apache-2.0
#include "api/network_interface.h"

#include <fmt/format.h>

#include "api/machine.h"
#include "hyperpod/made_cluster.h"
#include "hyperpod/operations.h"

namespace fairlead::hyperpod {
namespace {

constexpr const char* action = "AttachClusterNodeNetworkInterface";
constexpr std::size_t most_of_one = 15;  // on one node

// Why this node takes none now; nothing: it does.
Answer<void> check_node(const Sources& sources, const Json& cluster, const std::optional<Json>& instance, const std::string& id) {
  if (!instance) return refuse("ResourceNotFound", fmt::format("Node {} of cluster {} not found", id, name_of_entity(cluster)));
  const std::string& node = (*instance)["status"]["node"].string();
  const std::string status = kube::deleting(*instance) ? "ShuttingDown" : (*instance)["status"]["phase"].string_or("Pending");
  if (status != "Running" || node.empty()) return invalid(fmt::format("Node {} is {}: an interface is attached to one that is Running", id, status));
  const auto object = sources.nodes.get({"", node});
  if (!object) return invalid(fmt::format("Node {} is not seen by Kubernetes now", id));
  if (!api::is_run_by_agent(*object)) return invalid(fmt::format("Node {} has a kubelet of its own: network interfaces are put up by Fairlead's agent", id));
  return {};
}

Answer<Json> attach(const Sources& sources, const Call& call, const Json& input) {
  const auto cluster = cluster_to_change(sources, call, action, input);
  if (!cluster) return cluster;
  // A machine's interface is not its pods', and of Slurm's nodes people see pods.
  if (api::read_cluster(*cluster).orchestrator != api::Orchestrator::Eks) return invalid(fmt::format("Cluster {} is orchestrated by Slurm, whose nodes are pods here: an interface of the machine would not be theirs", name_of_entity(*cluster)));
  const std::string &id = input["NodeId"].string(), &interface = input["NetworkInterfaceId"].string();
  // An address may stand for rights elsewhere: whose clusters may have it is asked of IAM, too.
  if (auto done = call.allow("ec2:AttachNetworkInterface", fmt::format("arn:aws:ec2:{}:{}:network-interface/{}", call.site.region, call.site.account, interface)); !done) return std::unexpected(done.error());
  const auto instance = instance_by_id(sources, *cluster, id);
  if (auto done = check_node(sources, *cluster, instance, id); !done) return std::unexpected(done.error());
  for (int attempt = 0;; ++attempt) {
    const auto all = sources.api.list(api::kNetworkInterfaces, "");
    if (!all) return std::unexpected(aws_error(all.error(), action));
    std::optional<Json> found;
    std::size_t here = 0;
    for (const Json& one : all->items) {
      if (kube::name_of(one) == interface) found = one;
      else if (one["spec"]["attachment"]["instanceId"].string() == id) ++here;
    }
    if (!found || kube::deleting(*found)) return refuse("ResourceNotFound", fmt::format("Network interface {} not found: `kubectl get networkinterfaces` tells those of this site", cut(interface, 40)));
    const api::NetworkInterface now = api::read_network_interface(*found);
    const std::string attachment = api::attachment_id(interface, id);
    const Json out = Json::object({{"ClusterArn", cluster_arn(call.site, *cluster)}, {"NodeId", id}, {"NetworkInterfaceId", interface}, {"AttachmentId", attachment}});
    if (now.instance == id) return out;  // it was sent again
    if (!now.problem.empty()) return invalid(fmt::format("Network interface {}: {}", interface, now.problem));
    if (!now.instance.empty()) return invalid(fmt::format("Network interface {} is attached to {}", interface, now.instance));
    if (!now.node.empty()) return invalid(fmt::format("Network interface {} is being taken from the node that had it: try again", interface));
    if (here >= most_of_one) return refuse("ResourceLimitExceeded", fmt::format("Node {} has {} network interfaces, and that is how many it may have", id, here));
    found->child("spec").set("attachment", Json::object({{"instanceId", id}, {"attachmentId", attachment}, {"attachTime", print_time(std::chrono::floor<std::chrono::seconds>(call.now))}, {"by", cut(call.who.arn, 600)}}));
    kube::add_finalizer(*found, api::kInterfaceFinalizer);
    const auto done = sources.api.update(api::kNetworkInterfaces, *found);
    if (done) return out;
    if (done.error().code != Code::Conflict || attempt >= 20) return std::unexpected(aws_error(done.error(), action));
  }
}

}  // namespace

void add_interface_operations(Operations& operations, const Sources& sources) {
  operations[action] = [sources](const Call& call, const Json& input) { return attach(sources, call, input); };
}

}  // namespace fairlead::hyperpod
