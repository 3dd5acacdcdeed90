// SPDX-License-Identifier: Apache-2.0
#include "apiserver/limits.h"

#include <gtest/gtest.h>

namespace fairlead::apiserver {
namespace {

using namespace std::chrono_literals;
const User ann{"ann", {}}, bob{"bob", {}}, node{"system:node:w0", {"system:nodes"}}, admin{"root", {"system:masters"}};

TEST(Limits, ABucketRefillsAtItsRate) {
  TokenBucket bucket(2, 0s);
  EXPECT_FALSE(bucket.take(10, 2, 0s));
  EXPECT_FALSE(bucket.take(10, 2, 0s));
  EXPECT_EQ(bucket.take(10, 2, 0s), std::chrono::nanoseconds(100ms));
  EXPECT_EQ(bucket.take(10, 2, 50ms), std::chrono::nanoseconds(50ms));
  EXPECT_FALSE(bucket.take(10, 2, 100ms));
  EXPECT_TRUE(bucket.take(10, 2, 90ms)) << "a clock that stands still gives nothing";
  EXPECT_FALSE(bucket.full(10, 2, 200ms));
  EXPECT_TRUE(bucket.full(10, 2, 301ms));
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(bucket.take(10, 2, 1h)) << "a burst, however long it was idle";
  EXPECT_TRUE(bucket.take(10, 2, 1h));
}

TEST(Limits, EachUserHasTheirOwnShare) {
  Limits limits({.per_second = 1, .burst = 3, .in_flight = 0});
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(limits.enter(ann, 0s).retry_after);
  EXPECT_EQ(limits.enter(ann, 0s).retry_after, std::optional<std::chrono::seconds>(1s));
  EXPECT_FALSE(limits.enter(bob, 0s).retry_after);
  for (int i = 0; i < 12; ++i) EXPECT_FALSE(limits.enter(node, 0s).retry_after) << i;
  EXPECT_TRUE(limits.enter(node, 0s).retry_after);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(limits.enter(admin, 0s).retry_after);
  EXPECT_FALSE(limits.enter(ann, 1s).retry_after);
}

TEST(Limits, SoManyAreUnderWayAndNoMore) {
  Limits limits({.per_second = 0, .in_flight = 2});
  auto first = limits.enter(ann, 0s), second = limits.enter(bob, 0s);
  EXPECT_EQ(limits.under_way(), 2u);
  EXPECT_TRUE(limits.enter(ann, 0s).retry_after);
  EXPECT_FALSE(limits.enter(admin, 0s).retry_after);
  first.ticket.reset();
  EXPECT_FALSE(limits.enter(ann, 0s).retry_after);  // and leaves again at once
  EXPECT_EQ(limits.under_way(), 1u);
}

TEST(Limits, StrangersWithoutNumberDoNotFillMemoryNorHarmOthers) {
  Limits limits({.per_second = 1, .burst = 1, .in_flight = 0});
  for (int i = 0; i < 30'000; ++i) {
    EXPECT_FALSE(limits.enter({.name = "user-" + std::to_string(i), .groups = {}}, 0s).retry_after);
  }
}

}  // namespace
}  // namespace fairlead::apiserver
