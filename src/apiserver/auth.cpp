// SPDX-License-Identifier: Apache-2.0
#include "apiserver/auth.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/encoding.h"

namespace fairlead::apiserver {
namespace {

using kube::Json;
constexpr std::string_view lease_space = "kube-node-lease";

bool is_read(std::string_view verb) { return verb == "get" || verb == "list" || verb == "watch"; }
bool is_change(std::string_view verb) { return verb == "update" || verb == "patch"; }
bool is_review(const Attributes& a) {
  return a.verb == "create" && ((a.group == "authorization.k8s.io" && (a.resource == "selfsubjectaccessreviews" || a.resource == "selfsubjectrulesreviews")) ||
                                (a.group == "authentication.k8s.io" && a.resource == "selfsubjectreviews"));
}

// What every node reads whole: to run pods it needs pods, their claims and services, and its peers' addresses.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> node_reads{{{"", "nodes"},
                                                                                   {"", "pods"},
                                                                                   {"", "services"},
                                                                                   {"", "endpoints"},
                                                                                   {"", "namespaces"},
                                                                                   {"", "persistentvolumeclaims"},
                                                                                   {"", "serviceaccounts"},
                                                                                   {"coordination.k8s.io", "leases"},
                                                                                   {"fairlead.dev", "machines"}}};

Verdict authorize_node(const std::string& node, const Attributes& a, const NodeFacts& facts) {
  const auto only_own = [&](bool own, std::string_view what) { return own ? Verdict{true, ""} : Verdict{false, fmt::format("node '{}' may only {}", node, what)}; };
  if (is_read(a.verb) && a.subresource.empty()) {
    for (const auto& [group, resource] : node_reads) {
      if (a.group == group && a.resource == resource) return {true, ""};
    }
    if (a.group.empty() && (a.resource == "secrets" || a.resource == "configmaps")) {
      const std::string& name = a.verb == "get" || !a.name.empty() ? a.name : a.selected_name;
      if (name.empty()) return {false, fmt::format("node '{}' must name the object: get it, or select it by metadata.name", node)};
      return only_own(facts.pod_there_uses(node, a.resource, a.space, name), fmt::format("read {} that pods bound to it use", a.resource));
    }
  }
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
    const bool removal = a.verb == "delete" && a.subresource.empty();
    if (status || removal) return only_own(facts.pod_is_on(a.space, a.name, node), "change the status of pods bound to it and delete them");
  }
  if ((a.group.empty() || a.group == "events.k8s.io") && a.resource == "events" && (a.verb == "create" || is_change(a.verb))) return {true, ""};
  return {false, ""};
}

Json rule(std::initializer_list<const char*> verbs, std::initializer_list<const char*> groups, std::initializer_list<const char*> resources) {
  const auto list = [](std::initializer_list<const char*> texts) {
    Json out = Json::array();
    for (const char* text : texts) out.push(text);
    return out;
  };
  return Json::object({{"verbs", list(verbs)}, {"apiGroups", list(groups)}, {"resources", list(resources)}});
}

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

}  // namespace

Result<User> authenticate(const http::Request& request, const std::vector<TokenUser>& tokens) {
  User user;
  if (!request.peer.common_name.empty()) {
    user.name = request.peer.common_name;
    user.groups = request.peer.organizations;
  } else {
    const std::string_view header = http::find(request.headers, "Authorization");
    constexpr std::string_view bearer = "bearer ";
    bool is_bearer = header.size() > bearer.size();
    for (std::size_t i = 0; is_bearer && i < bearer.size(); ++i) is_bearer = (header[i] | 0x20) == bearer[i];
    if (!is_bearer) return fail(Code::Unauthorized, "Unauthorized");
    const std::string hash = sha256(trim(header.substr(bearer.size())));
    const TokenUser* found = nullptr;
    for (const TokenUser& token : tokens) {  // all of them, each in constant time: the time says nothing about which one came close
      if (equal_in_constant_time(token.token_sha256, hash)) found = &token;
    }
    if (found == nullptr) return fail(Code::Unauthorized, "Unauthorized");
    user.name = found->name;
    user.groups = found->groups;
  }
  if (!user.in("system:authenticated")) user.groups.emplace_back("system:authenticated");
  return user;
}

Verdict authorize(const User& user, const Attributes& attributes, const NodeFacts& facts) {
  if (user.in(masters_group)) return {true, ""};
  if (!attributes.resource_request) {
    const bool read = attributes.verb == "get";
    for (const std::string_view open : {"/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz"}) {
      const std::string_view path = attributes.path;
      if (read && path.substr(0, open.size()) == open && (path.size() == open.size() || path[open.size()] == '/')) return {true, ""};
    }
    return {false, ""};
  }
  if (is_review(attributes)) return {true, ""};
  if (const std::string node = user.node(); !node.empty()) return authorize_node(node, attributes, facts);
  return {false, ""};
}

kube::Json rules_of(const User& user) {
  Json resources = Json::array(), paths = Json::array();
  resources.push(rule({"create"}, {"authorization.k8s.io"}, {"selfsubjectaccessreviews", "selfsubjectrulesreviews"}));
  resources.push(rule({"create"}, {"authentication.k8s.io"}, {"selfsubjectreviews"}));
  Json open = Json::object({{"verbs", Json::array({"get"})}});
  open.set("nonResourceURLs", Json::array({"/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version", "/healthz", "/livez", "/readyz"}));
  paths.push(std::move(open));
  if (user.in(masters_group)) {
    resources.push(rule({"*"}, {"*"}, {"*"}));
    paths.push(Json::object({{"verbs", Json::array({"*"})}, {"nonResourceURLs", Json::array({"*"})}}));
  } else if (!user.node().empty()) {
    resources.push(rule({"get", "list", "watch"}, {""}, {"nodes", "pods", "services", "endpoints", "namespaces", "persistentvolumeclaims", "serviceaccounts"}));
    resources.push(rule({"get"}, {""}, {"secrets", "configmaps"}));
    resources.push(rule({"create", "update", "patch"}, {""}, {"nodes", "nodes/status", "pods/status", "events"}));
    resources.push(rule({"delete"}, {""}, {"pods"}));
    resources.push(rule({"get", "list", "watch", "create", "update", "patch", "delete"}, {"coordination.k8s.io"}, {"leases"}));
  }
  Json status = Json::object({{"incomplete", false}});
  status.set("resourceRules", std::move(resources)).set("nonResourceRules", std::move(paths));
  return status;
}

bool pod_uses(const kube::Json& pod, std::string_view resource, std::string_view name) {
  const bool secret = resource == "secrets";
  const Json& spec = pod["spec"];
  for (const char* list : {"containers", "initContainers"}) {
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

}  // namespace fairlead::apiserver
