// SPDX-License-Identifier: Apache-2.0
// The built-in kinds. To serve another one: a row here, its defaults (defaults.cpp), its rules (validation_kinds.cpp), its columns (columns_*.cpp), a line in
// docs/kubernetes-subset.md, and the controller without which it would be an empty promise.
#pragma once
#include <memory>
#include <vector>

#include "apiserver/registry.h"

namespace fairlead::apiserver {

std::vector<std::shared_ptr<const Kind>> builtin_kinds();

// Computed columns, as kubectl prints them.
std::vector<Column> pod_columns();
std::vector<Column> node_columns();
std::vector<Column> claim_columns();
std::vector<Column> service_columns();
std::vector<Column> event_columns();

}  // namespace fairlead::apiserver
