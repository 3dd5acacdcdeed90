// SPDX-License-Identifier: Apache-2.0
#include "apiserver/rbac_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "apiserver/admission_priority.h"
#include "apiserver/rbac.h"
#include "apiserver/rbac_kinds.h"
#include "base/encoding.h"
#include "base/log.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr const char* autoupdate = "rbac.authorization.kubernetes.io/autoupdate";
const std::string read = "get,list,watch", write = "create,delete,deletecollection,patch,update";

// "VERBS|GROUPS|RESOURCES" with commas; of paths "VERBS|/PATH,...". An empty group is written "core".
Json rule(const std::string& text) {
  const std::vector<std::string> parts = split(text, '|');
  const auto list = [](const std::string& joined) {
    Json out = Json::array();
    for (std::string& one : split(joined, ',')) out.push(one == "core" ? std::string() : std::move(one));
    return out;
  };
  if (parts.size() == 2) return Json::object({{"nonResourceURLs", list(parts[1])}, {"verbs", list(parts[0])}});
  return Json::object({{"apiGroups", list(parts[1])}, {"resources", list(parts[2])}, {"verbs", list(parts[0])}});
}

Json metadata(const std::string& name, const std::string& aggregate_to) {
  Json labels = Json::object({{"kubernetes.io/bootstrapping", "rbac-defaults"}});
  if (!aggregate_to.empty()) labels.set("rbac.authorization.k8s.io/aggregate-to-" + aggregate_to, "true");
  return Json::object({{"name", name}, {"labels", std::move(labels)}, {"annotations", Json::object({{autoupdate, "true"}})}});
}

Json role(const std::string& name, const std::vector<std::string>& rules, const std::string& aggregate_to = "") {
  Json out = Json::object({{"metadata", metadata(name, aggregate_to)}, {"rules", Json::array()}});
  for (const std::string& text : rules) out.child("rules").push(rule(text));
  return out;
}

Json aggregated_role(const std::string& name, const std::string& aggregate_to = "") {
  Json labels = Json::object({{"rbac.authorization.k8s.io/aggregate-to-" + name, "true"}});
  Json selectors = Json::array();
  selectors.push(Json::object({{"matchLabels", std::move(labels)}}));
  Json out = Json::object({{"metadata", metadata(name, aggregate_to)}, {"rules", Json::array()}});
  out.set("aggregationRule", Json::object({{"clusterRoleSelectors", std::move(selectors)}}));
  return out;
}

std::vector<std::string> view_rules() {
  return {read + "|core|configmaps,endpoints,persistentvolumeclaims,persistentvolumeclaims/status,pods,replicationcontrollers,replicationcontrollers/scale,serviceaccounts,services,services/status",
          read + "|core|bindings,events,limitranges,namespaces/status,pods/log,pods/status,replicationcontrollers/status,resourcequotas,resourcequotas/status",
          read + "|core|namespaces",
          read + "|discovery.k8s.io|endpointslices",
          read + "|apps|controllerrevisions,daemonsets,daemonsets/status,deployments,deployments/scale,deployments/status,replicasets,replicasets/scale,replicasets/status,statefulsets,"
                 "statefulsets/scale,statefulsets/status",
          read + "|autoscaling|horizontalpodautoscalers,horizontalpodautoscalers/status",
          read + "|batch|cronjobs,cronjobs/status,jobs,jobs/status",
          read + "|policy|poddisruptionbudgets,poddisruptionbudgets/status",
          read + "|networking.k8s.io|ingresses,ingresses/status,networkpolicies"};
}

std::vector<std::string> edit_rules() {
  return {read + "|core|pods/attach,pods/exec,pods/portforward,pods/proxy,secrets,services/proxy",
          "impersonate|core|serviceaccounts",
          write + "|core|pods,pods/attach,pods/exec,pods/portforward,pods/proxy",
          "create|core|pods/eviction",
          write + "|core|configmaps,events,persistentvolumeclaims,replicationcontrollers,replicationcontrollers/scale,secrets,serviceaccounts,services,services/proxy",
          "create|core|serviceaccounts/token",
          write + "|apps|daemonsets,deployments,deployments/rollback,deployments/scale,replicasets,replicasets/scale,statefulsets,statefulsets/scale",
          write + "|autoscaling|horizontalpodautoscalers",
          write + "|batch|cronjobs,jobs",
          write + "|policy|poddisruptionbudgets",
          write + "|networking.k8s.io|ingresses,networkpolicies",
          write + "," + read + "|coordination.k8s.io|leases"};
}

