// SPDX-License-Identifier: Apache-2.0
// What containers have printed, as events of CloudWatch Logs: lines with times, places in a stream, filter patterns. Pure; these read bytes of others (log_events_fuzz.cpp).
#pragma once
#include <compare>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace fairlead::hyperpod {

inline constexpr std::size_t kMostEventBytes = 256 << 10;  // of one event, as in AWS; what is longer is several

// Where a line stands in its stream: its time, and how many lines of that time are before it. The same however often, and from where on, the stream is read.
struct LogPlace {
  Instant time{};
  int nth = 0;  // -1: before all lines of that time
  friend auto operator<=>(const LogPlace&, const LogPlace&) = default;
};
std::string write_place(const LogPlace& place);                     // "1767322800000000000.0"
std::optional<LogPlace> read_place(std::string_view text);

struct LogLine {
  LogPlace place;
  std::string text;  // UTF-8, without the end of the line
};
// Gives lines their places. Time does not go back in a stream: what is told to be earlier than the line before it has that one's time, as has what begins with no time.
class LogLines {
 public:
  using Take = std::function<bool(LogLine&&)>;
  // Bytes as they come, "RFC3339 TEXT\n". False: `take` wants no more.
  bool add(std::string_view piece, const Take& take);
  bool end(const Take& take);  // of one body: what stands without an end of line is a line
  bool give(Instant time, std::string text, const Take& take);  // a line that is none of a container
 private:
  bool line(std::string_view text, const Take& take);
  bool give_part(std::string_view text, const Take& take);
  LogPlace last_{Instant::min(), 0};
  std::string open_;
  bool cut_ = false;  // `open_` goes on with a line whose beginning was given
};

// Bytes as valid UTF-8: what is none becomes U+FFFD.
std::string as_utf8(std::string_view bytes);

// Terms: all of `all`, one of `any` (if there are some), none of `none`. Case counts; a term may be part of a word.
struct FilterPattern {
  std::vector<std::string> all, any, none;
  bool matches(std::string_view text) const;
};
// ERROR "two words" -debug, or ?ERROR ?WARN. Invalid: patterns of JSON ({...}), of fields ([...]) and regular expressions (%...%), which are not served; ? beside other terms; over 1,024 bytes. Source: docs.aws.amazon.com, "Filter pattern syntax".
Result<FilterPattern> read_filter_pattern(std::string_view text);

}  // namespace fairlead::hyperpod
