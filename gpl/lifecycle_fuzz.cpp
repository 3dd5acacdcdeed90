// SPDX-License-Identifier: GPL-3.0-or-later
// The list of a cluster's scripts, and what a script printed: any bytes.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/encoding.h"
#include "lifecycle.h"

using namespace fairlead;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto files = companion::read_manifest(text))
    for (const auto& file : *files) INVARIANT(!file.path.empty() && file.path.front() != '/' && ("/" + file.path + "/").find("/../") == std::string::npos);
  const std::string told = companion::last_lines(text, 500);
  INVARIANT(told.size() <= 504);
  INVARIANT(companion::last_lines(told, 600) == std::string(trim(told)));
  return 0;
}