Json binding(const std::string& name, const std::vector<std::string>& groups) {
  Json subjects = Json::array();
  for (const std::string& group : groups) subjects.push(Json::object({{"kind", "Group"}, {"apiGroup", rbac_group}, {"name", group}}));
  Json out = Json::object({{"metadata", metadata(name, "")}, {"subjects", std::move(subjects)}});
  out.set("roleRef", Json::object({{"apiGroup", rbac_group}, {"kind", "ClusterRole"}, {"name", name}}));
  return out;
}

bool untouchable(const Json& current) { return current["metadata"]["annotations"][autoupdate].string() == "false"; }

// Adds the members of a map that are not there.
bool add_missing(Json& object, const Json& wanted, const char* map) {
  bool changed = false;
  for (const auto& [key, value] : wanted["metadata"][map].members()) {
    Json& have = object.child("metadata").child(map);
    if (!have.is_object()) have = Json::object();
    if (have.has(key)) continue;
    have.set(key, value);
    changed = true;
  }
  return changed;
}

bool add_missing_items(Json& object, const Json& wanted, const char* list) {
  bool changed = false;
  for (const Json& item : wanted.items()) {
    Json& have = object.child(list);
    if (!have.is_array()) have = Json::array();
    if (std::find(have.items().begin(), have.items().end(), item) != have.items().end()) continue;
    have.push(item);
    changed = true;
  }
  return changed;
}

// Writes that were begun together and are waited for together: one commit, not seventy.
class Together {
 public:
  Reply reply(std::string doing) {
    const std::scoped_lock lock(mutex_);
    ++open_;
    return [this, doing = std::move(doing)](Result<Written> result) {
      const std::scoped_lock inside(mutex_);
      if (!result && result.error().code != Code::Exists && result.error().code != Code::Conflict && !failed_) failed_ = std::move(result.error()).in(doing);
      if (--open_ == 0) done_.notify_all();
    };
  }
  Result<void> wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return open_ == 0; });
    if (failed_) return std::unexpected(std::move(*failed_));
    return {};
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  std::optional<Error> failed_;
  int open_ = 0;
};

void reconcile(Registry& registry, const kube::Resource& resource, const std::vector<Json>& all, Together& together,
               const std::function<std::optional<Json>(const Json& current, const Json& wanted)>& decide) {
  const auto kind = registry.kinds()->find(resource.group, resource.version, resource.plural);
  INVARIANT(kind);
  const WriteContext context{.user = "system:apiserver"};
  for (const Json& wanted : all) {
    const std::string& name = kube::name_of(wanted);
    const auto current = registry.get(*kind, {"", name});
    if (!current) {
      registry.create(context, *kind, "", wanted, together.reply("make " + name));
      continue;
    }
    const auto parsed = kube::parse_json(*current->bytes);
    auto next = parsed ? decide(*parsed, wanted) : std::nullopt;
    if (next) registry.update(context, *kind, {"", name}, "", std::move(*next), together.reply("bring up to date " + name));
  }
}

}  // namespace

std::vector<Json> default_cluster_roles() {
  std::vector<Json> out;
  out.push_back(role("cluster-admin", {"*|*|*", "*|*"}));
  out.push_back(role("system:discovery", {"get|/api,/api/*,/apis,/apis/*,/healthz,/livez,/openapi,/openapi/*,/readyz,/version,/version/"}));
  out.push_back(role("system:monitoring", {"get|/healthz,/healthz/*,/livez,/livez/*,/metrics,/metrics/slis,/readyz,/readyz/*"}));
  out.push_back(role("system:basic-user", {"create|authorization.k8s.io|selfsubjectaccessreviews,selfsubjectrulesreviews", "create|authentication.k8s.io|selfsubjectreviews"}));
  out.push_back(role("system:public-info-viewer", {"get|/healthz,/livez,/readyz,/version,/version/"}));
  out.push_back(role("system:auth-delegator", {"create|authentication.k8s.io|tokenreviews", "create|authorization.k8s.io|subjectaccessreviews"}));
  out.push_back(role("system:service-account-issuer-discovery", {"get|/.well-known/openid-configuration,/.well-known/openid-configuration/,/openid/v1/jwks,/openid/v1/jwks/"}));
  out.push_back(aggregated_role("admin"));
  out.push_back(aggregated_role("edit", "admin"));
  out.push_back(aggregated_role("view", "edit"));
  out.push_back(role("system:aggregate-to-admin", {"create|authorization.k8s.io|localsubjectaccessreviews", write + "," + read + "|rbac.authorization.k8s.io|rolebindings,roles"}, "admin"));
  out.push_back(role("system:aggregate-to-edit", edit_rules(), "edit"));
  out.push_back(role("system:aggregate-to-view", view_rules(), "view"));
  return out;
}

