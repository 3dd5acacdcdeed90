// SPDX-License-Identifier: Apache-2.0
// Any bytes as a request: no reading of a signature may crash, and none may hold that was not made with the secret. Lines: target, headers, an empty one, body.
#include <cstdint>

#include "base/encoding.h"
#include "hyperpod/eks_token.h"
#include "hyperpod/query_protocol.h"
#include "hyperpod/session_token.h"
#include "hyperpod/sigv4.h"

using namespace fairlead;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  // As a token of `aws eks get-token`: the bytes themselves, and what they would be in one.
  (void)hyperpod::read_eks_token(text, "fairlead");
  (void)hyperpod::read_eks_token(std::string(hyperpod::eks_token_prefix) + base64(text), "fairlead");
  http::Request request{.method = size % 2 == 0 ? "POST" : "GET", .target = {}, .headers = {}, .body = {}, .peer = {}};
  const auto end = text.find("\n\n");
  const auto lines = split(text.substr(0, end), '\n');
  auto target = http::parse_target(lines.front());
  if (!target) return 0;
  request.target = std::move(*target);
  for (std::size_t i = 1; i < lines.size(); ++i)
    if (const auto colon = lines[i].find(':'); colon != std::string::npos) request.headers.emplace_back(lines[i].substr(0, colon), lines[i].substr(colon + 1));
  if (end != std::string::npos) request.body = text.substr(end + 2);
  const auto signature = hyperpod::read_signature(request);
  if (signature) {
    if (hyperpod::check_time(*signature, signature->at) && hyperpod::check_signature(*signature, request, "a secret that no fuzzer has")) __builtin_trap();
    hyperpod::canonical_request(*signature, request);
  }
  if (const auto form = hyperpod::read_form(request))
    for (const auto& [name, value] : *form) hyperpod::xml_element("A", value);
  static const hyperpod::SessionSeal seal = *hyperpod::SessionSeal::make({std::string(32, 'k')});
  if (seal.open(text)) __builtin_trap();
  // What is signed here holds, whatever else the request has.
  if (!http::find(request.headers, "host").empty()) {
    const Instant now = *parse_time("2026-11-25T12:00:00Z");
    if (std::erase_if(request.target.query, [](const auto& pair) { return pair.first.starts_with("X-Amz-"); }); true) hyperpod::sign_request(request, {"AKID", "secret", ""}, "fairlead-1", "sagemaker", now);
    const auto own = hyperpod::read_signature(request);
    if (own && hyperpod::check_time(*own, now) && !hyperpod::check_signature(*own, request, "secret") && http::find(request.headers, "x-amz-content-sha256").empty()) __builtin_trap();
  }
  return 0;
}
