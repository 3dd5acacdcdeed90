// SPDX-License-Identifier: Apache-2.0
// What `fairlead policy simulate` shows of iam::simulate's views. Pure.
#pragma once
#include <string>

#include "cli/text.h"
#include "kube/json.h"

namespace fairlead::cli {

// The decision first, its reason, then a line for each statement: those that apply are marked.
std::string draw_simulation(const kube::Json& view, const Look& look);

}  // namespace fairlead::cli
