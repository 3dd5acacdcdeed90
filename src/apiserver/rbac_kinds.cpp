// SPDX-License-Identifier: Apache-2.0
#include "apiserver/rbac_kinds.h"

#include <fmt/format.h>

#include "apiserver/columns.h"
#include "apiserver/rbac.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

using kube::Json;

namespace rbac_resources {
const kube::Resource roles{"rbac.authorization.k8s.io", "v1", "roles", "Role", true};
const kube::Resource cluster_roles{"rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false};
const kube::Resource role_bindings{"rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", true};
const kube::Resource cluster_role_bindings{"rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false};
}  // namespace rbac_resources

namespace {

bool is_binding(const kube::Resource& resource) { return resource.kind == "RoleBinding" || resource.kind == "ClusterRoleBinding"; }

// As Kubernetes prints such values: []string{"/x"}.
std::string go_strings(const Json& list) {
  std::string out = "[]string{";
  for (const Json& one : list.items()) out.append(out.back() == '{' ? "" : ", ").append(kube::print_json(one));
  return out + "}";
}

void check_rule(const std::string& at, const Json& rule, bool namespaced, FieldErrors& errors) {
  if (rule["verbs"].items().empty()) errors.required(at + ".verbs", "verbs must contain at least one value");
  const bool resources = !rule["apiGroups"].items().empty() || !rule["resources"].items().empty() || !rule["resourceNames"].items().empty();
  if (!rule["nonResourceURLs"].items().empty()) {
    if (namespaced) errors.add(fmt::format("{}.nonResourceURLs: Invalid value: {}: namespaced rules cannot apply to non-resource URLs", at, go_strings(rule["nonResourceURLs"])));
    if (resources) errors.add(fmt::format("{}.nonResourceURLs: Invalid value: {}: rules cannot apply to both regular resources and non-resource URLs", at, go_strings(rule["nonResourceURLs"])));
    return;
  }
  if (rule["apiGroups"].items().empty()) errors.required(at + ".apiGroups", "resource rules must supply at least one api group");
  if (rule["resources"].items().empty()) errors.required(at + ".resources", "resource rules must supply at least one resource");
}

void check_subject(const std::string& at, const Json& subject, bool namespaced, FieldErrors& errors) {
  const std::string &name = subject["name"].string(), &kind = subject["kind"].string(), &group = subject["apiGroup"].string();
  if (name.empty()) errors.required(at + ".name");
  if (kind == "ServiceAccount") {
    if (const auto why = kube::check_dns_subdomain(name); !name.empty() && !why.empty()) errors.invalid(at + ".name", name, why);
    if (!group.empty()) errors.unsupported_value(at + ".apiGroup", group, {""});
    if (!namespaced && subject["namespace"].string().empty()) errors.required(at + ".namespace");
  } else if (kind == "User" || kind == "Group") {
    if (group != rbac_group) errors.unsupported_value(at + ".apiGroup", group, {rbac_group});
  } else {
    errors.unsupported_value(at + ".kind", kind, {"ServiceAccount", "User", "Group"});
  }
}

void check_binding(const Json& object, bool namespaced, FieldErrors& errors) {
  const Json& reference = object["roleRef"];
  if (reference["apiGroup"].string() != rbac_group) errors.unsupported_value("roleRef.apiGroup", reference["apiGroup"].string(), {rbac_group});
  const std::string& kind = reference["kind"].string();
  if (kind != "ClusterRole" && (kind != "Role" || !namespaced)) {
    if (namespaced) errors.unsupported_value("roleRef.kind", kind, {"Role", "ClusterRole"});
    else errors.unsupported_value("roleRef.kind", kind, {"ClusterRole"});
  }
  const std::string& name = reference["name"].string();
  if (name.empty()) errors.required("roleRef.name");
  else if (const auto why = check_path_segment(name); !why.empty()) errors.invalid("roleRef.name", name, why);
  const auto& subjects = object["subjects"].items();
  for (std::size_t i = 0; i < subjects.size(); ++i) check_subject(fmt::format("subjects[{}]", i), subjects[i], namespaced, errors);
}

void check_role(const Json& object, bool namespaced, FieldErrors& errors) {
  const auto& rules = object["rules"].items();
  for (std::size_t i = 0; i < rules.size(); ++i) check_rule(fmt::format("rules[{}]", i), rules[i], namespaced, errors);
  const Json& aggregation = object["aggregationRule"];
  if (!aggregation.is_object()) return;
  const auto& selectors = aggregation["clusterRoleSelectors"].items();
  if (selectors.empty()) errors.required("aggregationRule.clusterRoleSelectors", "at least one clusterRoleSelector required if aggregationRule is non-nil");
  for (std::size_t i = 0; i < selectors.size(); ++i) {
    if (const auto selector = kube::LabelSelector::from_object(selectors[i]); !selector)
      errors.invalid(fmt::format("aggregationRule.clusterRoleSelectors[{}]", i), selectors[i], selector.error().message);
  }
}

std::string subjects_of(const Json& binding, std::string_view kind) {
  std::string out;
  for (const Json& subject : binding["subjects"].items()) {
    if (subject["kind"].string() != kind) continue;
    if (!out.empty()) out += ", ";
    if (kind == "ServiceAccount") out += subject["namespace"].string() + "/";
    out += subject["name"].string();
  }
  return out;
}

}  // namespace

std::string check_path_segment(std::string_view name) {
  if (name == "." || name == "..") return fmt::format("may not be '{}'", name);
  for (const char c : {'/', '%'}) {
    if (name.find(c) != std::string_view::npos) return fmt::format("may not contain '{}'", c);
  }
  return {};
}

void default_rbac(const kube::Resource& resource, Json& object) {
  if (!is_binding(resource)) {
    if (Json* rules = object.find("rules"); rules == nullptr) object.set("rules", nullptr);  // Kubernetes' own form: the member is always there
    return;
  }
  const auto fill = [](Json& item, bool needed) {
    if (needed && item.is_object() && item["apiGroup"].string().empty()) item.set("apiGroup", rbac_group);
  };
  if (Json* reference = object.find("roleRef")) fill(*reference, true);
  Json* subjects = object.find("subjects");
  if (subjects == nullptr || !subjects->is_array()) return;
  for (Json& subject : subjects->items()) {
    const std::string& kind = subject["kind"].string();
    fill(subject, kind == "User" || kind == "Group");
  }
}

void check_rbac(const kube::Resource& resource, const Json& object, FieldErrors& errors) {
  if (is_binding(resource)) return check_binding(object, resource.namespaced, errors);
  check_role(object, resource.namespaced, errors);
}

void check_rbac_change(const kube::Resource& resource, const Json& old, const Json& next, FieldErrors& errors) {
  const Json& reference = next["roleRef"];
  if (!is_binding(resource) || old["roleRef"] == reference) return;
  const auto text = [&](const char* member) { return kube::print_json(reference[member].string()); };
  errors.add(fmt::format("roleRef: Invalid value: rbac.RoleRef{{APIGroup:{}, Kind:{}, Name:{}}}: cannot change roleRef", text("apiGroup"), text("kind"), text("name")));
}

std::vector<Column> role_columns() {
  return {name_column(), Column{.name = "Created At", .type = "date", .cell = [](const Json& o, Instant) { return o["metadata"]["creationTimestamp"]; }}};
}

std::vector<Column> role_binding_columns() {
  const auto subjects = [](const char* name, const char* kind) {
    return Column{.name = name, .priority = 1, .cell = [kind](const Json& o, Instant) { return Json(subjects_of(o, kind)); }};
  };
  return {name_column(),
          Column{.name = "Role", .cell = [](const Json& o, Instant) { return Json(o["roleRef"]["kind"].string() + "/" + o["roleRef"]["name"].string()); }},
          age_column(),
          subjects("Users", "User"),
          subjects("Groups", "Group"),
          subjects("ServiceAccounts", "ServiceAccount")};
}

}  // namespace fairlead::apiserver
