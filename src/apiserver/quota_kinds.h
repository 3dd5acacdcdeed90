// SPDX-License-Identifier: Apache-2.0
// core/v1 ResourceQuota: what may be in one, and its columns. Pure. What it does: quota_plan.h.
#pragma once
#include <string>
#include <vector>

#include "apiserver/registry.h"
#include "apiserver/validation.h"

namespace fairlead::apiserver {

// Kubernetes' rules, and one of ours: what nothing is ever counted under is refused.
void check_quota(const kube::Json& object, FieldErrors& errors);
std::vector<std::string> quota_warnings(const kube::Json& object);  // that it limits nothing, where that is so and Kubernetes takes it
void check_quota_status(const kube::Json& object, FieldErrors& errors);  // of a write of its status
void check_quota_change(const kube::Json& old, const kube::Json& next, FieldErrors& errors);
std::vector<Column> quota_columns();

}  // namespace fairlead::apiserver
