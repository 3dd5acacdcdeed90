// SPDX-License-Identifier: Apache-2.0
#include "base/cron.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "base/encoding.h"

namespace fairlead {
namespace {

struct Field {
  const char* name;
  int least, most;
  std::string_view names;  // three letters each, the first stands for `least`
};
constexpr Field kFields[] = {{"minute", 0, 59, ""}, {"hour", 0, 23, ""}, {"day of the month", 1, 31, ""}, {"month", 1, 12, "janfebmaraprmayjunjulaugsepoctnovdec"}, {"weekday", 0, 7, "sunmontuewedthufrisat"}};

constexpr std::pair<std::string_view, std::string_view> kShort[] = {{"@hourly", "0 * * * *"}, {"@daily", "0 0 * * *"},    {"@midnight", "0 0 * * *"}, {"@weekly", "0 0 * * 0"},
                                                                    {"@monthly", "0 0 1 * *"}, {"@yearly", "0 0 1 1 *"}, {"@annually", "0 0 1 1 *"}};

std::optional<int> number(std::string_view text, const Field& field) {
  if (text.size() == 3 && !field.names.empty()) {
    std::string lower(text);
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    for (std::size_t at = 0; at < field.names.size(); at += 3)
      if (field.names.substr(at, 3) == lower) return field.least + static_cast<int>(at / 3);
  }
  if (text.empty() || text.size() > 3) return std::nullopt;
  int out = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    out = out * 10 + (c - '0');
  }
  return out;
}

struct Chosen {
  std::bitset<64> values;
  bool open = false;  // one of its parts chooses nothing
};

// One part of a list: RANGE or RANGE/STEP.
Result<void> read_part(std::string_view part, const Field& field, Chosen& out) {
  const auto bad = [&](const char* why) { return fail(Code::Invalid, fmt::format("{} \"{}\": {}", field.name, part, why)); };
  const auto slash = part.find('/');
  const std::string_view range = part.substr(0, slash);
  int step = 1;
  if (slash != part.npos) {
    const auto read = number(part.substr(slash + 1), {"", 0, 0, ""});
    if (!read || *read == 0) return bad("a step is a whole number from 1");
    step = *read;
  }
  int first = field.least, last = field.most;
  if (range != "*" && range != "?") {
    const auto dash = range.find('-');
    const auto from = number(range.substr(0, dash), field);
    if (!from) return bad("no number or name");
    first = *from;
    // "3/5" means from 3 to the end.
    last = slash != part.npos && dash == range.npos ? field.most : first;
    if (dash != range.npos) {
      const auto to = number(range.substr(dash + 1), field);
      if (!to) return bad("no number or name after the dash");
      last = *to;
    }
  } else if (step == 1) {
    out.open = true;
  }
  if (first < field.least || last > field.most) return fail(Code::Invalid, fmt::format("{} \"{}\": {} to {} are possible", field.name, part, field.least, field.most));
  if (first > last) return bad("its end comes before its beginning");
  for (int at = first; at <= last; at += step) out.values.set(static_cast<std::size_t>(at));
  return {};
}

Result<Chosen> read_field(std::string_view text, const Field& field) {
  Chosen out;
  for (const std::string& part : split(text, ','))
    if (auto read = read_part(part, field, out); !read) return std::unexpected(std::move(read.error()));
  return out;
}

}  // namespace

Result<Cron> read_cron(std::string_view text) {
  text = trim(text);
  if (text.size() > 1000) return fail(Code::Invalid, "a schedule of more than 1,000 characters");
  for (const auto& [name, meaning] : kShort)
    if (text == name) return read_cron(meaning);
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find_first_of(" \t", at), text.size());
    if (end > at) words.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (words.size() != 5) return fail(Code::Invalid, fmt::format("\"{}\" has {} fields; minute, hour, day of the month, month and weekday are wanted, such as \"0 */3 * * *\"", text, words.size()));
  std::array<Chosen, 5> fields;
  for (std::size_t i = 0; i < 5; ++i) {
    auto read = read_field(words[i], kFields[i]);
    if (!read) return std::unexpected(std::move(read.error()));
    fields[i] = *read;
  }
  Cron out{.any_day = fields[2].open, .any_weekday = fields[4].open};
  const auto take = [](const std::bitset<64>& from, auto& to) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i];
  };
  take(fields[0].values, out.minutes);
  take(fields[1].values, out.hours);
  take(fields[2].values, out.days);
  take(fields[3].values, out.months);
  take(fields[4].values, out.weekdays);
  if (fields[4].values[7]) out.weekdays.set(0);  // Sunday by both numbers
  return out;
}

std::optional<Instant> next_after(const Cron& cron, Instant after) {
  using namespace std::chrono;
  const auto start = floor<minutes>(after) + minutes(1);
  sys_days day = floor<days>(start);
  for (int looked = 0; looked < 8 * 366 + 1; ++looked, day += days(1)) {
    const year_month_day date{day};
    if (!cron.months[static_cast<unsigned>(date.month())]) continue;
    const bool by_day = cron.days[static_cast<unsigned>(date.day())], by_weekday = cron.weekdays[weekday{day}.c_encoding()];
    if (!(cron.any_day || cron.any_weekday ? by_day && by_weekday : by_day || by_weekday)) continue;
    for (int minute = 0; minute < 24 * 60; ++minute) {
      if (!cron.hours[static_cast<std::size_t>(minute / 60)]) {
        minute += 59;
        continue;
      }
      const auto at = day + minutes(minute);
      if (at >= start && cron.minutes[static_cast<std::size_t>(minute % 60)]) return Instant(at);
    }
  }
  return std::nullopt;
}

}  // namespace fairlead
