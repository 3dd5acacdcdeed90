// SPDX-License-Identifier: Apache-2.0
// Targets and chunked bodies of S3 requests, and keys: any bytes.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "hyperpod/s3.h"

using namespace fairlead;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto bytes = hyperpod::read_chunked(text)) INVARIANT(bytes->size() < size);
  if (hyperpod::is_object_key(text)) INVARIANT(("/" + text + "/").find("/../") == std::string::npos && text.front() != '/' && text.find('\0') == std::string::npos);
  if (hyperpod::is_bucket_name(text)) INVARIANT(text.find('/') == std::string::npos && text != "." && text != "..");
  if (auto target = http::parse_target(text))
    for (const char* method : {"GET", "PUT", "HEAD", "DELETE", "POST"}) (void)hyperpod::s3_operation({.method = method, .target = *target, .headers = {}, .body = {}, .peer = {}});
  return 0;
}
