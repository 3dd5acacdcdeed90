// SPDX-License-Identifier: Apache-2.0
// JSON Web Tokens (RFC 7519) as Kubernetes' service accounts use them: signed by ES256 or RS256 (RFC 7518), compact form. By OpenSSL.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::apiserver {

std::string base64url(std::string_view bytes);               // RFC 4648 section 5, no padding
Result<std::string> parse_base64url(std::string_view text);  // strict: no padding, no stray bits

// A token taken apart, not verified.
struct JwtParts {
  kube::Json header, claims;
  std::string signature;            // raw bytes
  std::string_view signed_text;     // the first two parts as sent; points into the token
};
// Invalid: not a token in compact form, above 16 KiB, or its header and claims are no JSON objects.
Result<JwtParts> parse_jwt(std::string_view token);

// One key that signs and any number that verify. Immutable, thread-safe.
class TokenKeys {
 public:
  // PEM: the first is a private key (EC P-256 or RSA of 2048 bits or more), the others private or public ones. Invalid: none of these.
  static Result<TokenKeys> make(const std::string& signing_pem, const std::vector<std::string>& verifying_pem = {});

  std::string sign(const kube::Json& claims) const;
  // The claims of a token that one of the keys signed. Unauthorized: malformed, foreign, forged; the algorithm must be that of the key.
  // About 0.1 ms. What the claims say (time, audience) is for the caller.
  Result<kube::Json> verify(std::string_view token) const;
  kube::Json jwks() const;  // RFC 7517: all public keys
  std::vector<std::string> algorithms() const;

 private:
  struct Key;
  std::vector<std::shared_ptr<const Key>> keys_;  // the signing one first
};

Result<std::string> make_token_key();  // a new EC P-256 private key, PEM

}  // namespace fairlead::apiserver
