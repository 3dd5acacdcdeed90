// SPDX-License-Identifier: Apache-2.0
// What processes of a node ask for, and what the face says of it.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "agent/metadata.h"
#include "base/result.h"

using namespace fairlead;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const agent::MetadataTokens tokens("key");
  static const Instant now{};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto cut = std::min(text.find('\n'), text.size());
  const std::string_view first = text.substr(0, cut), rest = text.substr(std::min(cut + 1, text.size()));
  INVARIANT(!tokens.good(first, now));  // nobody guesses a MAC
  if (auto target = http::parse_target(first)) {
    const http::Request request{.method = "GET", .target = std::move(*target), .headers = {{"x-aws-ec2-metadata-token", tokens.make(now, std::chrono::seconds(60))}}, .body = {}, .peer = {}};
    INVARIANT(agent::read_metadata_question(request, false, tokens, now).ask == agent::MetadataAsk::Refused);
    const auto question = agent::read_metadata_question(request, true, tokens, now);
    const auto document = kube::parse_json(rest, {.depth_limit = 8});
    const bool good = document && agent::check_document(*document);
    const auto tree = agent::metadata_tree({.name = "n", .address = "10.0.0.1", .address6 = {}, .architecture = "x86_64"}, good ? std::optional(*document) : std::nullopt, now);
    if (question.ask == agent::MetadataAsk::Look) (void)agent::answer_metadata(tree, question.path);
    for (const auto& [path, value] : tree) INVARIANT(agent::answer_metadata(tree, path).body == value);
  }
  return 0;
}
