// SPDX-License-Identifier: Apache-2.0
#include "cel/cel_duration.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "cel/cel_node.h"

namespace fairlead::cel {

Result<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  const std::string whole(text);
  const auto bad = [&] { return wrong(fmt::format("invalid duration \"{}\"", whole.substr(0, 64))); };
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text == "0") return std::chrono::nanoseconds(0);
  if (text.empty()) return bad();
  __int128 sum = 0;
  while (!text.empty()) {
    __int128 number = 0, scale = 1;
    bool digits = false, point = false;
    while (!text.empty() && ((text.front() >= '0' && text.front() <= '9') || (text.front() == '.' && !point))) {
      if (text.front() == '.') {
        point = true;
      } else if (scale < 1'000'000'000'000) {  // further digits of a fraction do not count
        digits = true;
        number = number * 10 + (text.front() - '0');
        if (number > INT64_MAX * __int128{1'000'000}) return bad();
        if (point) scale *= 10;
      }
      text.remove_prefix(1);
    }
    if (!digits) return bad();
    std::int64_t unit = 0;
    for (const auto& [name, size] : {std::pair<std::string_view, std::int64_t>{"ns", 1}, {"us", 1'000}, {"\u00b5s", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}, {"m", 60'000'000'000}, {"h", 3'600'000'000'000}})
      if (text.starts_with(name)) {
        unit = size;
        text.remove_prefix(name.size());
        break;
      }
    if (unit == 0) return bad();
    if (number > (INT64_MAX * __int128{1'000'000}) / unit * scale) return bad();
    sum += number * unit / scale;
    if (sum > INT64_MAX) return bad();
  }
  return std::chrono::nanoseconds(static_cast<std::int64_t>(negative ? -sum : sum));
}

std::string print_seconds(std::chrono::nanoseconds duration) {
  const std::int64_t all = duration.count();
  const std::uint64_t size = all < 0 ? 0 - static_cast<std::uint64_t>(all) : static_cast<std::uint64_t>(all);
  std::string out = fmt::format("{}{}", all < 0 ? "-" : "", size / 1'000'000'000);
  if (const std::uint64_t rest = size % 1'000'000'000; rest != 0) {
    out += fmt::format(".{:09d}", rest);
    while (out.back() == '0') out.pop_back();
  }
  return out + "s";
}

}  // namespace fairlead::cel
