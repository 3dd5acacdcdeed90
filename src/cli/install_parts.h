// SPDX-License-Identifier: Apache-2.0
// Pieces of manifests that install makes. Pure.
#pragma once
#include <string>
#include <vector>

#include "kube/access.h"
#include "kube/json.h"

namespace fairlead::cli {

// Name, namespace (none: of the cluster), and the marks by which install knows what it made. `program`: app.kubernetes.io/name.
kube::Json part_metadata(const std::string& name, const std::string& space = "", const std::string& program = "fairlead-server");
kube::Json part(const char* api_version, const char* kind, kube::Json metadata);
// ClusterRole and ClusterRoleBinding, or those of one namespace. The account lies in `account_space`.
kube::Json role(const std::string& name, const std::string& space, kube::Json rules);
kube::Json binding(const std::string& name, const std::string& space, const std::string& account, const std::string& account_space);
kube::Json field_env(const char* name, const char* path);
kube::Json health_probe(const char* path);  // of the port named health

}  // namespace fairlead::cli
