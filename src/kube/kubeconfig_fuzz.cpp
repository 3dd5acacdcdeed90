// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "kube/kubeconfig.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)fairlead::kube::parse_kubeconfig({reinterpret_cast<const char*>(data), size}, "/nonexistent").has_value();
  return 0;
}
