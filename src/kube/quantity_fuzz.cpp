// SPDX-License-Identifier: Apache-2.0
#include "kube/selector.h"

namespace {

using namespace fairlead;
using namespace fairlead::kube;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto quantity = Quantity::parse(text);
  if (!quantity) return 0;
  const auto again = Quantity::parse(quantity->text());
  INVARIANT(again && *again == *quantity && again->text() == quantity->text());
  INVARIANT(again->value() == quantity->value() && again->milli_value() == quantity->milli_value());
  return 0;
}
