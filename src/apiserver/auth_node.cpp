// SPDX-License-Identifier: Apache-2.0
#include "apiserver/auth_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kube/pod_claims.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr std::string_view lease_space = "kube-node-lease";

bool is_read(std::string_view verb) { return verb == "get" || verb == "list" || verb == "watch"; }
bool is_change(std::string_view verb) { return verb == "update" || verb == "patch"; }

// What every node reads whole: pods, services and their endpoints give names their addresses, nodes the routes, policies what is let through.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> node_reads{{{"", "nodes"},
                                                                                   {"", "pods"},
                                                                                   {"", "services"},
                                                                                   {"", "endpoints"},
                                                                                   {"", "namespaces"},
                                                                                   {"discovery.k8s.io", "endpointslices"},
                                                                                   {"networking.k8s.io", "networkpolicies"},
                                                                                   {"coordination.k8s.io", "leases"},
                                                                                   {"fairlead.dev", "machines"}}};

bool named(const Json& reference, const char* member, std::string_view name) { return reference[member].string() == name; }

bool container_uses(const Json& container, bool secret, std::string_view name) {
  for (const Json& source : container["envFrom"].items()) {
    if (named(source[secret ? "secretRef" : "configMapRef"], "name", name)) return true;
  }
  for (const Json& variable : container["env"].items()) {
    if (named(variable["valueFrom"][secret ? "secretKeyRef" : "configMapKeyRef"], "name", name)) return true;
  }
  return false;
}

// k8s.io/kubelet/pkg/apis: the labels that a node may give itself under kubernetes.io and k8s.io.
constexpr std::array<std::string_view, 14> node_labels{
    "kubernetes.io/hostname",           "kubernetes.io/arch",        "kubernetes.io/os",          "beta.kubernetes.io/arch",         "beta.kubernetes.io/os",
    "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region", "failure-domain.kubernetes.io/zone", "failure-domain.kubernetes.io/region", "node.kubernetes.io/windows-build"};

bool within(std::string_view domain, std::string_view parent) {
  return domain == parent || (domain.size() > parent.size() && domain.ends_with(parent) && domain[domain.size() - parent.size() - 1] == '.');
}

bool label_is_own(const std::string& key) {
  const auto slash = key.find('/');
  const std::string_view domain = slash == std::string::npos ? std::string_view() : std::string_view(key).substr(0, slash);
  if (within(domain, "node-restriction.kubernetes.io")) return false;
  if (!within(domain, "kubernetes.io") && !within(domain, "k8s.io")) return true;
  if (within(domain, "kubelet.kubernetes.io") || within(domain, "node.kubernetes.io")) return true;
  return std::find(node_labels.begin(), node_labels.end(), key) != node_labels.end();
}

std::string foreign_labels(const Json* old, const Json& next) {
  std::set<std::string> changed;
  const auto compare = [&](const Json& a, const Json& b) {
    for (const auto& [key, value] : a["metadata"]["labels"].members()) {
      const Json* other = b["metadata"]["labels"].find(key);
      if ((other == nullptr || !(*other == value)) && !label_is_own(key)) changed.insert(key);
    }
  };
  static const Json none = Json::object();
  compare(next, old == nullptr ? none : *old);
  if (old != nullptr) compare(*old, next);
  std::string out;
  for (const std::string& key : changed) out.append(out.empty() ? "" : ", ").append(key);
  return out;
}

bool same_list(const Json& a, const Json& b) { return a == b || (a.items().empty() && b.items().empty()); }

}  // namespace

