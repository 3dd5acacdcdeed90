// SPDX-License-Identifier: Apache-2.0
// Mount tables: paths in them are of whoever mounts.
#include <string>

#include "blocks/block_devices.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const auto all = blocks::parse_mounts(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!all) return 0;
  const blocks::Device device{.path = "/dev/loop3", .major = 7, .minor = 3, .read_only = false};
  for (const auto& one : *all) (void)blocks::shows(one, device);
  return 0;
}
