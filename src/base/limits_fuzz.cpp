// SPDX-License-Identifier: Apache-2.0
#include "base/limits.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  if (const auto read = read_limits(std::string_view(reinterpret_cast<const char*>(data), size)))
    for (const Limit& limit : *read) INVARIANT(limit.soft || limit.hard);
  return 0;
}
