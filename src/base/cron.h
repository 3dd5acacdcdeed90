// SPDX-License-Identifier: Apache-2.0
// When something is due: the five fields of crontab(5), in UTC, as Kubernetes' CronJobs read them.
#pragma once
#include <bitset>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace fairlead {

struct Cron {
  std::bitset<60> minutes;
  std::bitset<24> hours;
  std::bitset<32> days;      // of the month, from 1
  std::bitset<13> months;    // from 1
  std::bitset<7> weekdays;   // 0: Sunday
  // Where both kinds of days are chosen, one of them is enough; a kind that is left open (`*`, `?`) chooses nothing.
  bool any_day = true, any_weekday = true;
  friend bool operator==(const Cron&, const Cron&) = default;
};

// "minute hour day month weekday": `*`, `?`, numbers, ranges, steps (`*/5`, `10-40/10`, `3/5`: from 3 on), lists, names of months and weekdays (three letters); or @hourly, @daily, @midnight, @weekly,
// @monthly, @yearly, @annually. Invalid: says which field and why. Time zones (`TZ=`) and `@every` are not taken.
Result<Cron> read_cron(std::string_view text);

// The first time after `after` that it names, at a whole minute; none: it names no day that there is in eight years ("0 0 30 2 *").
std::optional<Instant> next_after(const Cron& cron, Instant after);

}  // namespace fairlead
