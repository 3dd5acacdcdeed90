// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "volumes/luks.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto key = fairlead::volumes::read_key_dump({reinterpret_cast<const char*>(data), size});
  if (key && key->size() != 64) std::abort();
  return 0;
}
