// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "blocks/disk_control.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::blocks;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto request = read_disk_request(text))
    if (const auto again = read_disk_request(print(*request)); !again || *again != *request) std::abort();
  if (const auto status = read_disk_answer(text))
    if (const auto again = read_disk_answer(print(*status)); !again || *again != *status) std::abort();
  return 0;
}
