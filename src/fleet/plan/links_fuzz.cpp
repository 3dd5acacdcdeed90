// SPDX-License-Identifier: Apache-2.0
// What pods say of links, each of three: any bytes. Nobody is condemned by what is said of one alone, and all are judged.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fleet/plan/links.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::fleet;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> members{"i-0", "i-1", "i-2"};
  std::map<std::string, LinkWords> told;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto peers = link_peers(members, members[i]);
    told[members[i]] = read_link_words(text.substr(size * i / 3, size * (i + 1) / 3 - size * i / 3), peers);
    if (told[members[i]].size() != peers.size()) std::abort();
  }
  int condemned = 0;
  for (const std::string& member : members) {
    const LinkVerdict verdict = judge_links(told, member);
    condemned += verdict.kind == LinkVerdict::Kind::Faulty;
    if (verdict.kind == LinkVerdict::Kind::Alone || verdict.words.size() > 8192) std::abort();
  }
  if (condemned > 1) std::abort();
  return 0;
}
