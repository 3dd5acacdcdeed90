// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/login_service.h"

#include <fmt/format.h>

#include "api/network_ways.h"

namespace fairlead::slurm {

using kube::Json;

std::string login_names_service(const api::SlurmCluster& cluster) { return cluster.name + (cluster.login_service.type.empty() ? "-login-svc" : "-login-headless-svc"); }

std::optional<Json> desired_login_service(const api::SlurmCluster& cluster, Json metadata) {
  const auto& service = cluster.login_service;
  if (service.type.empty()) return std::nullopt;
  metadata.set("name", cluster.name + "-login-svc");
  Json annotations = Json::object();
  for (const auto& [name, value] : service.annotations) annotations.set(name, value);
  if (!annotations.members().empty()) metadata.set("annotations", std::move(annotations));
  Json port = Json::object({{"name", "ssh"}, {"port", cluster.login.main.port}, {"targetPort", cluster.login.main.port}, {"protocol", "TCP"}});
  if (service.node_port > 0 && service.type != "ClusterIP") port.set("nodePort", service.node_port);
  Json spec = Json::object({{"type", service.type},
                            {"selector", Json::object({{api::kSlurmClusterLabel, cluster.name}, {api::kSlurmRoleLabel, "login"}})},
                            {"ports", Json::array({std::move(port)})}});
  if (service.type == "LoadBalancer") {
    if (!service.load_balancer_ip.empty()) spec.set("loadBalancerIP", service.load_balancer_ip);
    Json ranges = Json::array();
    for (const auto& range : service.source_ranges) ranges.push(range);
    if (!service.source_ranges.empty()) spec.set("loadBalancerSourceRanges", std::move(ranges));
  }
  return Json::object({{"apiVersion", "v1"}, {"kind", "Service"}, {"metadata", std::move(metadata)}, {"spec", std::move(spec)}});
}

LoginServicePlan plan_login_service(const Json& have, const Json& wanted) {
  using What = LoginServicePlan::What;
  if (have.is_null()) return {What::Make, wanted};
  if (have["spec"]["clusterIP"].string() == "None") return {What::Renew, have};
  Json next = have;
  Json& spec = next.child("spec");
  for (const char* field : {"type", "selector", "loadBalancerIP", "loadBalancerSourceRanges"}) {
    if (wanted["spec"].has(field)) spec.set(field, wanted["spec"][field]);
    else spec.erase(field);
  }
  // The number that Kubernetes chose stays where none is asked for.
  Json port = wanted["spec"]["ports"].items().front();
  if (!port.has("nodePort") && wanted["spec"]["type"].string() != "ClusterIP" && !have["spec"]["ports"].items().empty() && have["spec"]["ports"].items().front().has("nodePort"))
    port.set("nodePort", have["spec"]["ports"].items().front()["nodePort"]);
  spec.set("ports", Json::array({std::move(port)}));
  // What other programs noted there (load balancers do) is theirs.
  for (const auto& [name, value] : wanted["metadata"]["annotations"].members()) next.child("metadata").child("annotations").set(name, value);
  if (next == have) return {};
  return {What::Change, std::move(next)};
}

std::optional<kube::Condition> login_condition(const api::SlurmCluster& cluster, const Json& have) {
  const auto& type = cluster.login_service.type;
  if (type.empty()) return std::nullopt;
  const auto no = [](const char* reason, std::string message) { return kube::Condition{"LoginReachable", "False", reason, std::move(message)}; };
  const auto yes = [](const char* reason, std::string message) { return kube::Condition{"LoginReachable", "True", reason, std::move(message)}; };
  const std::string name = cluster.name + "-login-svc";
  if (have.is_null() || have["spec"]["type"].string() != type)
    return no("Making", fmt::format("Service {} is not there as {} yet; if it stays so, condition StepsTaken says what the API refuses", name, type));
  const Json& port = have["spec"]["ports"].items().empty() ? have["none"] : have["spec"]["ports"].items().front();
  if (type == "ClusterIP") return yes("InTheCluster", fmt::format("ssh to {}:{} inside the cluster", have["spec"]["clusterIP"].string(), port["port"].integer()));
  if (type == "NodePort") return yes("NodePort", fmt::format("ssh to port {} of any node", port["nodePort"].integer()));
  for (const Json& ingress : have["status"]["loadBalancer"]["ingress"].items()) {
    const std::string address = ingress["ip"].string_or(ingress["hostname"].string());
    if (!address.empty()) return yes("LoadBalancer", fmt::format("ssh to {}, port {}", address, port["port"].integer()));
  }
  return no("AddressPending", fmt::format("the cluster's load balancer has not given Service {} an address; `kubectl -n {} describe service {}` tells why, and sshdServiceType: NodePort does without one{}", name,
                                          cluster.space, name, cluster.login_service.load_balancer_ip.empty() ? "" : fmt::format(" (asked for: {})", cluster.login_service.load_balancer_ip)));
}

}  // namespace fairlead::slurm
