// SPDX-License-Identifier: Apache-2.0
#include <string_view>

#include "api/gres_config.h"
#include "base/encoding.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)fairlead::api::check_gres_lines(fairlead::split(text, '\n'));
  return 0;
}
