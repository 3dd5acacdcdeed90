// SPDX-License-Identifier: Apache-2.0
// What containers print, in pieces of any size; places and filter patterns: any bytes.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hyperpod/log_events.h"

using namespace fairlead;
using namespace fairlead::hyperpod;

static std::vector<LogLine> read(std::string_view text, std::size_t piece) {
  std::vector<LogLine> out;
  LogLines lines;
  const LogLines::Take take = [&](LogLine&& line) {
    INVARIANT(out.empty() || out.back().place < line.place);
    INVARIANT(line.text.size() <= 3 * kMostEventBytes && as_utf8(line.text) == line.text);
    out.push_back(std::move(line));
    return true;
  };
  for (std::size_t at = 0; at < text.size(); at += piece) lines.add(text.substr(at, piece), take);
  lines.end(take);
  return out;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto whole = read(text, text.size() + 1), parts = read(text, 1 + (size > 0 ? data[0] % 7 : 0));
  INVARIANT(whole.size() == parts.size());
  for (std::size_t i = 0; i < whole.size(); ++i) INVARIANT(whole[i].place == parts[i].place && whole[i].text == parts[i].text);
  if (const auto place = read_place(text)) INVARIANT(read_place(write_place(*place)) == place);
  if (const auto pattern = read_filter_pattern(text)) (void)pattern->matches(text);
  return 0;
}
