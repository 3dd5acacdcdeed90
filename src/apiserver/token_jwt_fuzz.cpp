// SPDX-License-Identifier: Apache-2.0
// Tokens of anybody: never a crash, and none that we did not sign is taken. What parses, parses the same when written again.
#include <cstdint>

#include "apiserver/token_jwt.h"

using namespace fairlead;
using namespace fairlead::apiserver;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TokenKeys keys = [] {
    auto pem = make_token_key();
    INVARIANT(pem.has_value());
    auto made = TokenKeys::make(*pem);
    INVARIANT(made.has_value());
    return std::move(*made);
  }();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto parts = parse_jwt(text)) {
    const auto again = parse_jwt(std::string(parts->signed_text) + "." + base64url(parts->signature));
    INVARIANT(again && again->claims == parts->claims && again->header == parts->header);
  }
  INVARIANT(!keys.verify(text));
  // The same bytes under a header and with a signature that fit.
  const kube::Json claims = kube::Json::object({{"sub", base64url(text)}});
  const std::string token = keys.sign(claims);
  INVARIANT(keys.verify(token).has_value() || token.size() > 16 * 1024);
  return 0;
}
