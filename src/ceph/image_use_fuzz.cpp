// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "ceph/image_use.h"
#include "ceph/trashed.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::ceph;
  const auto read = read_allowance({reinterpret_cast<const char*>(data), size});
  if (read && read_allowance(print(*read)) != read) std::abort();
  if (const auto trashed = read_trashed({reinterpret_cast<const char*>(data), size}); trashed && trashed->name.size() + 11 > size) std::abort();
  return 0;
}
