// SPDX-License-Identifier: Apache-2.0
// Durations as Go writes them: "1h30m", "-2.5s", "100ms". Invalid: no number, no unit, beyond 292 years.
#pragma once
#include <chrono>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fairlead::cel {

Result<std::chrono::nanoseconds> parse_duration(std::string_view text);
std::string print_seconds(std::chrono::nanoseconds duration);  // "5400s", "0.1s"

}  // namespace fairlead::cel
