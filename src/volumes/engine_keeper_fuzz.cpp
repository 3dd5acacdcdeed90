// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "volumes/engine_keeper.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::volumes;
  if (const auto order = read_order(std::string_view(reinterpret_cast<const char*>(data), size)))
    if (const auto again = read_order(print_order(*order)); !again || *again != *order) std::abort();
  return 0;
}
