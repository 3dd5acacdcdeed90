// SPDX-License-Identifier: Apache-2.0
// What a container answers as its agent: read or refused, within its limits.
#include "training/agents.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  if (const auto said = training::parse_agent_report({reinterpret_cast<const char*>(data), size})) {
    INVARIANT(!training::name(said->state).empty());
    INVARIANT(said->reason.size() <= 1027 && said->message.size() <= 1027 && said->attempt.size() <= 128);
    for (const char c : said->message + said->reason) INVARIANT(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  }
  return 0;
}
