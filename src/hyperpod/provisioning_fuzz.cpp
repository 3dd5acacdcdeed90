// SPDX-License-Identifier: Apache-2.0
// What lies in a bucket as provisioning_parameters.json: any bytes.
#include <cstdint>
#include <cstdlib>

#include "hyperpod/provisioning.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto roles = fairlead::hyperpod::read_provisioning(text);
  if (!roles) return 0;
  int controllers = 0;
  for (const auto& [group, config] : *roles) {
    const std::string& type = config["nodeType"].string();
    controllers += type == "Controller";
    if (group.empty() || (type == "Compute") != (config["partitionNames"].items().size() == 1)) std::abort();
  }
  if (controllers != 1) std::abort();
  return 0;
}