std::vector<Json> default_cluster_role_bindings() {
  const std::string everybody(authenticated_group);
  return {binding("cluster-admin", {std::string(masters_group)}),
          binding("system:discovery", {everybody}),
          binding("system:monitoring", {"system:monitoring"}),
          binding("system:basic-user", {everybody}),
          binding("system:public-info-viewer", {everybody, std::string(unauthenticated_group)}),
          binding("system:service-account-issuer-discovery", {std::string(service_accounts_group)})};
}

std::optional<Json> reconciled_role(const Json& current, const Json& wanted) {
  if (untouchable(current)) return std::nullopt;
  Json next = current;
  bool changed = add_missing(next, wanted, "labels");
  changed = add_missing(next, wanted, "annotations") || changed;
  const Rules owned = parse_rules(current["rules"]);
  for (const Json& one : wanted["rules"].items()) {
    if (not_covered(owned, parse_rules(Json::array({one}))).empty()) continue;
    Json& rules = next.child("rules");
    if (!rules.is_array()) rules = Json::array();
    rules.push(one);
    changed = true;
  }
  if (wanted["aggregationRule"].is_object()) {
    Json& aggregation = next.child("aggregationRule");
    if (!aggregation.is_object()) aggregation = Json::object();
    changed = add_missing_items(aggregation, wanted["aggregationRule"]["clusterRoleSelectors"], "clusterRoleSelectors") || changed;
  }
  return changed ? std::optional(std::move(next)) : std::nullopt;
}

std::optional<Json> reconciled_binding(const Json& current, const Json& wanted) {
  if (untouchable(current) || !(current["roleRef"] == wanted["roleRef"])) return std::nullopt;
  Json next = current;
  bool changed = add_missing(next, wanted, "labels");
  changed = add_missing(next, wanted, "annotations") || changed;
  changed = add_missing_items(next, wanted["subjects"], "subjects") || changed;
  return changed ? std::optional(std::move(next)) : std::nullopt;
}

Json aggregated_rules(const Json& role, const std::vector<Json>& all) {
  std::vector<const Json*> chosen;
  for (const Json& selector : role["aggregationRule"]["clusterRoleSelectors"].items()) {
    const auto parsed = kube::LabelSelector::from_object(selector);
    if (!parsed) continue;
    for (const Json& one : all) {
      const bool fresh = std::find(chosen.begin(), chosen.end(), &one) == chosen.end();
      if (fresh && kube::name_of(one) != kube::name_of(role) && parsed->matches(one["metadata"]["labels"])) chosen.push_back(&one);
    }
  }
  std::sort(chosen.begin(), chosen.end(), [](const Json* a, const Json* b) { return kube::name_of(*a) < kube::name_of(*b); });
  Json out = Json::array();
  for (const Json* one : chosen) {
    for (const Json& rule_of_one : (*one)["rules"].items()) {
      if (std::find(out.items().begin(), out.items().end(), rule_of_one) == out.items().end()) out.push(rule_of_one);
    }
  }
  return out;
}

Result<void> reconcile_default_objects(Registry& registry) {
  Together together;
  reconcile(registry, rbac_resources::cluster_roles, default_cluster_roles(), together, reconciled_role);
  reconcile(registry, rbac_resources::cluster_role_bindings, default_cluster_role_bindings(), together, reconciled_binding);
  reconcile(registry, priority_classes, system_priority_classes(), together, [](const Json&, const Json&) { return std::optional<Json>(); });
  if (auto done = together.wait(); !done) return pass(std::move(done.error()), "default roles");
  return {};
}

}  // namespace fairlead::apiserver
