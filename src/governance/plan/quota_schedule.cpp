// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/quota_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "governance/plan/kueue_read.h"
#include "kube/json.h"

namespace fairlead::governance {

using kube::Json;
using std::chrono::days;
using std::chrono::minutes;

namespace {

constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
constexpr minutes kDay = days(1);

std::unexpected<Error> wrong(const std::string& path, std::string_view why) { return fail(Code::Invalid, fmt::format("{}: {}", path, why)); }

// "20:00" in minutes; "24:00" is the end of a day.
std::optional<minutes> clock_of(std::string_view text) {
  const auto digit = [&](std::size_t i) { return text[i] >= '0' && text[i] <= '9'; };
  if (text.size() != 5 || text[2] != ':' || !digit(0) || !digit(1) || !digit(3) || !digit(4)) return std::nullopt;
  const int hour = (text[0] - '0') * 10 + text[1] - '0', minute = (text[3] - '0') * 10 + text[4] - '0';
  if (minute > 59 || hour > 24 || (hour == 24 && minute != 0)) return std::nullopt;
  return minutes(hour * 60 + minute);
}

std::optional<minutes> offset_of(std::string_view text) {
  if (text == "Z") return minutes(0);
  if (text.empty() || (text[0] != '+' && text[0] != '-')) return std::nullopt;
  const auto size = clock_of(text.substr(1));
  if (!size || *size > std::chrono::hours(14)) return std::nullopt;
  return text[0] == '-' ? -*size : *size;
}

Result<QuotaWindow::Quota> read_quota_of(const Json& quota, const std::string& path) {
  if (!quota.is_object()) return wrong(path, "an object is expected: flavor, resource, nominalQuota, borrowingLimit, lendingLimit");
  QuotaWindow::Quota out{.flavor = quota["flavor"].string(), .resource = quota["resource"].string(), .nominal = {}, .borrow = {}, .lend = {}};
  if (out.flavor.empty()) return wrong(path + ".flavor", "a flavor's name is expected");
  if (out.resource.empty()) return wrong(path + ".resource", "a resource's name is expected");
  for (const auto& [name, value] : quota.members()) {
    const std::string at = path + "." + name;
    if (name == "flavor" || name == "resource") continue;
    std::optional<Amount>* into = name == "nominalQuota" ? &out.nominal : name == "borrowingLimit" ? &out.borrow : name == "lendingLimit" ? &out.lend : nullptr;
    if (into == nullptr) return wrong(at, "unknown; flavor, resource, nominalQuota, borrowingLimit and lendingLimit are known");
    if (value.is_null()) {
      if (into == &out.nominal) return wrong(at, "a quantity is expected, such as \"4\" or \"16Gi\"");
      *into = unlimited;
      continue;
    }
    auto read = read_quota(value, out.resource, at);
    if (!read) return std::unexpected(std::move(read.error()));
    if (*read < 0) return wrong(at, "0 or more is expected");
    *into = *read;
  }
  if (!out.nominal && !out.borrow && !out.lend) return wrong(path, "says nothing: nominalQuota, borrowingLimit or lendingLimit is expected");
  return out;
}

Result<QuotaWindow> read_window(const Json& window, const std::string& path) {
  if (!window.is_object()) return wrong(path, "an object is expected: name, days, from, to, utcOffset, quotas");
  QuotaWindow out{.name = window["name"].string(), .days = {}, .quotas = {}};
  for (const auto& [name, value] : window.members())
    if (name != "name" && name != "days" && name != "from" && name != "to" && name != "utcOffset" && name != "quotas") return wrong(path + "." + name, "unknown; name, days, from, to, utcOffset and quotas are known");
  if (out.name.empty() || out.name.size() > 63) return wrong(path + ".name", "a name of 1 to 63 characters is expected");
  if (window["days"].is_null()) out.days.set();
  else if (!window["days"].is_array() || window["days"].items().empty()) return wrong(path + ".days", "a list of days is expected, such as [\"Mon\", \"Tue\"]");
  for (std::size_t i = 0; i < window["days"].items().size(); ++i) {
    const std::string& day = window["days"].items()[i].string();
    const auto at = std::find(std::begin(kDays), std::end(kDays), day);
    if (at == std::end(kDays)) return wrong(fmt::format("{}.days[{}]", path, i), fmt::format("\"{}\" is no day: Mon, Tue, Wed, Thu, Fri, Sat, Sun", day));
    out.days.set(static_cast<std::size_t>(at - std::begin(kDays)));
  }
  minutes to = kDay;
  for (const auto& [field, slot] : {std::pair<const char*, minutes*>{"from", &out.from}, {"to", &to}}) {
    if (window[field].is_null()) continue;
    const auto read = clock_of(window[field].string());
    if (!read) return wrong(fmt::format("{}.{}", path, field), fmt::format("\"{}\": a time of day from \"00:00\" to \"24:00\" is expected", window[field].string()));
    *slot = *read;
  }
  if (out.from == kDay) return wrong(path + ".from", "\"24:00\": the day is over then; \"00:00\" is expected");
  out.lasts = to > out.from ? to - out.from : to + kDay - out.from;
  if (!window["utcOffset"].is_null()) {
    const auto read = offset_of(window["utcOffset"].string());
    if (!read) return wrong(path + ".utcOffset", fmt::format("\"{}\": an offset such as \"+01:00\" or \"-08:00\" is expected", window["utcOffset"].string()));
    out.utc_offset = *read;
  }
  if (!window["quotas"].is_array() || window["quotas"].items().empty()) return wrong(path + ".quotas", "a list of quotas is expected");
  std::set<std::pair<std::string, std::string>> named;
  for (std::size_t i = 0; i < window["quotas"].items().size(); ++i) {
    const std::string at = fmt::format("{}.quotas[{}]", path, i);
    auto quota = read_quota_of(window["quotas"].items()[i], at);
    if (!quota) return std::unexpected(std::move(quota.error()));
    if (!named.emplace(quota->flavor, quota->resource).second) return wrong(at, fmt::format("{} of {} is named twice", quota->resource, quota->flavor));
    out.quotas.push_back(std::move(*quota));
  }
  return out;
}

bool holds(const QuotaWindow& window, Instant now) {
  const auto local = now + window.utc_offset;
  const auto midnight = std::chrono::floor<days>(local);
  const auto begins = [&](std::chrono::sys_days day) { return window.days[std::chrono::weekday(day).c_encoding()]; };
  const auto since = local - midnight;  // of today's begin, or of yesterday's that goes on
  if (begins(midnight) && since >= window.from && since < window.from + window.lasts) return true;
  return begins(midnight - days(1)) && since + kDay < window.from + window.lasts;
}

// Its next begin or end after `now`, whether or not it is in force then.
std::optional<Instant> next_edge(const QuotaWindow& window, Instant now) {
  if (window.days.none()) return std::nullopt;
  const auto today = std::chrono::floor<days>(now + window.utc_offset);
  std::optional<Instant> out;
  for (int day = -2; day <= 8; ++day) {
    const auto midnight = today + days(day);
    if (!window.days[std::chrono::weekday(midnight).c_encoding()]) continue;
    for (const minutes at : {window.from, window.from + window.lasts})
      if (const Instant edge = midnight + at - window.utc_offset; edge > now && (!out || edge < *out)) out = edge;
  }
  return out;
}

}  // namespace

Result<QuotaSchedule> read_quota_schedule(std::string_view text) {
  if (text.size() > most_quota_schedule_bytes) return fail(Code::Invalid, fmt::format("{} characters; {} at most", text.size(), most_quota_schedule_bytes));
  auto json = kube::parse_json(text);
  if (!json) return pass(std::move(json.error()), "a JSON list of windows is expected");
  if (!json->is_array()) return fail(Code::Invalid, "a JSON list of windows is expected, such as [{\"name\": \"night\", \"from\": \"20:00\", \"to\": \"06:00\", \"quotas\": [...]}]");
  if (json->items().size() > most_quota_windows) return fail(Code::Invalid, fmt::format("{} windows; {} at most", json->items().size(), most_quota_windows));
  QuotaSchedule out;
  for (std::size_t i = 0; i < json->items().size(); ++i) {
    auto window = read_window(json->items()[i], fmt::format("[{}]", i));
    if (!window) return std::unexpected(std::move(window.error()));
    if (std::ranges::any_of(out, [&](const QuotaWindow& other) { return other.name == window->name; })) return wrong(fmt::format("[{}].name", i), fmt::format("\"{}\" is named twice", window->name));
    out.push_back(std::move(*window));
  }
  return out;
}

const QuotaWindow* window_at(const QuotaSchedule& schedule, Instant now) {
  const auto at = std::ranges::find_if(schedule, [&](const QuotaWindow& window) { return holds(window, now); });
  return at == schedule.end() ? nullptr : &*at;
}

std::optional<Instant> next_change(const QuotaSchedule& schedule, Instant now) {
  const QuotaWindow* const current = window_at(schedule, now);
  const Instant horizon = now + days(9);  // a week has all there is
  for (Instant at = now;;) {
    std::optional<Instant> edge;
    for (const QuotaWindow& window : schedule)
      if (const auto next = next_edge(window, at); next && (!edge || *next < *edge)) edge = next;
    if (!edge || *edge > horizon) return std::nullopt;
    if (window_at(schedule, *edge) != current) return edge;
    at = *edge;
  }
}

Result<std::vector<ResourceGroup>> in_window(std::vector<ResourceGroup> groups, const QuotaWindow& window) {
  for (const QuotaWindow::Quota& quota : window.quotas) {
    Limits* limits = nullptr;
    for (ResourceGroup& group : groups)
      for (QueueFlavor& flavor : group.flavors)
        for (auto& [resource, of] : flavor.resources)
          if (flavor.name == quota.flavor && resource == quota.resource) limits = &of;
    if (limits == nullptr) return fail(Code::Invalid, fmt::format("window \"{}\": spec.resourceGroups has no {} of flavor {}", window.name, quota.resource, quota.flavor));
    if (quota.nominal) limits->nominal = *quota.nominal;
    if (quota.borrow) limits->borrow = *quota.borrow;
    if (quota.lend) limits->lend = *quota.lend;
  }
  return groups;
}

}  // namespace fairlead::governance
