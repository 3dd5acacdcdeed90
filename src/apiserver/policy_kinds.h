// SPDX-License-Identifier: Apache-2.0
// ValidatingAdmissionPolicy and ValidatingAdmissionPolicyBinding as objects: defaults, complaints in Kubernetes' words, columns (docs/design/047-admission-policies.md). Pure.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "apiserver/registry.h"
#include "apiserver/validation.h"

namespace fairlead::apiserver {

bool is_policy_kind(const kube::Resource& resource);  // either of them

void default_policy(const kube::Resource& resource, kube::Json& object);
void check_policy(const kube::Resource& resource, const kube::Json& object, FieldErrors& errors);

void set_policy_status(kube::Json& policy);  // that its rules count: there is nothing to wait for

std::vector<Column> policy_columns();          // NAME, VALIDATIONS, PARAMKIND, AGE
std::vector<Column> policy_binding_columns();  // NAME, POLICYNAME, PARAMREF, AGE

// The names that expressions of a policy may use: of match conditions, and of the others before the policy's own variables.
std::set<std::string> condition_names(const kube::Json& policy_spec);
std::string variable_name(const std::string& name);  // "variables.NAME", as expressions call it

}  // namespace fairlead::apiserver
