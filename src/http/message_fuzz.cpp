// SPDX-License-Identifier: Apache-2.0
// Whatever parse_target accepts can be written again from its parts and then reads the same.
#include <cstdint>

#include "http/message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const auto target = http::parse_target({reinterpret_cast<const char*>(data), size});
  if (!target) return 0;
  std::string again;
  for (const auto& segment : target->segments) again += "/" + http::escape(segment);
  if (again.empty()) again = "/";
  char separator = '?';
  for (const auto& [name, value] : target->query) {
    again += separator + http::escape(name) + "=" + http::escape(value);
    separator = '&';
  }
  const auto second = http::parse_target(again);
  INVARIANT(second && second->segments == target->segments && second->query == target->query);
  return 0;
}
