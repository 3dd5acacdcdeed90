// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"
#include "cli/move_archive.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), bytes);
  std::size_t size = 0, again = 0;
  if (auto header = fairlead::cli::parse_archive_header(text, size)) {
    INVARIANT(size <= bytes);
    const std::string printed = fairlead::cli::print_archive_header(*header);
    auto back = fairlead::cli::parse_archive_header(printed, again);
    INVARIANT(back && *back == *header && again == printed.size());
  }
  return 0;
}
