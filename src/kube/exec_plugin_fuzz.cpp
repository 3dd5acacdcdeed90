// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "kube/exec_plugin.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)fairlead::kube::parse_exec_credential({reinterpret_cast<const char*>(data), size}, "client.authentication.k8s.io/v1").has_value();
  return 0;
}
