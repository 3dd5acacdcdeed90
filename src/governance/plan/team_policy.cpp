// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/team_policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "governance/plan/gang_workload.h"
#include "governance/plan/owner_workload.h"
#include "governance/plan/pod_workload.h"

namespace fairlead::governance {

using kube::Json;

namespace {

Json rule(const std::string& group, std::vector<std::string> resources) {
  Json names = Json::array();
  for (std::string& one : resources) names.push(std::move(one));
  return Json::object({{"apiGroups", Json::array({group})}, {"apiVersions", Json::array({"*"})}, {"operations", Json::array({"CREATE", "UPDATE"})}, {"resources", std::move(names)}, {"scope", "Namespaced"}});
}

Json exists(const char* label) { return Json::object({{"key", label}, {"operator", "Exists"}}); }

Json named(const char* name, std::string expression) { return Json::object({{"name", name}, {"expression", std::move(expression)}}); }

std::string has_queue(const char* object) {
  return fmt::format("has({0}.metadata.labels) && '{1}' in {0}.metadata.labels && {0}.metadata.labels['{1}'] != ''", object, kQueueLabel);
}

// A text of CEL.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string has_gate(const char* pod) { return fmt::format("(has({0}.spec.schedulingGates) && {0}.spec.schedulingGates.exists(g, g.name == '{1}'))", pod, kAdmissionGate); }
std::string is_managed(const char* pod) { return fmt::format("(has({0}.metadata.labels) && '{1}' in {0}.metadata.labels)", pod, kManaged); }

// Kinds whose objects were looked at themselves, before their controllers made anything.
std::string looked_at() {
  std::vector<std::string> out{"o.kind == 'Job' && o.apiVersion.startsWith('batch/')", "o.apiVersion.startsWith('fairlead.dev/')", fmt::format("o.apiVersion.startsWith('{}/')", kube::resources::slurm_clusters.group)};
  for (const GangKind& kind : gang_kinds()) out.push_back(fmt::format("o.kind == '{}' && o.apiVersion.startsWith('{}/')", kind.resource.kind, kind.resource.group));
  return fmt::format("({})", fmt::join(out, ") || ("));
}
std::string follows(const char* object) { return fmt::format("(has({0}.metadata.ownerReferences) && {0}.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && ({1})))", object, looked_at()); }

// People, and accounts that do what people tell them, cannot say that they are a controller.
std::string is_controller(const TeamPolicyInput& in) {
  std::vector<std::string> out{"'system:masters' in request.userInfo.groups", "request.userInfo.username == 'system:kube-controller-manager'"};
  if (!in.server.empty()) out.push_back("request.userInfo.username == " + quoted(in.server));
  for (const std::string& space : in.controllers) out.push_back(fmt::format("request.userInfo.username.startsWith({})", quoted("system:serviceaccount:" + space + ":")));
  return fmt::format("{}", fmt::join(out, " || "));
}

}  // namespace

Json team_policy_spec(const TeamPolicyInput& in) {
  Json rules = Json::array({rule("batch", {"jobs"}), rule("", {"pods"})});
  std::set<std::pair<std::string, std::string>> once;
  for (const GangKind& kind : gang_kinds())
    if (once.emplace(kind.resource.group, kind.resource.plural).second) rules.push(rule(kind.resource.group, {kind.resource.plural}));
  Json match = Json::object({{"namespaceSelector", Json::object({{"matchExpressions", Json::array({exists(kQuotaAllocationId), exists(kActivateQuota)})}})}, {"resourceRules", std::move(rules)}});

  Json variables = Json::array();
  variables.push(named("queued", has_queue("object")));
  variables.push(named("controller", is_controller(in)));
  variables.push(named("owned", follows("object")));
  variables.push(named("follows", "variables.controller && variables.owned"));

  const std::string missing = fmt::format("'metadata.labels: {0} is missing: what runs in namespace ' + request.namespace + ' runs under the quota of its team. Add the label {0}: ' + request.namespace + '-localqueue (of a Deployment, a RayCluster and the like, to its pod template)'", kQueueLabel);
  Json validations = Json::array();
  validations.push(Json::object({{"expression", fmt::format("request.operation == 'UPDATE' ? variables.queued || !({}) : variables.queued || variables.follows", has_queue("oldObject"))}, {"messageExpression", missing}}));
  // What is let through for its owner is let through by who made it: an owner that a person writes would take a Job, or a pod that runs, out of its queue.
  validations.push(Json::object({{"expression", fmt::format("variables.controller || !variables.owned || (request.operation == 'UPDATE' && {})", follows("oldObject"))},
                                 {"messageExpression", "'metadata.ownerReferences: ' + request.userInfo.username + ' is no controller of a kind that waits in queues: leave the owner out (controllers are the service accounts of the namespaces in spec.controllerNamespaces of the SchedulerConfig)'"}}));
  validations.push(Json::object({{"expression", fmt::format("request.kind.kind != 'Pod' || request.operation != 'CREATE' || !variables.queued || variables.follows || {}", has_gate("object"))},
                                 {"message", fmt::format("spec.schedulingGates: a pod with a queue waits behind a gate until it is admitted. Add {{name: {}}}", kAdmissionGate)}}));
  validations.push(Json::object({{"expression", fmt::format("request.kind.kind != 'Pod' || request.operation != 'UPDATE' || variables.controller || ((!{} || {}) && (!{} || {}))", has_gate("oldObject"), has_gate("object"), is_managed("oldObject"), is_managed("object"))},
                                 {"message", fmt::format("spec.schedulingGates: {} is lifted when the pod is admitted, and label {} stays with it until then and from then on; delete the pod to take it out of its queue", kAdmissionGate, kManaged)}}));
  if (const std::set<std::string>& classes = in.classes; classes.size() <= most_classes_checked) {
    const auto named_class = [](const char* object) { return fmt::format("(has({0}.metadata.labels) && '{1}' in {0}.metadata.labels ? {0}.metadata.labels['{1}'] : '')", object, kPriorityLabel); };
    std::vector<std::string> known{"''"};
    for (const std::string& one : classes) known.push_back(quoted(one));
    validations.push(Json::object({{"expression", fmt::format("!variables.queued || variables.follows || (request.operation == 'UPDATE' && {} == {}) || {} in [{}]", named_class("object"), named_class("oldObject"), named_class("object"), fmt::join(known, ", "))},
                                   {"message", fmt::format("metadata.labels[{}]: {}", kPriorityLabel, classes.empty() ? "there are no priority classes, all jobs are equal: leave the label out" : fmt::format("there is no such priority class; there are: {}", fmt::join(classes, ", ")))}}));
  }
  return Json::object({{"failurePolicy", "Fail"}, {"matchConstraints", std::move(match)}, {"variables", std::move(variables)}, {"validations", std::move(validations)}});
}

Json team_policy_binding_spec(const std::string& mode) {
  return Json::object({{"policyName", kTeamPolicy}, {"validationActions", mode == "Warn" ? Json::array({"Warn", "Audit"}) : Json::array({"Deny"})}});
}

}  // namespace fairlead::governance
