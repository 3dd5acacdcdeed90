// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "http/proxy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto at = text.find('\n');
  (void)fairlead::http::parse_proxy(text.substr(0, at)).has_value();
  const std::string rest(at == text.npos ? std::string_view() : text.substr(at + 1));
  (void)fairlead::http::choose_proxy({.http = "p", .https = "p", .none = rest}, true, text.substr(0, at), 443);
  return 0;
}
