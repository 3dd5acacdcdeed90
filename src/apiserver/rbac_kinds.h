// SPDX-License-Identifier: Apache-2.0
// Role, ClusterRole, RoleBinding and ClusterRoleBinding as objects: their names, defaults, rules and columns. Pure.
#pragma once
#include <vector>

#include "apiserver/registry.h"
#include "apiserver/validation.h"

namespace fairlead::apiserver {

namespace rbac_resources {
extern const kube::Resource roles, cluster_roles, role_bindings, cluster_role_bindings;
}

// roleRef.apiGroup and subjects' apiGroup.
void default_rbac(const kube::Resource& resource, kube::Json& object);
void check_rbac(const kube::Resource& resource, const kube::Json& object, FieldErrors& errors);
void check_rbac_change(const kube::Resource& resource, const kube::Json& old, const kube::Json& next, FieldErrors& errors);
// A name in one segment of a path: no "/" and "%", not "." or "..". The message is Kubernetes'; empty: fine.
std::string check_path_segment(std::string_view name);

std::vector<Column> role_columns();          // NAME, CREATED AT
std::vector<Column> role_binding_columns();  // NAME, ROLE, AGE; wide: USERS, GROUPS, SERVICEACCOUNTS

}  // namespace fairlead::apiserver
