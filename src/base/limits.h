// SPDX-License-Identifier: Apache-2.0
// Lines of limits.conf(5), as the first process of a container takes them on and as the operator checks them before it makes the container.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fairlead {

struct Limit {
  int resource = 0;       // RLIMIT_...
  bool soft = true, hard = true;
  std::uint64_t value = 0;  // in the unit of setrlimit; RLIM_INFINITY: none
  std::string line;       // for messages
};

// Lines for root and for everybody; those of other users and groups are PAM's. Invalid: a line was not understood, and none counts.
Result<std::vector<Limit>> read_limits(std::string_view text);

}  // namespace fairlead
