// SPDX-License-Identifier: Apache-2.0
// The columns of built-in kinds, as kubectl prints them. Those of a CRD are paths, read by table_path.h.
#pragma once
#include <vector>

#include "apiserver/registry.h"

namespace fairlead::apiserver {

std::vector<Column> builtin_columns(const kube::Resource& resource);
std::vector<Column> default_columns();  // NAME and AGE
Column name_column();
Column age_column();

}  // namespace fairlead::apiserver
