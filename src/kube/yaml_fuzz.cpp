// SPDX-License-Identifier: Apache-2.0
#include "kube/json.h"

namespace {

using namespace fairlead;
using namespace fairlead::kube;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto documents = parse_yaml(text);
  if (!documents) return 0;
  for (const Json& document : *documents) {
    const auto again = parse_yaml(print_yaml(document));
    INVARIANT(again && again->size() == 1 && again->front() == document);
  }
  return 0;
}
