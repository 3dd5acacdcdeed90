// SPDX-License-Identifier: Apache-2.0
// Numbers of nodes, names, and whole Clusters as people may write them.
#include "api/cluster.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto numbers = api::NumberSet::parse(text)) {
    const auto again = api::NumberSet::parse(numbers->text());
    if (!again || *again != *numbers) std::abort();
  }
  for (const std::size_t longest : {40u, 63u})
    if (api::plain_label(text, longest).size() > longest) std::abort();
  if (const auto object = kube::parse_json(text)) {
    (void)api::read_cluster(*object);
    (void)api::read_instance(*object);
  }
  return 0;
}
