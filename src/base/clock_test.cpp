// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <gtest/gtest.h>
#include <time.h>

#include "base/rng.h"

namespace fairlead {
namespace {

using namespace std::chrono_literals;

TEST(Times, ArePrintedAsKubernetesDoes) {
  constexpr Instant epoch{};
  EXPECT_EQ(print_time(epoch), "1970-01-01T00:00:00Z");
  EXPECT_EQ(print_micro_time(epoch + 1'234'567ns), "1970-01-01T00:00:00.001234Z");
  EXPECT_EQ(print_time(epoch - 1ns), "1969-12-31T23:59:59Z");
  EXPECT_EQ(print_micro_time(epoch - 1ns), "1969-12-31T23:59:59.999999Z");
  EXPECT_EQ(print_time(Instant(std::chrono::sys_days(std::chrono::year(2024) / 2 / 29)) + 23h + 59min + 59s), "2024-02-29T23:59:59Z");
}

TEST(TimesProperty, AreWhatTheLibrarySaysAndReadBack) {
  Rng rng(1);
  for (int i = 0; i < 10'000; ++i) {
    const Instant time(std::chrono::nanoseconds(static_cast<std::int64_t>(rng.next())));
    const std::time_t seconds = std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
    std::tm parts{};
    ASSERT_NE(::gmtime_r(&seconds, &parts), nullptr);
    char text[32];
    ASSERT_GT(std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts), 0u);
    EXPECT_EQ(print_time(time), text);
  }
}

}  // namespace
}  // namespace fairlead
