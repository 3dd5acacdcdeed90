// SPDX-License-Identifier: Apache-2.0
#include "cli/install_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "api/crds.h"
#include "api/identity_crds.h"
#include "api/queue_crds.h"
#include "api/user_roles.h"
#include "base/encoding.h"
#include "cli/install_parts.h"
#include "kube/leader.h"

namespace fairlead::cli {

using kube::Json;

namespace {

constexpr const char* kName = "fairlead-server";
constexpr int kHealthPort = 8080;

// For people (api/user_roles.h), as part of this installation.
Json user_role(Json one) {
  Json meta = part_metadata(kube::name_of(one));
  for (const auto& [key, value] : one["metadata"]["labels"].members()) meta.child("labels").set(key, value);
  one.set("metadata", std::move(meta));
  return one;
}

// A local node makes its pods' network itself: names and services from slices, routes to other nodes, policies from pods and namespaces. Node authorisation lets
// a node see its own pods only, so it is granted beside.
std::vector<Json> local_node_role() {
  const kube::Resource slices{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true}, policies{"networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true};
  kube::Access access;
  for (const auto* const one : {&kube::resources::pods, &kube::resources::nodes, &kube::resources::namespaces, &kube::resources::services, &slices, &policies}) access.may({"get", "list", "watch"}, *one);
  constexpr const char* name = "fairlead-local-nodes";
  Json bound = part("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", part_metadata(name));
  bound.set("roleRef", Json::object({{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "ClusterRole"}, {"name", name}}));
  bound.set("subjects", Json::array({Json::object({{"kind", "Group"}, {"apiGroup", "rbac.authorization.k8s.io"}, {"name", "system:nodes"}})}));
  return {role(name, "", kube::role_rules(access, "")), std::move(bound)};
}

Json deployment(const InstallOptions& options) {
  const Json selector = Json::object({{"app.kubernetes.io/name", kName}, {kPartOf, "fairlead"}});
  std::vector<Json> args = {"--engine=kubernetes", "--namespace=$(POD_NAMESPACE)", fmt::format("--health-listen=0.0.0.0:{}", kHealthPort), "--companion-dir=" + options.companion_dir};
  Json ports = Json::array({Json::object({{"name", "health"}, {"containerPort", kHealthPort}, {"protocol", "TCP"}})});
  if (!options.watch_namespace.empty()) {
    args.emplace_back("--watch-namespace=" + options.watch_namespace);
  } else {
    args.emplace_back(fmt::format("--webhook-listen=0.0.0.0:{}", api::queue_webhook_port));
    args.emplace_back(fmt::format("--webhook-service={}", api::queue_webhook_name));
    ports.push(Json::object({{"name", "webhooks"}, {"containerPort", api::queue_webhook_port}, {"protocol", "TCP"}}));
  }
  if (options.aws) {
    args.emplace_back(fmt::format("--aws-listen=0.0.0.0:{}", api::identities::aws_port));
    args.emplace_back(fmt::format("--aws-endpoint=https://{}.{}.svc", api::identities::aws_service, options.space));
    ports.push(Json::object({{"name", "aws"}, {"containerPort", api::identities::aws_port}, {"protocol", "TCP"}}));
  }
  if (!options.slurm_image.empty()) args.emplace_back("--slurm-image=" + options.slurm_image);
  const Json container = Json::object(
      {{"name", "server"},
       {"image", options.image},
       {"imagePullPolicy", "IfNotPresent"},
       {"args", Json::array(std::move(args))},
       {"env", Json::array({field_env("POD_NAME", "metadata.name"), field_env("POD_NAMESPACE", "metadata.namespace")})},
       {"ports", std::move(ports)},
       {"livenessProbe", health_probe("/healthz")},
       {"readinessProbe", health_probe("/readyz")},
       {"resources", Json::object({{"requests", Json::object({{"cpu", "50m"}, {"memory", "64Mi"}})}, {"limits", Json::object({{"memory", "512Mi"}})}})},
       {"securityContext", Json::object({{"allowPrivilegeEscalation", false}, {"readOnlyRootFilesystem", true}, {"capabilities", Json::object({{"drop", Json::array({Json("ALL")})}})}})},
       {"volumeMounts", Json::array({Json::object({{"name", "state"}, {"mountPath", "/var/lib/fairlead"}})})}});
  // The decision log of task governance: two files of at most twice their limit of 32 MiB.
  const Json state = Json::object({{"name", "state"}, {"emptyDir", Json::object({{"sizeLimit", "160Mi"}})}});
  const Json pod = Json::object({{"metadata", Json::object({{"labels", selector}})},
                                 {"spec", Json::object({{"serviceAccountName", kName},
                                                        {"securityContext", Json::object({{"runAsNonRoot", true}, {"runAsUser", 65532}, {"seccompProfile", Json::object({{"type", "RuntimeDefault"}})}})},
                                                        {"terminationGracePeriodSeconds", 15},
                                                        {"containers", Json::array({container})},
                                                        {"volumes", Json::array({state})}})}});
  Json out = part("apps/v1", "Deployment", part_metadata(kName, options.space));
  return out.set("spec", Json::object({{"replicas", options.replicas}, {"selector", Json::object({{"matchLabels", selector}})}, {"template", pod}}));
}

// By which any replica is reached at its port of this name: the conversion of queues by the cluster's API, the AWS face by its clients.
Json server_service(const InstallOptions& options, const char* name, const char* port_name) {
  Json out = part("v1", "Service", part_metadata(name, options.space));
  const Json port = Json::object({{"name", port_name}, {"port", 443}, {"targetPort", port_name}, {"protocol", "TCP"}});
  return out.set("spec", Json::object({{"selector", Json::object({{"app.kubernetes.io/name", kName}, {kPartOf, "fairlead"}})}, {"ports", Json::array({port})}}));
}

constexpr const char* kAgent = "fairlead-agent";

Json agent_metadata(const InstallOptions& options) {
  Json out = part_metadata(kAgent, options.space);
  out.child("labels").set("app.kubernetes.io/name", kAgent);
  return out;
}

// Keeps Slurm's companion program on each node. It asks nothing of the API.
Json agent(const InstallOptions& options) {
  const auto slash = options.companion_dir.rfind('/');
  const Json selector = Json::object({{"app.kubernetes.io/name", kAgent}, {kPartOf, "fairlead"}});
  const Json container = Json::object(
      {{"name", "agent"},
       {"image", options.agent_image},
       {"imagePullPolicy", "IfNotPresent"},
       {"args", Json::array({Json("companion"), Json("--to=/host" + options.companion_dir.substr(slash))})},
       {"resources", Json::object({{"requests", Json::object({{"cpu", "5m"}, {"memory", "16Mi"}})}, {"limits", Json::object({{"memory", "64Mi"}})}})},
       // Root, since the folder on the node is root's; no capability beyond writing there.
       {"securityContext", Json::object({{"runAsUser", 0},
                                         {"allowPrivilegeEscalation", false},
                                         {"readOnlyRootFilesystem", true},
                                         {"capabilities", Json::object({{"drop", Json::array({Json("ALL")})}})},
                                         {"seccompProfile", Json::object({{"type", "RuntimeDefault"}})}})},
       {"volumeMounts", Json::array({Json::object({{"name", "host"}, {"mountPath", "/host"}})})}});
  const Json host = Json::object({{"name", "host"}, {"hostPath", Json::object({{"path", options.companion_dir.substr(0, slash)}, {"type", "DirectoryOrCreate"}})}});
  const Json pod = Json::object({{"metadata", Json::object({{"labels", selector}})},
                                 {"spec", Json::object({{"serviceAccountName", kAgent},
                                                        {"automountServiceAccountToken", false},
                                                        {"terminationGracePeriodSeconds", 5},
                                                        {"tolerations", Json::array({Json::object({{"operator", "Exists"}})})},
                                                        {"containers", Json::array({container})},
                                                        {"volumes", Json::array({host})}})}});
  Json out = part("apps/v1", "DaemonSet", agent_metadata(options));
  return out.set("spec", Json::object({{"selector", Json::object({{"matchLabels", selector}})},
                                       {"updateStrategy", Json::object({{"type", "RollingUpdate"}, {"rollingUpdate", Json::object({{"maxUnavailable", "20%"}})}})},
                                       {"template", pod}}));
}

std::string managers_of(const Json& existing) {
  std::vector<std::string> names;
  for (const auto& entry : existing["metadata"]["managedFields"].items()) {
    const std::string& name = entry["manager"].string();
    if (!entry["subresource"].string().empty() || name == "kube-apiserver" || name == "kube-controller-manager" || name.starts_with("fairlead") || name == "before-first-apply") continue;
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// Everything that `wanted` says is so in `existing`, which may hold more (defaults).
bool contains(const Json& existing, const Json& wanted) {
  if (wanted.is_object()) return std::ranges::all_of(wanted.members(), [&](const auto& member) { return contains(existing[member.first], member.second); });
  if (!wanted.is_array()) return existing == wanted;
  if (existing.items().size() != wanted.items().size()) return false;
  for (std::size_t i = 0; i < wanted.items().size(); ++i)
    if (!contains(existing.items()[i], wanted.items()[i])) return false;
  return true;
}

}  // namespace

std::vector<Json> install_manifests(const InstallOptions& options, const kube::Access& server) {
  std::vector<Json> out;
  out.push_back(part("v1", "Namespace", part_metadata(options.space)));
  for (Json& crd : api::crds()) {
    const Json meta = part_metadata(kube::name_of(crd));
    for (const char* const list : {"labels", "annotations"})
      for (const auto& [key, value] : meta[list].members()) crd.child("metadata").child(list).set(key, value);
    // Where the server runs in the cluster its Service is known before it is; elsewhere the server says where it is. Until it has told whom to believe, nothing is converted.
    const bool in_cluster = options.replicas > 0 && options.watch_namespace.empty();
    if (api::is_queue_crd(crd) && !crd["spec"]["conversion"].is_null() && in_cluster)
      crd.child("spec").set("conversion", api::queue_conversion({.url = {}, .space = options.space, .service = api::queue_webhook_name, .ca_pem = {}}));
    out.push_back(std::move(crd));
  }
  out.push_back(part("v1", "ServiceAccount", part_metadata(kName, options.space)));
  kube::Access all = server;
  all.add(kube::leader_access({options.space, kName}));
  if (options.watch_namespace.empty()) all.add(api::queue_webhook_access(options.space));
  if (options.aws) all.add(api::identities::aws_access(options.space));
  std::vector<std::string> spaces;  // the cluster's own first, then namespaces in order
  for (const auto& rule : all.rules())
    if (std::ranges::find(spaces, rule.space) == spaces.end()) spaces.push_back(rule.space);
  for (const auto& space : spaces) out.push_back(role(kName, space, kube::role_rules(all, space)));
  for (Json& one : api::user_roles()) out.push_back(user_role(std::move(one)));
  for (const auto& space : spaces) out.push_back(binding(kName, space, kName, options.space));
  if (options.local_nodes)
    for (Json& one : local_node_role()) out.push_back(std::move(one));
  if (options.local_nodes && options.aws)
    for (Json& one : api::identities::node_settings_role(options.space)) {
      one.set("metadata", part_metadata(kube::name_of(one), options.space));
      out.push_back(std::move(one));
    }
  if (options.replicas > 0 && options.watch_namespace.empty()) out.push_back(server_service(options, api::queue_webhook_name, "webhooks"));
  if (options.replicas > 0 && options.aws) out.push_back(server_service(options, api::identities::aws_service, "aws"));
  if (options.replicas > 0) out.push_back(deployment(options));
  if (options.replicas > 0 && options.companion_dir.rfind('/') > 0 && !options.companion_dir.empty()) {
    out.push_back(part("v1", "ServiceAccount", agent_metadata(options)).set("automountServiceAccountToken", false));
    out.push_back(agent(options));
  }
  if (!options.volumes.size.empty())
    for (Json& one : volume_manifests(options.volumes, options.space)) out.push_back(std::move(one));
  return out;
}

Ownership owner_of(const Json& existing, const Json& wanted) {
  const auto labels = kube::labels_of(existing), annotations = kube::annotations_of(existing);
  const auto value = [](const auto& map, const char* key) {
    const auto at = map.find(key);
    return at == map.end() ? std::string() : at->second;
  };
  if (value(labels, kManagedBy) == "fairlead") return {.owner = Owner::Us, .who = "fairlead", .release = {}, .release_space = {}};
  if (const std::string release = value(annotations, "meta.helm.sh/release-name"); !release.empty()) {
    const std::string space = value(annotations, "meta.helm.sh/release-namespace");
    return {.owner = Owner::Somebody, .who = fmt::format("the Helm release {} in namespace {}", release, space), .release = release, .release_space = space};
  }
  if (const std::string& by = value(labels, kManagedBy); !by.empty()) return {.owner = Owner::Somebody, .who = by, .release = {}, .release_space = {}};
  if (contains(existing["spec"], wanted["spec"])) return {.owner = Owner::Nobody, .who = "nobody, and it is as ours", .release = {}, .release_space = {}};
  const std::string managers = managers_of(existing);
  return {.owner = Owner::Somebody, .who = managers.empty() ? "somebody who left no name" : managers, .release = {}, .release_space = {}};
}

std::vector<std::string> running_controllers(const std::string& group, const Ownership& owner, const std::vector<Json>& leases, const std::vector<Json>& deployments, Instant now) {
  std::vector<std::string> out;
  // Leases of controller-runtime are named HASH.DOMAIN, where the domain is a group's or one above it.
  std::vector<std::string> domains;
  for (std::string domain = group; domain.find('.') != std::string::npos; domain = domain.substr(domain.find('.') + 1)) domains.push_back("." + domain);
  for (const Json& lease : leases) {
    const Json& spec = lease["spec"];
    if (spec["holderIdentity"].string().empty() || kube::name_of(lease) == kName) continue;
    if (std::ranges::none_of(domains, [&](const auto& domain) { return kube::name_of(lease).ends_with(domain); })) continue;
    const auto renewed = parse_time(spec["renewTime"].string());
    if (renewed && now - *renewed > std::chrono::seconds(spec["leaseDurationSeconds"].integer(15)) + 5s) continue;
    out.push_back(fmt::format("{} holds the Lease {}/{}", spec["holderIdentity"].string(), kube::space_of(lease), kube::name_of(lease)));
  }
  for (const Json& one : deployments) {
    if (owner.release.empty() || one["status"]["replicas"].integer() == 0) continue;
    const auto annotations = kube::annotations_of(one);
    const auto release = annotations.find("meta.helm.sh/release-name"), space = annotations.find("meta.helm.sh/release-namespace");
    if (release == annotations.end() || release->second != owner.release || space == annotations.end() || space->second != owner.release_space) continue;
    out.push_back(fmt::format("the Deployment {}/{} has {} pods", kube::space_of(one), kube::name_of(one), one["status"]["replicas"].integer()));
  }
  return out;
}

bool older_version(const std::string& a, const std::string& b) {
  const auto parts = [](const std::string& text) {
    std::vector<int> out;
    for (const auto& part : split(text, '.')) {
      int number = 0;
      std::from_chars(part.data(), part.data() + part.size(), number);
      out.push_back(number);
    }
    out.resize(std::max<std::size_t>(out.size(), 3));
    return out;
  };
  return parts(a) < parts(b);
}

}  // namespace fairlead::cli
