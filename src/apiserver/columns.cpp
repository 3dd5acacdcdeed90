// SPDX-License-Identifier: Apache-2.0
#include "apiserver/columns.h"

#include "apiserver/admission_priority.h"
#include "apiserver/kinds/kinds.h"
#include "apiserver/kinds/resources.h"
#include "apiserver/policy_kinds.h"
#include "apiserver/quota_kinds.h"
#include "apiserver/rbac_kinds.h"
#include "apiserver/workload_kinds.h"

namespace fairlead::apiserver {

using kube::Json;

Column name_column() {
  return {.name = "Name", .format = "name", .description = "Name must be unique within a namespace.", .cell = [](const Json& object, Instant) { return Json(kube::name_of(object)); }};
}

Column age_column() {
  return {.name = "Age", .description = "Time since creation.", .cell = [](const Json& object, Instant now) {
            const auto time = parse_time(object["metadata"]["creationTimestamp"].string());
            return Json(time ? print_age(now - *time) : std::string("<unknown>"));
          }};
}

std::vector<Column> default_columns() {
  Column age = age_column();
  age.name = "Age";
  return {name_column(), std::move(age)};
}

std::vector<Column> builtin_columns(const kube::Resource& resource) {
  namespace r = kube::resources;
  const auto computed = [](std::string name, std::function<Json(const Json&)> cell, int priority = 0, std::string type = "string") {
    return Column{.name = std::move(name), .type = std::move(type), .priority = priority, .cell = [cell = std::move(cell)](const Json& object, Instant) { return cell(object); }};
  };
  const auto count = [](const Json& map) { return static_cast<std::int64_t>(map.members().size()); };
  const std::string& plural = resource.plural;
  if (is_workload(resource)) return workload_columns(resource);
  if (resource.group == rbac_resources::roles.group) return resource.kind.ends_with("Binding") ? role_binding_columns() : role_columns();
  if (resource.group == priority_classes.group) return priority_class_columns();
  if (is_policy_kind(resource)) return resource == r::admission_policies ? policy_columns() : policy_binding_columns();
  if (plural == r::pods.plural) return pod_columns();
  if (plural == r::nodes.plural) return node_columns();
  if (plural == r::claims.plural) return claim_columns();
  if (plural == r::services.plural) return service_columns();
  if (plural == r::events.plural) return event_columns();
  if (plural == r::namespaces.plural) return {name_column(), computed("Status", [](const Json& o) { return o["status"]["phase"]; }), age_column()};
  if (plural == r::config_maps.plural)
    return {name_column(), computed("Data", [count](const Json& o) { return Json(count(o["data"]) + count(o["binaryData"])); }), age_column()};
  if (plural == r::secrets.plural)
    return {name_column(), computed("Type", [](const Json& o) { return o["type"]; }), computed("Data", [count](const Json& o) { return Json(count(o["data"])); }), age_column()};
  if (plural == r::service_accounts.plural)
    return {name_column(), computed("Secrets", [](const Json& o) { return Json(static_cast<std::int64_t>(o["secrets"].items().size())); }), age_column()};
  if (workloads::is(resource, workloads::quotas)) return quota_columns();
  if (plural == r::leases.plural) return {name_column(), computed("Holder", [](const Json& o) { return o["spec"]["holderIdentity"]; }), age_column()};
  if (plural == r::crds.plural) return {name_column(), computed("Created At", [](const Json& o) { return o["metadata"]["creationTimestamp"]; }, 0, "date")};
  return default_columns();
}

}  // namespace fairlead::apiserver
