// SPDX-License-Identifier: Apache-2.0
#include "node/token_cache.h"

#include <gtest/gtest.h>

#include "node/memory_api.h"

namespace fairlead::node {
namespace {
using kube::Json;
using namespace std::chrono_literals;

const Instant epoch = *parse_time("2026-01-02T03:04:05Z");
const Json pod = *kube::parse_json(R"({"metadata": {"name": "p", "namespace": "a", "uid": "u"}, "spec": {"serviceAccountName": "robot"}})");

TEST(TokenCache, RenewsAtFourFifthsOfALifeAndAtLeastOnceADay) {
  EXPECT_EQ(token_refresh_time(epoch, epoch + 10min), epoch + 8min);
  EXPECT_EQ(token_refresh_time(epoch, epoch + 240h), epoch + 24h);
}

TEST(TokenCache, KeepsATokenUntilItIsToBeReplacedAndTheOldOneWhileThereIsNoOther) {
  ManualClock clock(epoch);
  MemoryApi api;
  api.token_clock = &clock;  // tokens live for an hour
  TokenCache cache(api, clock);
  EXPECT_EQ(cache.token(pod, "", 3600).value_or(""), "TOKEN-1");
  EXPECT_EQ(cache.token(pod, "vault", 3600).value_or(""), "TOKEN-2");
  clock.advance(47min);
  EXPECT_EQ(cache.token(pod, "", 3600).value_or(""), "TOKEN-1");
  clock.advance(2min);
  api.tokens_given = false;
  EXPECT_EQ(cache.token(pod, "", 3600).value_or(""), "TOKEN-1");
  api.tokens_given = true;
  EXPECT_EQ(cache.token(pod, "", 3600).value_or(""), "TOKEN-1");  // not asked again at once
  clock.advance(31s);
  EXPECT_EQ(cache.token(pod, "", 3600).value_or(""), "TOKEN-3");
  api.tokens_given = false;
  clock.advance(61min);
  EXPECT_EQ(cache.token(pod, "", 3600).error().code, Code::Unavailable);  // an ended token is none
  api.tokens_given = true;
  cache.forget("u");
  EXPECT_EQ(cache.token(pod, "", 3600).value_or(""), "TOKEN-4");
}

}  // namespace
}  // namespace fairlead::node
