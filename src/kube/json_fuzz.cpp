// SPDX-License-Identifier: Apache-2.0
#include "kube/json.h"

namespace {

using namespace fairlead;
using namespace fairlead::kube;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> duplicates;
  const auto value = parse_json(text, {.duplicates = &duplicates});
  if (!value) return 0;
  const auto again = parse_json(print_json(*value));
  INVARIANT(again && *again == *value);
  const auto indented = parse_json(print_json_indented(*value));
  INVARIANT(indented && *indented == *value);
  return 0;
}
