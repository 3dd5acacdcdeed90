// SPDX-License-Identifier: Apache-2.0
#include "base/cron.h"

#include <gmock/gmock.h>

namespace fairlead {
namespace {

using testing::HasSubstr;

struct Row {
  const char *name, *cron, *after, *next;  // next empty: never
};
class CronNext : public testing::TestWithParam<Row> {};
TEST_P(CronNext, IsTheFirstTimeThatItNames) {
  const auto cron = read_cron(GetParam().cron);
  ASSERT_TRUE(cron) << cron.error().message;
  const auto next = next_after(*cron, *parse_time(GetParam().after));
  EXPECT_EQ(next ? print_time(*next) : "", GetParam().next);
}
INSTANTIATE_TEST_SUITE_P(
    Rows, CronNext,
    testing::Values(Row{"every_three_hours", "0 */3 * * *", "2026-11-22T04:10:00Z", "2026-11-22T06:00:00Z"}, Row{"never_now", "10 4 * * *", "2026-11-22T04:10:00Z", "2026-11-23T04:10:00Z"},
                    Row{"within_the_minute", "* * * * *", "2026-11-22T04:10:59Z", "2026-11-22T04:11:00Z"}, Row{"once_a_year", "0 0 1 1 *", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
                    Row{"leap_day", "0 12 29 2 *", "2026-11-22T00:00:00Z", "2028-02-29T12:00:00Z"}, Row{"no_such_day", "0 0 30 2 *", "2026-11-22T00:00:00Z", ""},
                    Row{"over_a_century_without_leap", "0 0 29 2 *", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},
                    Row{"either_kind_of_day", "0 0 13 * fri", "2026-11-22T00:00:00Z", "2026-11-27T00:00:00Z"}, Row{"either_kind_of_day_2", "0 0 13 * fri", "2026-12-11T00:00:00Z", "2026-12-13T00:00:00Z"},
                    Row{"days_alone", "0 0 13 * ?", "2026-11-22T00:00:00Z", "2026-12-13T00:00:00Z"}, Row{"both_sundays", "0 0 * * 7", "2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"},
                    Row{"sunday_is_0", "0 0 * * 0", "2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"}, Row{"a_step_chooses", "0 0 */2 * 1", "2026-11-22T00:00:00Z", "2026-11-23T00:00:00Z"},
                    Row{"from_on", "50/4 * * * *", "2026-11-22T04:10:00Z", "2026-11-22T04:50:00Z"}, Row{"list_and_range", "5,20-30/5 1,2 * * mon-fri", "2026-11-22T04:10:00Z", "2026-11-23T01:05:00Z"},
                    Row{"names", "0 0 1 Feb,DEC *", "2026-11-22T04:10:00Z", "2026-12-01T00:00:00Z"}, Row{"spaces", "  0\t0  1 1 * ", "2026-11-22T04:10:00Z", "2027-01-01T00:00:00Z"},
                    Row{"hourly", "@hourly", "2026-11-22T04:10:00Z", "2026-11-22T05:00:00Z"}, Row{"weekly", "@weekly", "2026-11-22T04:10:00Z", "2026-11-29T00:00:00Z"}),
    [](const auto& row) { return row.param.name; });

struct Bad {
  const char *name, *cron, *why;
};
class CronBad : public testing::TestWithParam<Bad> {};
TEST_P(CronBad, SaysWhatIsWrong) {
  const auto cron = read_cron(GetParam().cron);
  ASSERT_FALSE(cron);
  EXPECT_THAT(cron.error().message, HasSubstr(GetParam().why));
}
INSTANTIATE_TEST_SUITE_P(Rows, CronBad,
                         testing::Values(Bad{"empty", "", "has 0 fields"}, Bad{"four", "* * * *", "has 4 fields"}, Bad{"seconds", "0 0 * * * *", "has 6 fields"}, Bad{"minute", "60 * * * *", "minute \"60\": 0 to 59"},
                                         Bad{"day_0", "0 0 0 * *", "1 to 31"}, Bad{"weekday", "0 0 * * 8", "0 to 7"}, Bad{"word", "0 0 * * fry", "no number or name"}, Bad{"backwards", "30-10 * * * *", "its end comes before"},
                                         Bad{"step_0", "*/0 * * * *", "a step is"}, Bad{"step_none", "*/ * * * *", "a step is"}, Bad{"empty_part", "1,,2 * * * *", "no number"}, Bad{"negative", "-5 * * * *", "no number"},
                                         Bad{"zone", "TZ=Europe/Berlin 0 0 * * *", "has 6 fields"}, Bad{"every", "@every 5m", "has 2 fields"}, Bad{"range_of_three", "1-2-3 * * * *", "after the dash"}),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace fairlead
