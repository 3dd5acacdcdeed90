// SPDX-License-Identifier: Apache-2.0
// Jobs, EndpointSlices, budgets, network policies, StorageClasses and PersistentVolumes: defaults, rules and columns, as Kubernetes has them. Pure.
#pragma once
#include <vector>

#include "apiserver/registry.h"
#include "apiserver/validation.h"

namespace fairlead::apiserver {

bool is_workload(const kube::Resource& resource);
void default_workload(const kube::Resource& resource, kube::Json& object);
void set_initial_workload(const kube::Resource& resource, kube::Json& object);  // what only the server writes into a new one
void check_workload(const kube::Resource& resource, const kube::Json& object, FieldErrors& errors);
void check_workload_change(const kube::Resource& resource, const kube::Json& old, const kube::Json& next, FieldErrors& errors);
std::vector<Column> workload_columns(const kube::Resource& resource);

// Of a pod template: what the API fills in, without what admission adds to pods alone.
void default_pod_template(kube::Json& pod_template);

}  // namespace fairlead::apiserver
