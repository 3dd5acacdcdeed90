// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/minimum.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace fairlead::fleet {
namespace {

using namespace std::chrono_literals;
using kube::Json;

constexpr Instant began{std::chrono::sys_days(std::chrono::year(2026) / 1 / 2)};

struct Watch {
  Json kept;
  Instant now = began;
  Json look(MinimumLook of) { return kept = next_minimum(kept, of, now, 3h); }
};

TEST(Minimum, IsNothingWhereNoneIsAskedFor) {
  EXPECT_TRUE(next_minimum(Json(), {.min = 0, .target = 4}, began, 3h).is_null());
  Watch watch;
  watch.look({.min = 2, .target = 4, .running = 4});
  EXPECT_TRUE(watch.look({.min = 0, .target = 4, .running = 4}).is_null());
}

TEST(Minimum, WhatHadItLosesNothingByLosingMachines) {
  Watch watch;
  watch.look({.min = 2, .target = 4, .running = 2});
  for (int hours = 0; hours < 30; ++hours, watch.now += 1h) EXPECT_FALSE(watch.look({.min = 2, .target = 4, .running = 0, .target_before = 4}).has("rolledBack"));
}

TEST(Minimum, ANewWishHasItsTimeAndGoesBackToTheLastGoodOne) {
  Watch watch;
  watch.look({.min = 2, .target = 4, .running = 4});
  watch.look({.min = 6, .target = 8, .running = 4, .target_before = 4});
  watch.now += 2h;
  // Changed before its time was up: the time begins anew, and what was never good is not gone back to.
  watch.look({.min = 6, .target = 9, .running = 5, .target_before = 8});
  watch.now += 3h - 1s;
  EXPECT_FALSE(watch.look({.min = 6, .target = 9, .running = 5, .target_before = 9}).has("rolledBack"));
  watch.now += 1s;
  EXPECT_EQ(watch.look({.min = 6, .target = 9, .running = 5, .target_before = 9})["good"].integer(), 4);
  EXPECT_TRUE(gives_up(watch.kept, 6, 9));
  EXPECT_FALSE(gives_up(watch.kept, 6, 10));
  const Json once = watch.kept;
  watch.now += 1min;
  EXPECT_EQ(watch.look({.min = 6, .target = 9, .running = 9, .target_before = 9})["rolledBack"], once["rolledBack"]) << "it was told: to change one's mind is another's to do";
  watch.look({.min = 2, .target = 4, .running = 3, .target_before = 9});
  EXPECT_FALSE(watch.kept["message"].string().empty()) << "what was done is told";
  EXPECT_FALSE(watch.kept.has("since"));
  watch.look({.min = 4, .target = 5, .running = 3, .target_before = 4});
  EXPECT_EQ(watch.kept["goodMin"].integer(), 2);
  EXPECT_TRUE(watch.kept["message"].is_null());
  EXPECT_EQ(watch.kept["good"].integer(), 4);
}

TEST(Minimum, WhatWaitsForItsReservationHasNotBegun) {
  Watch watch;
  for (int hours = 0; hours < 10; ++hours, watch.now += 1h) EXPECT_FALSE(watch.look({.min = 1, .target = 2, .running = 0, .target_before = hours == 0 ? 0 : 2, .held = true}).has("rolledBack"));
  const Json held = watch.kept;
  EXPECT_EQ(watch.look({.min = 1, .target = 2, .running = 0, .target_before = 2, .held = true}), held) << "nothing is written while it waits";
  watch.look({.min = 1, .target = 2, .running = 0, .target_before = 2});
  watch.now += 3h - 1s;
  EXPECT_FALSE(watch.look({.min = 1, .target = 2, .running = 0, .target_before = 2}).has("rolledBack"));
  watch.now += 1s;
  EXPECT_EQ(watch.look({.min = 1, .target = 2, .running = 0, .target_before = 2})["good"].integer(), 0);
}

TEST(Minimum, MoreOfTheSameCountGoesBack) {
  Watch watch;
  watch.look({.min = 2, .target = 8, .running = 4});
  watch.look({.min = 6, .target = 8, .running = 4, .target_before = 8});
  watch.now += 3h;
  EXPECT_TRUE(watch.look({.min = 6, .target = 8, .running = 4, .target_before = 8}).has("rolledBack"));
  EXPECT_EQ(watch.kept["good"].integer(), 8);
  EXPECT_EQ(watch.kept["goodMin"].integer(), 2);
}

// Whatever comes: it never goes back to more, a look again changes nothing, and nothing is given up before its time.
TEST(Minimum, Properties) {
  Rng rng(6);
  for (int round = 0; round < 2'000; ++round) {
    Watch watch;
    MinimumLook of{.min = 0, .target = static_cast<int>(rng.below(4)), .running = 0, .target_before = 0, .held = false};
    Instant wished = watch.now;
    for (int step = 0; step < 30; ++step) {
      of.target_before = of.target;
      if (rng.below(4) == 0) {
        const std::pair before(of.min, of.target);
        of.target = static_cast<int>(rng.below(6));
        of.min = static_cast<int>(rng.below(static_cast<std::uint64_t>(of.target) + 1));
        if (before != std::pair(of.min, of.target)) wished = watch.now;
      }
      of.running = static_cast<int>(rng.below(static_cast<std::uint64_t>(of.target) + 1));
      of.held = rng.below(5) == 0;
      const Json kept = watch.look(of);
      if (kept.has("rolledBack")) {
        EXPECT_LE(kept["good"].integer(), of.target);
        EXPECT_TRUE(kept["good"].integer() < of.target || kept["goodMin"].integer() < of.min);
        EXPECT_GE(watch.now - wished, 3h);
      }
      EXPECT_EQ(watch.look(of), kept);
      watch.now += std::chrono::minutes(rng.below(120));
    }
  }
}

}  // namespace
}  // namespace fairlead::fleet