Verdict authorize_node(const std::string& node, const Attributes& a, const NodeFacts& facts) {
  const auto only_own = [&](bool own, std::string_view what) { return own ? Verdict{true, ""} : Verdict{false, fmt::format("node '{}' may only {}", node, what)}; };
  if (is_read(a.verb) && a.subresource.empty()) {
    for (const auto& [group, resource] : node_reads) {
      if (a.group == group && a.resource == resource) return {true, ""};
    }
    if (a.group.empty() && (a.resource == "secrets" || a.resource == "configmaps" || a.resource == "persistentvolumeclaims" || a.resource == "serviceaccounts")) {
      const std::string& name = a.verb == "get" || !a.name.empty() ? a.name : a.selected_name;
      if (name.empty() || a.space.empty()) return {false, fmt::format("node '{}' must name the object: get it, or select it by metadata.name", node)};
      return only_own(facts.pod_there_uses(node, a.resource, a.space, name), fmt::format("read {} that pods bound to it use", a.resource));
    }
  }
  if (a.group.empty() && a.resource == "persistentvolumes" && a.subresource.empty() && a.verb == "get")
    return only_own(facts.pod_there_uses(node, a.resource, "", a.name), "read persistentvolumes of claims that pods bound to it use");
  // VOLUME.NODE: whether a volume is attached to it.
  if (a.group == "fairlead.dev" && a.resource == "attachments" && a.subresource.empty() && a.verb == "get")
    return only_own(a.name.size() > node.size() + 1 && a.name.ends_with("." + node) && a.name.find('.') == a.name.size() - node.size() - 1, "read attachments of volumes to itself");
  if (a.group.empty() && a.resource == "nodes") {
    const bool fits = (a.verb == "create" && a.subresource.empty()) || (is_change(a.verb) && (a.subresource.empty() || a.subresource == "status")) ||
                      (a.verb == "get" && a.subresource == "status");
    // The name in a create is that of the body: the handler reads it before it asks here.
    if (fits) return only_own(a.name == node, "write its own Node");
  }
  if (a.group == "coordination.k8s.io" && a.resource == "leases" && a.space == lease_space) {
    if (a.verb == "create" || is_change(a.verb) || a.verb == "delete") return only_own(a.name == node, "write its own Lease");
  }
  if (a.group.empty() && a.resource == "pods") {
    const bool status = is_change(a.verb) && a.subresource == "status";
    const bool removal = (a.verb == "delete" && a.subresource.empty()) || (a.verb == "create" && a.subresource == "eviction");
    if (status || removal) return only_own(facts.pod_is_on(a.space, a.name, node), "change the status of pods bound to it and delete them");
  }
  if (a.group.empty() && a.resource == "serviceaccounts" && a.subresource == "token" && a.verb == "create")
    return only_own(facts.pod_there_uses(node, a.resource, a.space, a.name), "get tokens of the accounts of pods bound to it");
  if ((a.group.empty() || a.group == "events.k8s.io") && a.resource == "events" && (a.verb == "create" || is_change(a.verb))) return {true, ""};
  return {false, ""};
}

bool pod_uses(const Json& pod, std::string_view resource, std::string_view name) {
  const Json& spec = pod["spec"];
  if (resource == "serviceaccounts") return spec["serviceAccountName"].string_or("default") == name;
  if (resource == "persistentvolumeclaims") {
    return std::any_of(spec["volumes"].items().begin(), spec["volumes"].items().end(), [&](const Json& volume) { return !name.empty() && kube::claim_of(pod, volume) == name; });
  }
  const bool secret = resource == "secrets";
  for (const char* list : {"containers", "initContainers", "ephemeralContainers"}) {
    for (const Json& container : spec[list].items()) {
      if (container_uses(container, secret, name)) return true;
    }
  }
  for (const Json& volume : spec["volumes"].items()) {
    if (secret ? named(volume["secret"], "secretName", name) : named(volume["configMap"], "name", name)) return true;
    for (const Json& source : volume["projected"]["sources"].items()) {
      if (named(source[secret ? "secret" : "configMap"], "name", name)) return true;
    }
  }
  if (secret) {
    for (const Json& reference : spec["imagePullSecrets"].items()) {
      if (named(reference, "name", name)) return true;
    }
  }
  return false;
}

Result<void> check_node_write(const std::string& node, const Json* old, const Json& next) {
  if (const std::string& name = kube::name_of(next); name != node) return fail(Code::Forbidden, fmt::format("node \"{}\" is not allowed to modify node \"{}\"", node, name));
  const std::string labels = foreign_labels(old, next);
  if (old == nullptr) {
    if (!labels.empty()) return fail(Code::Forbidden, fmt::format("node \"{}\" is not allowed to set the following labels: {}", node, labels));
    return {};
  }
  if (!same_list((*old)["spec"]["taints"], next["spec"]["taints"])) return fail(Code::Forbidden, fmt::format("node \"{}\" is not allowed to modify taints", node));
  if (!same_list((*old)["metadata"]["ownerReferences"], next["metadata"]["ownerReferences"]))
    return fail(Code::Forbidden, fmt::format("node \"{}\" is not allowed to modify ownerReferences", node));
  if (!labels.empty()) return fail(Code::Forbidden, fmt::format("is not allowed to modify labels: {}", labels));
  return {};
}

void NodePods::put(const kube::ObjectKey& pod, const std::string& node, const std::string& uid) {
  drop(pod);
  pods_[pod] = {node, uid};
  nodes_[node].insert(pod);
}

void NodePods::drop(const kube::ObjectKey& pod) {
  const auto found = pods_.find(pod);
  if (found == pods_.end()) return;
  const auto node = nodes_.find(found->second.node);
  node->second.erase(pod);
  if (node->second.empty()) nodes_.erase(node);
  pods_.erase(found);
}

bool NodePods::knows(const kube::ObjectKey& pod, const std::string& uid) const {
  const auto found = pods_.find(pod);
  return found != pods_.end() && found->second.uid == uid;
}

std::vector<kube::ObjectKey> NodePods::on(const std::string& node, const std::string& space) const {
  std::vector<kube::ObjectKey> out;
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return out;
  for (auto at = found->second.lower_bound({space, ""}); at != found->second.end() && at->space == space; ++at) out.push_back(*at);
  return out;
}

}  // namespace fairlead::apiserver
