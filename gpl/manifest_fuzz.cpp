// SPDX-License-Identifier: GPL-3.0-or-later
// Manifests lie on a volume that others may write to; merged files are people's own.
#include <cstdint>
#include <string_view>

#include "manifest.h"
#include "records.h"
#include "replay.h"

using namespace fairlead;
using namespace fairlead::companion;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (auto read = parse_manifest(text)) {
    auto again = parse_manifest(print_manifest(*read));
    INVARIANT(again && *again == *read);
    INVARIANT(plan_replay(*read, *read, {}) == ReplayPlan{});
  }
  // Three texts, cut at null bytes.
  const auto one = text.find('\0'), two = one == text.npos ? one : text.find('\0', one + 1);
  if (two == text.npos) return 0;
  const std::string base(text.substr(0, one)), mine(text.substr(one + 1, two - one - 1)), theirs(text.substr(two + 1));
  for (const auto kind : {Records::Named, Records::Lines, Records::Stanzas}) {
    (void)merge_records(kind, base, mine, theirs);
    INVARIANT(merge_records(kind, mine, mine, theirs).carried.empty());
  }
  return 0;
}
