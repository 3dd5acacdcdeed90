// SPDX-License-Identifier: Apache-2.0
#include "api/user_roles.h"

#include <string>

#include "api/queue_crds.h"

namespace fairlead::api {
namespace {

using kube::Json;
using Words = std::vector<std::string>;

const Words look{"get", "list", "watch"}, work{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"};

Json list_of(const Words& words) {
  Json out = Json::array();
  for (const std::string& word : words) out.push(word);
  return out;
}
Json rule(std::string_view group, const Words& resources, const Words& verbs) { return Json::object({{"apiGroups", Json::array({Json(std::string(group))})}, {"resources", list_of(resources)}, {"verbs", list_of(verbs)}}); }

Json role(const char* name, const char* added_to, Json rules) {
  Json metadata = Json::object({{"name", name}});
  if (added_to != nullptr) metadata.set("labels", Json::object({{std::string("rbac.authorization.k8s.io/aggregate-to-") + added_to, "true"}}));
  return Json::object({{"apiVersion", "rbac.authorization.k8s.io/v1"}, {"kind", "ClusterRole"}, {"metadata", std::move(metadata)}, {"rules", std::move(rules)}});
}

const char* const slurm_group = "slurm.nebius.ai";
const char* const own_group = "fairlead.dev";
const char* const training_group = "sagemaker.amazonaws.com";
const Words training_kinds{"hyperpodpytorchjobs"};
const Words slurm_kinds{"slurmclusters", "nodesets", "activechecks"};

}  // namespace

std::vector<Json> user_roles() {
  std::vector<Json> out;
  // Where a namespace may queue, and what its workloads ask for, is for administrators and controllers to write: others see it.
  out.push_back(role("fairlead-view", "view", Json::array({rule(slurm_group, slurm_kinds, look), rule(queue_group, {"localqueues", "workloads"}, look), rule(own_group, {"inquiries"}, look), rule(training_group, training_kinds, look)})));
  out.push_back(role("fairlead-edit", "edit", Json::array({rule(slurm_group, slurm_kinds, {"create", "delete", "patch", "update"}), rule(own_group, {"inquiries"}, {"create", "delete"}), rule(training_group, training_kinds, {"create", "delete", "patch", "update"})})));
  // No rights over rights, quotas, queues, nodes, or the namespace itself.
  out.push_back(role(team_member_role, nullptr,
                     Json::array({rule("", {"configmaps", "persistentvolumeclaims", "pods", "secrets", "services"}, work),
                                  rule("", {"pods/attach", "pods/exec", "pods/portforward"}, {"create", "get"}),
                                  rule("", {"endpoints", "events", "limitranges", "pods/log", "pods/status", "resourcequotas", "serviceaccounts"}, look),
                                  rule("batch", {"cronjobs", "jobs"}, work), rule("batch", {"cronjobs/status", "jobs/status"}, look), rule(queue_group, {"localqueues", "workloads"}, look),
                                  rule(own_group, {"inquiries"}, {"create", "delete", "get", "list", "watch"}), rule(training_group, training_kinds, work)})));
  out.push_back(role(team_viewer_role, nullptr,
                     Json::array({rule("", {"namespaces", "nodes"}, look), rule("scheduling.k8s.io", {"priorityclasses"}, look), rule("storage.k8s.io", {"storageclasses", "volumeattributesclasses"}, look),
                                  rule(queue_group, {"admissionchecks", "clusterqueues", "cohorts", "resourceflavors", "topologies", "workloadpriorityclasses"}, look), rule(own_group, {"computequotas", "schedulerconfigs", "trainingplans"}, look)})));
  return out;
}

namespace rbac {
const kube::Resource cluster_roles{"rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false};
const kube::Resource role_bindings{"rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", true};
const kube::Resource cluster_role_bindings{"rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false};
}  // namespace rbac

}  // namespace fairlead::api
