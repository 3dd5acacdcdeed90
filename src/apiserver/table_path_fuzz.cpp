// SPDX-License-Identifier: Apache-2.0
// Paths of printer columns come from users' CRDs: parsing never crashes, and a path that parses can be applied to anything.
#include <cstddef>
#include <cstdint>

#include "apiserver/table_path.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto object = *fairlead::kube::parse_json(R"({"a":{"b":[1,{"c":"x"},[true]]},"d":null})");
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto path = fairlead::apiserver::TablePath::parse(text)) {
    for (const auto* found : path->find(object)) INVARIANT(found != nullptr);
  }
  return 0;
}
