// SPDX-License-Identifier: Apache-2.0
// Which of the given fields of an ActiveCheck have no effect, by its type: sentences for condition FieldsIgnored, in order.
#pragma once
#include <string>
#include <vector>

#include "kube/json.h"

namespace fairlead::api {

std::vector<std::string> ignored_of_check(const kube::Json& check);

}  // namespace fairlead::api
