// SPDX-License-Identifier: Apache-2.0
#include "api/instance_volume.h"
#include "base/result.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto order = api::parse_volume_order(text)) {
    INVARIANT(order->instance.find('/') == std::string::npos && order->instance.find('.') == std::string::npos);
    const auto again = api::parse_volume_order(api::print_volume_order(*order));
    INVARIANT(again && *again == *order);
  }
  return 0;
}
