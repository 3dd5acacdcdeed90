// SPDX-License-Identifier: Apache-2.0
#include "cli/install_parts.h"

#include "cli/install_plan.h"

namespace fairlead::cli {

using kube::Json;

Json part_metadata(const std::string& name, const std::string& space, const std::string& program) {
  Json out = Json::object({{"name", name}});
  if (!space.empty()) out.set("namespace", space);
  out.set("labels", Json::object({{"app.kubernetes.io/name", program}, {kPartOf, "fairlead"}, {kManagedBy, "fairlead"}}));
  out.set("annotations", Json::object({{kVersion, FAIRLEAD_VERSION}}));
  return out;
}

Json part(const char* api_version, const char* kind, Json metadata) { return Json::object({{"apiVersion", api_version}, {"kind", kind}, {"metadata", std::move(metadata)}}); }

namespace {
constexpr const char* kRbac = "rbac.authorization.k8s.io/v1";
}

Json role(const std::string& name, const std::string& space, Json rules) {
  Json out = part(kRbac, space.empty() ? "ClusterRole" : "Role", part_metadata(name, space));
  return out.set("rules", std::move(rules));
}

Json binding(const std::string& name, const std::string& space, const std::string& account, const std::string& account_space) {
  Json out = part(kRbac, space.empty() ? "ClusterRoleBinding" : "RoleBinding", part_metadata(name, space));
  out.set("roleRef", Json::object({{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", space.empty() ? "ClusterRole" : "Role"}, {"name", name}}));
  return out.set("subjects", Json::array({Json::object({{"kind", "ServiceAccount"}, {"name", account}, {"namespace", account_space}})}));
}

Json field_env(const char* name, const char* path) { return Json::object({{"name", name}, {"valueFrom", Json::object({{"fieldRef", Json::object({{"apiVersion", "v1"}, {"fieldPath", path}})}})}}); }

Json health_probe(const char* path) {
  return Json::object({{"httpGet", Json::object({{"path", path}, {"port", "health"}, {"scheme", "HTTP"}})}, {"periodSeconds", 10}, {"timeoutSeconds", 3}});
}

}  // namespace fairlead::cli
