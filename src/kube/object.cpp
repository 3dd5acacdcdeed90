// SPDX-License-Identifier: Apache-2.0
#include "kube/object.h"

#include <algorithm>

namespace fairlead::kube {

namespace {

std::map<std::string, std::string> string_map(const Json& object) {
  std::map<std::string, std::string> map;
  for (const auto& [key, value] : object.members())
    if (value.is_string()) map.insert_or_assign(key, value.string());
  return map;
}

// The member, made an object or array where it is something else: what outsiders sent must not stop us.
Json& object_child(Json& parent, std::string_view key) {
  Json& child = parent.child(key);
  if (!child.is_object()) child = Json::object();
  return child;
}
Json& array_child(Json& parent, std::string_view key) {
  Json& child = parent.child(key);
  if (!child.is_array()) child = Json::array();
  return child;
}

}  // namespace

std::map<std::string, std::string> labels_of(const Json& object) { return string_map(object["metadata"]["labels"]); }
std::map<std::string, std::string> annotations_of(const Json& object) { return string_map(object["metadata"]["annotations"]); }

bool has_finalizer(const Json& object, std::string_view finalizer) {
  const auto& all = object["metadata"]["finalizers"].items();
  return std::any_of(all.begin(), all.end(), [&](const Json& one) { return one.is_string() && one.string() == finalizer; });
}

void add_finalizer(Json& object, std::string_view finalizer) {
  if (has_finalizer(object, finalizer)) return;
  array_child(object_child(object, "metadata"), "finalizers").push(finalizer);
}

void remove_finalizer(Json& object, std::string_view finalizer) {
  Json* metadata = object.find("metadata");
  Json* all = metadata ? metadata->find("finalizers") : nullptr;
  if (!all || !all->is_array()) return;
  std::erase_if(all->items(), [&](const Json& one) { return one.is_string() && one.string() == finalizer; });
  if (all->items().empty()) metadata->erase("finalizers");
}

Json owner_reference(const Json& owner) {
  return Json::object({{"apiVersion", owner["apiVersion"].string()},
                       {"kind", owner["kind"].string()},
                       {"name", name_of(owner)},
                       {"uid", uid_of(owner)},
                       {"controller", true},
                       {"blockOwnerDeletion", true}});
}

const Json* controller_of(const Json& object) {
  for (const Json& owner : object["metadata"]["ownerReferences"].items())
    if (owner["controller"].boolean()) return &owner;
  return nullptr;
}

bool set_condition(Json& object, const Condition& condition, Instant now) {
  const std::int64_t generation = object["metadata"]["generation"].integer();
  Json& conditions = array_child(object_child(object, "status"), "conditions");
  auto& all = conditions.items();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Json& one) { return one["type"].string() == condition.type; });
  const bool there = found != all.end();
  if (!there) conditions.push(Json::object({{"type", condition.type}}));
  Json& entry = there ? *found : conditions.items().back();

  const bool flipped = entry["status"].string() != condition.status;
  const bool changed = !there || flipped || entry["reason"].string() != condition.reason || entry["message"].string() != condition.message;
  entry.set("status", condition.status);
  if (flipped || entry["lastTransitionTime"].string().empty()) entry.set("lastTransitionTime", print_time(now));
  entry.set("reason", condition.reason);
  entry.set("message", condition.message);
  if (generation > 0) entry.set("observedGeneration", generation);
  return changed;
}

const Json* find_condition(const Json& object, std::string_view type) {
  for (const Json& condition : object["status"]["conditions"].items())
    if (condition["type"].string() == type) return &condition;
  return nullptr;
}

bool condition_is_true(const Json& object, std::string_view type) {
  const Json* condition = find_condition(object, type);
  return condition && (*condition)["status"].string() == "True";
}

namespace resources {
const Resource pods{"", "v1", "pods", "Pod", true};
const Resource nodes{"", "v1", "nodes", "Node", false};
const Resource services{"", "v1", "services", "Service", true};
const Resource config_maps{"", "v1", "configmaps", "ConfigMap", true};
const Resource secrets{"", "v1", "secrets", "Secret", true};
const Resource service_accounts{"", "v1", "serviceaccounts", "ServiceAccount", true};
const Resource events{"", "v1", "events", "Event", true};
const Resource namespaces{"", "v1", "namespaces", "Namespace", false};
const Resource leases{"coordination.k8s.io", "v1", "leases", "Lease", true};
const Resource claims{"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true};
const Resource crds{"apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false};
const Resource admission_policies{"admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", false};
const Resource admission_policy_bindings{"admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", false};
const Resource slurm_clusters{"slurm.nebius.ai", "v1", "slurmclusters", "SlurmCluster", true};
const Resource machines{"fairlead.dev", "v1alpha1", "machines", "Machine", false};
}  // namespace resources

}  // namespace fairlead::kube
