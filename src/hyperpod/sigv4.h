// SPDX-License-Identifier: Apache-2.0
// Signature Version 4 of AWS requests, in headers and in the query. Pure: request, secret and time in, a yes or the error that AWS clients know out.
// Source: docs.aws.amazon.com, "Create a signed AWS API request"; what clients sign and leave out: botocore auth.py. A signature holds for 15 minutes before and after its time (presigned: as long as it says), so
// a request can be sent again in that window, as in AWS: SDKs do that when no answer came.
#pragma once
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "http/message.h"
#include "hyperpod/aws_error.h"

namespace fairlead::hyperpod {

inline constexpr std::chrono::minutes clock_window{15};
inline constexpr std::chrono::hours longest_presigned{24 * 7};

// What a request says of who signed it. Nothing of it is proven before check_signature.
struct Signature {
  std::string key_id;         // of the access key
  std::string date;           // of the scope: "20261125"
  std::string region, service;
  std::string token;          // of temporary credentials; empty: none
  std::vector<std::string> signed_headers;  // lower case, as listed
  std::string value;          // 64 hex digits
  std::string timestamp;      // "20261125T101112Z"
  Instant at;
  bool presigned = false;     // in the query
  std::chrono::seconds expires{};  // presigned
};

// True: the request carries one, good or bad, in either form.
bool is_signed(const http::Request& request);
// MissingAuthenticationTokenException: none. IncompleteSignatureException: not in the form, or a header that has to be signed is not: host, the date, x-amz-target, x-amz-security-token.
Answer<Signature> read_signature(const http::Request& request);
// InvalidSignatureException: outside the window; the text names both times. Presigned: AccessDenied's kin ExpiredTokenException after its end.
Answer<void> check_time(const Signature& signature, Instant now);
// InvalidSignatureException: it was not made with this secret, or not for this request. The text never tells what would have been right. Cost: about 10 hashes, and one over the body. Compares in constant time.
Answer<void> check_signature(const Signature& signature, const http::Request& request, std::string_view secret);

struct Credentials {
  std::string key_id, secret, token;  // token: of temporary ones
};
// Signs as SDKs do: host, content-type and x-amz-* headers; sets x-amz-date and, with a token, x-amz-security-token. The request must have a Host header.
void sign_request(http::Request& request, const Credentials& credentials, std::string_view region, std::string_view service, Instant now);

// What is signed; tests compare it with published vectors.
std::string canonical_request(const Signature& signature, const http::Request& request);
std::string aws_timestamp(Instant time);  // "20261125T101112Z"

}  // namespace fairlead::hyperpod
