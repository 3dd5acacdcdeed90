// SPDX-License-Identifier: Apache-2.0
// What a pod may ask for and this node does not do. Said at once and clearly; never ignored.
#pragma once
#include <string>

#include "kube/json.h"

namespace fairlead::node {

// Empty: the pod can be run. Else one sentence that names every field in question.
std::string refusal_of(const kube::Json& pod);

}  // namespace fairlead::node
