// SPDX-License-Identifier: Apache-2.0
#include "apiserver/kinds/kinds.h"

#include <algorithm>

#include "apiserver/admission_priority.h"
#include "apiserver/columns.h"
#include "apiserver/kinds/resources.h"
#include "apiserver/rbac_kinds.h"

namespace fairlead::apiserver {

namespace {

struct Row {
  const kube::Resource& resource;
  std::string singular;
  std::vector<std::string> short_names, categories;
  bool status = false;
  std::vector<std::string> subresources, selectable_fields;
  std::string stored_as;  // of a further version: which one is stored; empty: this one
};

}  // namespace

std::vector<std::shared_ptr<const Kind>> builtin_kinds() {
  namespace r = kube::resources;
  const std::vector<Row> rows{
      {r::namespaces, "namespace", {"ns"}, {}, true, {"finalize"}, {"status.phase"}},
      {r::nodes, "node", {"no"}, {}, true, {}, {"spec.unschedulable"}},
      {r::pods, "pod", {"po"}, {"all"}, true, {"binding", "eviction", "log", "exec", "attach"},
       {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"}},
      {r::services, "service", {"svc"}, {"all"}, true, {}, {"spec.clusterIP", "spec.type"}},
      {r::config_maps, "configmap", {"cm"}, {}, false, {}, {}},
      {r::secrets, "secret", {}, {}, false, {}, {"type"}},
      {r::service_accounts, "serviceaccount", {"sa"}, {}, false, {"token"}, {}},
      {r::events, "event", {"ev"}, {}, false, {},
       {"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion",
        "involvedObject.fieldPath", "reason", "reportingComponent", "type"}},
      {r::leases, "lease", {}, {}, false, {}, {}},
      {r::claims, "persistentvolumeclaim", {"pvc"}, {}, true, {}, {}},
      {workloads::quotas, "resourcequota", {"quota"}, {}, true, {}, {}},
      {workloads::jobs, "job", {}, {"all"}, true, {}, {"status.successful"}},
      {workloads::endpoint_slices, "endpointslice", {}, {}, false, {}, {}},
      {workloads::budgets, "poddisruptionbudget", {"pdb"}, {}, true, {}, {}},
      {workloads::network_policies, "networkpolicy", {"netpol"}, {}, false, {}, {}},
      {workloads::storage_classes, "storageclass", {"sc"}, {}, false, {}, {}},
      {workloads::attributes_classes, "volumeattributesclass", {"vac"}, {}, false, {}, {}},
      {workloads::attributes_classes_beta, "volumeattributesclass", {"vac"}, {}, false, {}, {}, workloads::attributes_classes.version},
      {workloads::volumes, "persistentvolume", {"pv"}, {}, true, {}, {}},
      {rbac_resources::roles, "role", {}, {}, false, {}, {}},
      {rbac_resources::cluster_roles, "clusterrole", {}, {}, false, {}, {}},
      {rbac_resources::role_bindings, "rolebinding", {}, {}, false, {}, {}},
      {rbac_resources::cluster_role_bindings, "clusterrolebinding", {}, {}, false, {}, {}},
      {priority_classes, "priorityclass", {"pc"}, {}, false, {}, {}},
      {r::admission_policies, "validatingadmissionpolicy", {}, {"api-extensions"}, true, {}, {}},
      {r::admission_policy_bindings, "validatingadmissionpolicybinding", {}, {"api-extensions"}, false, {}, {}},
      {r::crds, "customresourcedefinition", {"crd", "crds"}, {"api-extensions"}, true, {}, {}},
  };
  std::vector<std::shared_ptr<const Kind>> out;
  for (const Row& row : rows) {
    auto kind = std::make_shared<Kind>();
    kind->resource = row.resource;
    kind->list_kind = row.resource.kind + "List";
    kind->singular = row.singular;
    kind->short_names = row.short_names;
    kind->categories = row.categories;
    kind->status_subresource = row.status;
    kind->subresources = row.subresources;
    kind->selectable_fields = row.selectable_fields;
    kind->type = kube::TypeTable::builtin().find_kind(row.resource.api_version(), row.resource.kind);
    kind->columns = builtin_columns(row.resource);
    kind->storage = row.stored_as.empty();
    kind->storage_version = row.stored_as;
    out.push_back(std::move(kind));
  }
  return out;
}

}  // namespace fairlead::apiserver
