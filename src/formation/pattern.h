// SPDX-License-Identifier: Apache-2.0
// AllowedPattern: a regular expression over a whole value, in time that grows with the value alone.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"

namespace fairlead::formation {

// Invalid: the expression cannot be used (look-ahead and back-references, which Java knows, are not served).
Result<bool> matches_whole(const std::string& pattern, std::string_view value);

}  // namespace fairlead::formation
