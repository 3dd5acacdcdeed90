// SPDX-License-Identifier: Apache-2.0
#include "apiserver/quota_kinds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "apiserver/columns.h"
#include "apiserver/go_text.h"
#include "apiserver/kinds/kinds.h"
#include "apiserver/quota_plan.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

const std::set<std::string_view> standard{"cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.storage", "requests.ephemeral-storage", "limits.cpu", "limits.memory",
                                          "limits.ephemeral-storage", "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "persistentvolumeclaims", "configmaps",
                                          "services.nodeports", "services.loadbalancers"};
const std::set<std::string_view> whole_numbers{"pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps", "persistentvolumeclaims", "services.nodeports",
                                               "services.loadbalancers"};
const std::set<std::string_view> of_pods{"pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"};
constexpr std::array<std::string_view, 5> pod_scopes{"Terminating", "NotTerminating", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity"};
constexpr std::string_view class_scope = "VolumeAttributesClass";

bool is_pages(std::string_view name) { return name.starts_with("hugepages-") || name.starts_with("requests.hugepages-"); }
bool is_standard(std::string_view name) { return standard.contains(name) || is_pages(name); }
bool is_pod_scope(std::string_view scope) { return scope == "BestEffort" || std::find(pod_scopes.begin(), pod_scopes.end(), scope) != pod_scopes.end(); }
bool is_scope(std::string_view scope) { return is_pod_scope(scope) || scope == class_scope; }

// Kubernetes' table, for names that it knows.
bool scope_fits(std::string_view scope, std::string_view name) {
  if (scope == "BestEffort") return name == "pods";
  if (is_pod_scope(scope)) return of_pods.contains(name);
  return scope != class_scope || name == "persistentvolumeclaims" || name == "requests.storage";
}

// Of kinds that have no namespace, and of events, nothing is counted.
const std::set<std::string>& never_counted() {
  static const std::set<std::string> names = [] {
    std::set<std::string> out{"core/events", "core/bindings"};
    for (const auto& kind : builtin_kinds())
      if (!kind->resource.namespaced) out.insert((kind->resource.group.empty() ? std::string("core") : kind->resource.group) + "/" + kind->resource.plural);
    return out;
  }();
  return names;
}

// False: it is none, and told.
bool check_name(const std::string& path, const std::string& name, FieldErrors& errors) {
  // Each complaint by itself, and the name without quotes: it has a type of its own in Go.
  const std::string why = kube::check_label_key(name);
  constexpr std::string_view between = "; ";
  for (std::size_t from = 0; from < why.size();) {
    const std::size_t to = std::min(why.find(between, from), why.size());
    errors.invalid_as(path, name, why.substr(from, to - from));
    from = to + between.size();
  }
  const bool known = name.find('/') != std::string::npos || is_standard(name);
  if (why.empty() && !known && name != "storage") errors.invalid_as(path, name, "must be a standard resource type or fully qualified");
  if (!known) errors.invalid_as(path, name, "must be a standard resource for quota");
  return why.empty() && known;
}

void check_limited(const std::string& path, const std::string& name, const std::set<std::string>& scopes, FieldErrors& errors) {
  if (!check_name(path, name, errors)) return;
  const auto kind = counted_kind(name);
  if (!kind || never_counted().contains(*kind))
    return errors.not_supported_here(path, "nothing is counted under this name; count objects of a namespace with count/RESOURCE.GROUP, what pods ask for with requests.NAME, storage with requests.storage "
                                           "and CLASS.storageclass.storage.k8s.io/requests.storage");
  // Kubernetes takes these and never counts anything.
  for (const std::string& scope : scopes) {
    if (!is_pod_scope(scope) || (is_standard(name) && !scope_fits(scope, name))) continue;  // told as Kubernetes tells it, or in a warning
    if (*kind != "core/pods") errors.not_supported_here(path, fmt::format("the scope {} is about pods alone, so nothing is counted under this name", scope));
  }
}

void check_value(const std::string& path, const std::string& name, const Json& value, FieldErrors& errors) {
  const auto quantity = kube::Quantity::from_json(value);
  if (!quantity) return errors.invalid(path, value, quantity.error().message);
  if (quantity->is_negative()) errors.invalid(path, quantity->text(), "must be greater than or equal to 0");
  const bool extended = name.find('/') != std::string::npos && name.find("kubernetes.io/") == std::string::npos && !name.starts_with("requests.");
  if ((whole_numbers.contains(name) || extended) && !(quantity->whole() == *quantity)) errors.invalid(path, quantity->text(), "must be an integer");
}

std::string go_list(const Json& list, std::string_view type) {
  if (list.items().empty()) return fmt::format("{}(nil)", type);
  std::vector<std::string> out;
  for (const Json& one : list.items()) out.push_back(go_string(one));
  return fmt::format("{}{{{}}}", type, fmt::join(out, ", "));
}

std::string go_selector(const Json& selector) {
  std::vector<std::string> out;
  for (const Json& one : selector["matchExpressions"].items())
    out.push_back(fmt::format("core.ScopedResourceSelectorRequirement{{ScopeName:{}, Operator:{}, Values:{}}}", go_string(one["scopeName"]), go_string(one["operator"]), go_list(one["values"], "[]string")));
  return fmt::format("core.ScopeSelector{{MatchExpressions:[]core.ScopedResourceSelectorRequirement{{{}}}}}", fmt::join(out, ", "));
}

bool conflict(const std::set<std::string>& scopes, const char* one, const char* other) { return scopes.contains(one) && scopes.contains(other); }

void check_pairs(const std::string& path, const std::set<std::string>& scopes, const Json& spec, FieldErrors& errors) {
  for (const auto& [one, other] : {std::pair{"BestEffort", "NotBestEffort"}, std::pair{"Terminating", "NotTerminating"}})
    if (conflict(scopes, one, other)) errors.invalid_as(path, go_list(spec["scopes"], "[]core.ResourceQuotaScope"), "conflicting scopes");
}

std::vector<std::string> names_in_order(const Json& list) {
  std::vector<std::string> names;
  for (const auto& [name, value] : list.members()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}
std::vector<std::string> hard_names(const Json& spec) { return names_in_order(spec["hard"]); }

std::set<std::string> check_scopes(const Json& spec, FieldErrors& errors) {
  const std::string shown = go_list(spec["scopes"], "[]core.ResourceQuotaScope");
  std::set<std::string> scopes;
  for (const Json& one : spec["scopes"].items()) {
    const std::string& scope = one.string();
    if (!is_scope(scope)) errors.invalid_as("spec.scopes", shown, "unsupported scope");
    for (const std::string& name : hard_names(spec))
      if (is_standard(name) && !scope_fits(scope, name)) errors.invalid_as("spec.scopes", shown, "unsupported scope applied to resource");
    scopes.insert(scope);
  }
  check_pairs("spec.scopes", scopes, spec, errors);
  return scopes;
}

std::set<std::string> check_selector(const Json& spec, FieldErrors& errors) {
  const std::string path = "spec.scopeSelector.matchExpressions";
  std::set<std::string> scopes;
  for (const Json& one : spec["scopeSelector"]["matchExpressions"].items()) {
    const std::string &scope = one["scopeName"].string(), &op = one["operator"].string();
    if (!is_scope(scope)) errors.invalid(path + ".scopeName", scope, "unsupported scope");
    for (const std::string& name : hard_names(spec))
      if (is_standard(name) && !scope_fits(scope, name)) errors.invalid_as(path, go_selector(spec["scopeSelector"]), "unsupported scope applied to resource");
    if (is_pod_scope(scope) && scope != "PriorityClass" && op != "Exists")
      errors.invalid(path + ".operator", op,
                     "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "
                     "ResourceQuotaScopeCrossNamespacePodAffinity");
    const bool none = one["values"].items().empty();
    if (op == "In" || op == "NotIn") {
      if (none) errors.required(path + ".values", "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector");
    } else if (op == "Exists" || op == "DoesNotExist") {
      if (!none) errors.invalid_as(path + ".values", go_list(one["values"], "[]string"), "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector");
    } else {
      errors.invalid(path + ".operator", op, "not a valid selector operator");
    }
    scopes.insert(scope);
  }
  check_pairs(path, scopes, spec, errors);
  return scopes;
}

std::string uses(const Json& quota, bool limits) {
  std::map<std::string, std::string> parts;
  for (const auto& [name, hard] : quota["status"]["hard"].members())
    if (name.starts_with("limits.") == limits) parts[name] = fmt::format("{}: {}/{}", name, quota["status"]["used"][name].string_or("0"), hard.string());
  std::string out;
  for (const auto& [name, part] : parts) out.append(out.empty() ? "" : ", ").append(part);
  return out;
}

}  // namespace

void check_quota(const Json& object, FieldErrors& errors) {
  const Json& spec = object["spec"];
  // Scopes first, to tell a name of `hard` what it is told for; in Kubernetes' order in the answer.
  FieldErrors of_scopes;
  std::set<std::string> scopes = check_scopes(spec, of_scopes);
  scopes.merge(check_selector(spec, of_scopes));
  for (const std::string& name : hard_names(spec)) {
    const std::string path = fmt::format("spec.hard[{}]", name);
    check_limited(path, name, scopes, errors);
    check_value(path, name, spec["hard"][name], errors);
  }
  for (const std::string& text : of_scopes.texts()) errors.add(text);
}

void check_quota_status(const Json& object, FieldErrors& errors) {
  for (const char* list : {"hard", "used"}) {
    const Json& amounts = object["status"][list];
    for (const std::string& name : names_in_order(amounts)) {
      const std::string path = fmt::format("status.{}[{}]", list, name);
      check_name(path, name, errors);
      check_value(path, name, amounts[name], errors);
    }
  }
}

void check_quota_change(const Json& old, const Json& next, FieldErrors& errors) {
  const auto set_of = [](const Json& object) {
    std::set<std::string> out;
    for (const Json& one : object["spec"]["scopes"].items()) out.insert(one.string());
    return out;
  };
  if (set_of(old) != set_of(next)) errors.invalid_as("spec.scopes", go_list(next["spec"]["scopes"], "[]core.ResourceQuotaScope"), "field is immutable");
}

std::vector<std::string> quota_warnings(const Json& object) {
  const Json& spec = object["spec"];
  bool named = false;
  for (const Json& one : spec["scopes"].items()) named = named || one.string() == class_scope;
  for (const Json& one : spec["scopeSelector"]["matchExpressions"].items()) named = named || one["scopeName"].string() == class_scope;
  if (!named) return {};
  return {fmt::format("the scope {} is taken as Kubernetes 1.33 takes it without its feature gate: nothing is counted, and this quota limits nothing", class_scope)};
}

std::vector<Column> quota_columns() {
  const auto column = [](const char* name, bool limits) {
    return Column{.name = name, .cell = [limits](const Json& o, Instant) { return Json(uses(o, limits)); }};
  };
  return {name_column(), column("Request", false), column("Limit", true), age_column()};
}

}  // namespace fairlead::apiserver
