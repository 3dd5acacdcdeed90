// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/look.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/cluster.h"
#include "api/identity_crds.h"
#include "api/machine.h"
#include "api/team_crds.h"

namespace fairlead::orchestrator {

using kube::Json;

namespace {

const kube::Resource daemon_sets{"apps", "v1", "daemonsets", "DaemonSet", true};

// Is the kind served? One that may not be looked at says nothing.
void look_for(kube::KubeApi& api, const kube::Resource& resource, std::set<std::string>& missing, Facts& facts) {
  const auto some = api.list(resource, "", {.label_selector = {}, .field_selector = {}, .limit = 1, .continue_token = {}, .resource_version = "0"});
  if (some) return;
  if (some.error().code == Code::NotFound) missing.insert(resource.plural + "." + resource.group);
  else facts.unknown["charts"] = fmt::format("whether {} are served could not be found out: {}", resource.plural, some.error().message);
}

void look_at_nodes(const kube::List& nodes, Facts& facts) {
  for (const Json& node : nodes.items) {
    const auto& addresses = node["status"]["addresses"].items();
    if (std::none_of(addresses.begin(), addresses.end(), [](const Json& one) { return one["type"].string() == "InternalIP" && one["address"].string().find(':') != std::string::npos; })) facts.nodes_without_ipv6.insert(kube::name_of(node));
    // The API's own Service has one family where the cluster has two.
    for (const Json& range : node["spec"]["podCIDRs"].items()) (range.string().find(':') == std::string::npos ? facts.ipv4 : facts.ipv6) = true;
    if (api::is_run_by_agent(node)) {
      ++facts.own_nodes;
      continue;
    }
    ++facts.other_nodes;
    const Json* ready = kube::find_condition(node, "Ready");
    if (ready == nullptr) continue;
    if ((*ready)["status"].string() == "True") ++facts.other_ready;
    // The words of kubelets of all versions that we know: "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady ...".
    else if (const std::string& why = (*ready)["message"].string(); why.find("NetworkPluginNotReady") != why.npos || why.find("NetworkReady=false") != why.npos) facts.without_network[kube::name_of(node)] = why.substr(0, 200);
  }
}

}  // namespace

Facts look(kube::KubeApi& api, const std::string& space) {
  Facts facts;
  for (const kube::Resource* kind : {&api::kClusters, &api::kInstances, &api::kClusterEvents}) look_for(api, *kind, facts.missing, facts);
  for (const kube::Resource* kind : {&api::teams::configs, &api::teams::quotas}) look_for(api, *kind, facts.missing_extras, facts);

  if (const auto all = api.list(daemon_sets, "", {.label_selector = {}, .field_selector = {}, .limit = 0, .continue_token = {}, .resource_version = "0"})) {
    for (const Json& one : all->items)
      if (auto plugin = plugin_of(one)) facts.plugins.push_back(std::move(*plugin));
    std::sort(facts.plugins.begin(), facts.plugins.end(), [](const NetworkPlugin& a, const NetworkPlugin& b) { return a.where < b.where; });
  } else if (all.error().code != Code::NotFound && all.error().code != Code::Unsupported) {  // the embedded engine has none
    facts.unknown["cni"] = "DaemonSets, which tell the network plug-in, cannot be listed: " + all.error().message;
  }

  if (const auto nodes = api.list(kube::resources::nodes, "", {.label_selector = {}, .field_selector = {}, .limit = 0, .continue_token = {}, .resource_version = "0"})) look_at_nodes(*nodes, facts);
  else facts.unknown["cni"] = "nodes cannot be listed: " + nodes.error().message;

  if (const auto service = api.get(kube::resources::services, {"default", "kubernetes"}); !service) {
    facts.unknown["ipv6"] = "the families of Service default/kubernetes could not be read: " + service.error().message;
  } else {
    const auto& given = (*service)["spec"]["ipFamilies"].items();
    for (const Json& one : given) (one.string() == "IPv6" ? facts.ipv6 : facts.ipv4) = true;
    if (given.empty()) (((*service)["spec"]["clusterIP"].string().find(':') != std::string::npos) ? facts.ipv6 : facts.ipv4) = true;
    facts.ipv6_first = given.empty() ? facts.ipv6 : given.front().string() == "IPv6";
  }

  if (const auto networks = api.get(kube::resources::config_maps, {space, api::identities::networks_name})) {
    facts.networks.emplace();
    for (const auto& [subnet, said] : (*networks)["data"].members()) facts.networks->emplace(subnet, read_network(said.string()));
  } else if (networks.error().code != Code::NotFound) {
    facts.unknown["subnets"] = fmt::format("ConfigMap {}/{} could not be read: {}", space, api::identities::networks_name, networks.error().message);
  }
  return facts;
}

}  // namespace fairlead::orchestrator
