// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <fmt/format.h>
#include <time.h>

#include <cstdio>

namespace fairlead {
namespace {

std::chrono::nanoseconds read_clock(clockid_t id) {
  timespec t{};
  ::clock_gettime(id, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

void digits(char* to, int count, std::int64_t value) {
  for (int i = count - 1; i >= 0; --i, value /= 10) to[i] = static_cast<char>('0' + value % 10);
}

// Objects are full of them, so no formatter is at work. Nanoseconds since 1970 in 64 bits: the year has four digits.
std::string print_utc(Instant time, bool micros) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(std::chrono::floor<std::chrono::microseconds>(time - day));
  std::string out = micros ? "0000-00-00T00:00:00.000000Z" : "0000-00-00T00:00:00Z";
  digits(out.data(), 4, static_cast<int>(date.year()));
  digits(out.data() + 5, 2, static_cast<unsigned>(date.month()));
  digits(out.data() + 8, 2, static_cast<unsigned>(date.day()));
  digits(out.data() + 11, 2, clock.hours().count());
  digits(out.data() + 14, 2, clock.minutes().count());
  digits(out.data() + 17, 2, clock.seconds().count());
  if (micros) digits(out.data() + 20, 6, clock.subseconds().count());
  return out;
}

}  // namespace

Instant SystemClock::now() const { return Instant(read_clock(CLOCK_REALTIME)); }
std::chrono::nanoseconds SystemClock::monotonic() const { return read_clock(CLOCK_BOOTTIME); }

std::string print_time(Instant time) {
  return print_utc(time, false);
}

std::string print_micro_time(Instant time) {
  return print_utc(time, true);
}

Result<Instant> parse_time(std::string_view text) {
  const auto bad = [&] { return fail(Code::Invalid, fmt::format("\"{}\" is not an RFC 3339 time", text.substr(0, 64))); };
  const auto number = [&](std::size_t at, std::size_t count) -> int {
    int value = 0;
    for (std::size_t i = at; i < at + count; ++i) {
      if (i >= text.size() || text[i] < '0' || text[i] > '9') return -1;
      value = value * 10 + (text[i] - '0');
    }
    return value;
  };
  if (text.size() < 20 || text[4] != '-' || text[7] != '-' || (text[10] != 'T' && text[10] != 't') || text[13] != ':' || text[16] != ':') return bad();
  const int year = number(0, 4), month = number(5, 2), day = number(8, 2), hour = number(11, 2), minute = number(14, 2), second = number(17, 2);
  if (year < 0 || hour < 0 || minute < 0 || second < 0 || hour > 23 || minute > 59 || second > 60) return bad();
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month < 0 ? 0 : month)),
                                         std::chrono::day(static_cast<unsigned>(day < 0 ? 0 : day))};
  if (!date.ok()) return bad();
  // Outside 1678-2261 nanoseconds since 1970 do not fit 64 bits.
  if (year < 1700 || year > 2200) return bad();
  std::size_t at = 19;
  std::int64_t nanos = 0;
  if (at < text.size() && text[at] == '.') {
    std::int64_t scale = 100'000'000;
    std::size_t digits = 0;
    for (++at; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at, ++digits) {
      nanos += (text[at] - '0') * scale;
      scale /= 10;
    }
    if (digits == 0) return bad();
  }
  std::chrono::minutes offset{0};
  if (at < text.size() && (text[at] == 'Z' || text[at] == 'z') && at + 1 == text.size()) {
  } else if (at + 6 == text.size() && (text[at] == '+' || text[at] == '-') && text[at + 3] == ':') {
    const int hours = number(at + 1, 2), minutes = number(at + 4, 2);
    if (hours < 0 || minutes < 0 || hours > 23 || minutes > 59) return bad();
    offset = std::chrono::hours(hours) + std::chrono::minutes(minutes);
    if (text[at] == '-') offset = -offset;
  } else {
    return bad();
  }
  return Instant(std::chrono::sys_days(date).time_since_epoch() + std::chrono::hours(hour) + std::chrono::minutes(minute) + std::chrono::seconds(second) - offset +
                 std::chrono::nanoseconds(nanos));
}

std::string print_age(std::chrono::nanoseconds age) {
  const auto s = std::chrono::duration_cast<std::chrono::seconds>(age).count();
  if (s < 0) return "<invalid>";
  const auto m = s / 60, h = m / 60, d = h / 24;
  if (s < 120) return fmt::format("{}s", s);
  if (m < 10) return s % 60 ? fmt::format("{}m{}s", m, s % 60) : fmt::format("{}m", m);
  if (m < 180) return fmt::format("{}m", m);
  if (h < 8) return m % 60 ? fmt::format("{}h{}m", h, m % 60) : fmt::format("{}h", h);
  if (h < 48) return fmt::format("{}h", h);
  if (h < 192) return h % 24 ? fmt::format("{}d{}h", d, h % 24) : fmt::format("{}d", d);
  if (d < 365 * 2) return fmt::format("{}d", d);
  if (d < 365 * 8) return (d / 365 && (d % 365)) ? fmt::format("{}y{}d", d / 365, d % 365) : fmt::format("{}y", d / 365);
  return fmt::format("{}y", d / 365);
}

}  // namespace fairlead
