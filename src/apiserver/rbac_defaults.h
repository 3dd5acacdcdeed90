// SPDX-License-Identifier: Apache-2.0
// The roles and bindings that every Kubernetes has from the start, and how they are kept when an administrator changed them. Pure, but for the last function.
#pragma once
#include <optional>
#include <vector>

#include "apiserver/registry.h"
#include "kube/json.h"

namespace fairlead::apiserver {

// Names and rights as of Kubernetes 1.33 (pkg bootstrappolicy), without those of programs that do not run beside the embedded engine.
std::vector<kube::Json> default_cluster_roles();
std::vector<kube::Json> default_cluster_role_bindings();

// What must be written so that `current` (null: there is none) has everything that `wanted` has; empty: nothing. Rules, subjects and labels that were added stay;
// with the annotation rbac.authorization.kubernetes.io/autoupdate: "false" nothing is touched. A binding to another role cannot be changed: empty.
std::optional<kube::Json> reconciled_role(const kube::Json& current, const kube::Json& wanted);
std::optional<kube::Json> reconciled_binding(const kube::Json& current, const kube::Json& wanted);

// The rules of a ClusterRole with an aggregationRule: those of all others that it selects, in order of their names, each once.
kube::Json aggregated_rules(const kube::Json& role, const std::vector<kube::Json>& all);

// Writes the above and the system's priority classes, once at start. Blocks until they are durable.
Result<void> reconcile_default_objects(Registry& registry);

}  // namespace fairlead::apiserver
