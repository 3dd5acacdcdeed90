// SPDX-License-Identifier: Apache-2.0
#include "disk/limiter.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace fairlead::disk {
namespace {

using namespace std::chrono_literals;
using Time = Bucket::Time;

// Requests that come one after the other as fast as they are served: how many until `end`.
int served(Bucket& bucket, Time begin, Time end, double units = 1) {
  Time now = begin;
  for (int n = 0;; ++n) {
    now = std::max(now, bucket.due(bucket.take(units, now), now));
    if (now >= end) return n;
  }
}

TEST(Bucket, ServesItsRate) {
  for (const double rate : {1.0, 10.0, 1000.0, 123456.0}) {
    Bucket bucket;
    bucket.set(rate, std::max(1.0, rate * 0.02), 5s);
    EXPECT_NEAR(served(bucket, 5s, 15s), rate * 10, rate * 10 * 0.005 + 1.5) << rate;
  }
}

TEST(Bucket, WhatIsIdleGathersNoMoreThanItsBurst) {
  Bucket bucket;
  bucket.set(100, 2, 0s);
  EXPECT_NEAR(served(bucket, 1000s, 1001s), 102, 1);
}

TEST(Bucket, AChangeMovesThoseWhoWaitAndKeepsTheirOrder) {
  Bucket bucket;
  bucket.set(1, 1, 0s);
  std::vector<double> tickets;
  for (int i = 0; i < 10; ++i) tickets.push_back(bucket.take(1, 0s));
  EXPECT_EQ(bucket.due(tickets[0], 0s), 0s);
  EXPECT_NEAR(static_cast<double>(bucket.due(tickets[9], 0s).count()) / 1e9, 9, 0.001);
  bucket.set(100, 2, 1s);
  EXPECT_NEAR(static_cast<double>((bucket.due(tickets[9], 1s) - 1s).count()) / 1e9, 0.08, 0.001);
  for (int i = 1; i < 10; ++i) EXPECT_GE(bucket.due(tickets[static_cast<std::size_t>(i)], 1s), bucket.due(tickets[static_cast<std::size_t>(i) - 1], 1s));
  bucket.set(0, 0, 1s);
  EXPECT_EQ(bucket.due(tickets[9], 1s), Time(1s)) << "no limit: nobody waits";
  // And back again: what was served without a limit is not owed.
  bucket.set(10, 1, 2s);
  EXPECT_EQ(bucket.due(bucket.take(1, 2s), 2s), Time(2s));
  EXPECT_NEAR(served(bucket, 2s, 12s), 100, 2);
}

TEST(Bucket, ALargerRequestThanTheBurstPassesInItsTime) {
  Bucket bucket;
  bucket.set(1000, 10, 0s);
  EXPECT_NEAR(static_cast<double>(bucket.due(bucket.take(500, 0s), 0s).count()) / 1e9, 0.49, 0.001);
}

// Of 200 operations a second four may be done at once; on a clock that stands still no further one is.
TEST(Limiter, ARequestOf1MiBCountsAsFour) {
  const ManualClock clock{Instant()};
  Limiter limiter(clock);
  limiter.set({.iops = 200, .bytes_per_second = 0});
  limiter.admit(1 << 20);
  EXPECT_EQ(limiter.waited(), 0ns);
  std::atomic<bool> through = false;
  std::jthread next([&] { limiter.admit(4096), through = true; });
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(through);
  limiter.set({});
  next.join();
  EXPECT_TRUE(through);
}

// In real time: who waits for an hour is let through as soon as the limit goes, and nobody is forgotten.
TEST(Limiter, AChangeReachesThreadsThatWait) {
  const SystemClock clock;
  Limiter limiter(clock);
  limiter.set({.iops = 0, .bytes_per_second = 1});
  std::vector<std::jthread> threads;
  std::atomic<int> through = 0;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 50; ++n) limiter.admit(4096), ++through;
    });
  std::this_thread::sleep_for(50ms);
  EXPECT_LE(through, 64) << "the first 256 KiB are the burst's";
  limiter.set({.iops = 100'000, .bytes_per_second = 0});
  limiter.set({});
  threads.clear();
  EXPECT_EQ(through, 400);
  EXPECT_GT(limiter.waited(), 0ns);
}

}  // namespace
}  // namespace fairlead::disk
