// SPDX-License-Identifier: Apache-2.0
// scheduling.k8s.io/v1 PriorityClass: the kind, and what a pod gets from it. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "apiserver/registry.h"
#include "apiserver/validation.h"

namespace fairlead::apiserver {

extern const kube::Resource priority_classes;

void default_priority_class(kube::Json& object);
void check_priority_class(const kube::Json& object, FieldErrors& errors);
void check_priority_class_change(const kube::Json& old, const kube::Json& next, FieldErrors& errors);
std::vector<Column> priority_class_columns();
// The two that are always there: system-node-critical and system-cluster-critical.
std::vector<kube::Json> system_priority_classes();

// Fills in spec.priority, preemptionPolicy and (from the global default) priorityClassName of a new pod. `named`: the class that the pod names, `otherwise`: the
// global default; null: there is none. Forbidden: no such class, or the pod says a number of its own.
Result<void> admit_pod_priority(kube::Json& pod, const kube::Json* named, const kube::Json* otherwise);
// Of several global defaults (a race) the one with the lowest value, as Kubernetes chooses.
const kube::Json* choose_default(const std::vector<kube::Json>& classes);

}  // namespace fairlead::apiserver
