// SPDX-License-Identifier: Apache-2.0
#include "volumes/plan/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairlead::volumes {
namespace {

using testing::HasSubstr;
constexpr std::int64_t gib = std::int64_t{1} << 30;
const std::string pool = "00000000-0000-4000-8000-000000000001";

Intent intent(What what, std::int64_t generation = 0, const std::string& host = "") {
  return {.number = 9, .what = what, .id = "a", .size = 0, .before = 0, .source = {}, .of_snapshot = false, .node = "n", .owner = {}, .read_only = false, .generation = generation, .managed = true, .limits = {.iops = 300}, .key = {}, .host = host};
}
Entry entry(bool attached) {
  Entry out{.snapshot = false, .size = gib, .source = {}, .nodes = {}, .device = {}, .owner = {}, .managed = true, .limits = {.iops = 200}, .there = true};
  if (attached) out.nodes = {{"n", 4}, {"o", 7}}, out.host = "m2", out.shown = 4;
  return out;
}

TEST(Asked, FollowsFromTheLedger) {
  const api::AskedVolume shown{.id = "a", .generation = 4, .show = true, .size = gib, .iops = 200}, gone{.id = "a", .generation = 4, .show = false};
  EXPECT_EQ(asked_for("a", entry(false), {}, false), std::nullopt);
  EXPECT_EQ(asked_for("a", entry(true), {}, false), (Asked{"m2", shown})) << "by the attachment by which it was shown first, whoever reads it now";
  EXPECT_EQ(asked_for("a", entry(true), {{9, intent(What::Detach, 4)}}, false), (Asked{"m2", gone}));
  EXPECT_EQ(asked_for("a", entry(true), {{9, intent(What::Leave, 4)}}, false), (Asked{"m2", shown}));
  EXPECT_EQ(asked_for("a", entry(true), {{9, intent(What::Limit)}}, false)->volume.iops, 300);
  EXPECT_EQ(asked_for("a", entry(true), {{9, intent(What::Attach, 4, "m2")}}, false), (Asked{"m2", shown})) << "made anew";
  EXPECT_EQ(asked_for("a", entry(false), {{9, intent(What::Attach, 8, "m3")}}, false), (Asked{"m3", {.id = "a", .generation = 8, .show = true, .size = gib, .iops = 200}}));
  EXPECT_EQ(asked_for("a", entry(false), {{9, intent(What::Attach, 8, "m3")}}, true), (Asked{"m3", {.id = "a", .generation = 8, .show = false}}));
  EXPECT_EQ(asked_for("a", entry(false), {{9, intent(What::Attach, 8)}}, false), std::nullopt) << "on the pool's own machine";
  Entry there = entry(false);
  Intent others = intent(What::Attach, 8, "m3");
  others.id = "b";
  EXPECT_EQ(asked_for("a", there, {{9, others}}, false), std::nullopt);
}

TEST(Asked, WhatAMachineShowsBesideIsToGo) {
  api::VolumeHostFacts host;
  host.told_pool_id = pool;
  const api::AskedVolume wanted{.id = "b", .generation = 2, .show = true, .size = gib};
  host.told = {{.id = "b", .generation = 1, .device = "/dev/loop1"}, {.id = "b", .generation = 2, .engine = true}, {.id = "a", .generation = 3, .heard = true, .show = false}};
  EXPECT_EQ(all_asked({wanted}, host, pool), (std::vector<api::AskedVolume>{{.id = "b", .generation = 1, .show = false}, wanted})) << "of a nothing is left there";
  EXPECT_EQ(all_asked({wanted}, host, "another"), std::vector{wanted}) << "volumes of another pool are not this one's to take away";
}

TEST(Seen, OnlyAnAnswerToWhatIsAskedIsOne) {
  const Asked show{"m2", {.id = "a", .generation = 4, .show = true, .size = gib}}, go{"m2", {.id = "a", .generation = 4, .show = false}};
  const auto why = [](const std::optional<HostSeen>& host, const Asked& asked) {
    const auto seen = seen_there(host, asked, pool);
    return seen ? std::string("known") : seen.error().code == Code::Unavailable ? seen.error().message : "another error";
  };
  EXPECT_THAT(why(std::nullopt, show), HasSubstr("m2, which is not known"));
  HostSeen host;
  host.facts.told_pool_id = pool;
  EXPECT_THAT(why(host, show), HasSubstr("is asked to show a, and has not yet"));
  host.facts.told = {{.id = "a", .generation = 3, .heard = true, .show = true, .device = "/dev/loop1", .engine = true}};
  EXPECT_THAT(why(host, show), HasSubstr("has not yet")) << "of an older attachment";
  host.facts.told.push_back({.id = "a", .generation = 4, .heard = true, .show = true, .device = "/dev/loop2", .device_size = 5, .used = true, .engine = true, .failed = true, .engine_size = 6, .iops = 7});
  const auto seen = seen_there(host, show, pool);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->devices, (std::vector<DeviceSeen>{{.name = "/dev/loop2", .size = 5, .used = true}}));
  EXPECT_TRUE(seen->engine && seen->engine->failed && seen->engine->size == 6 && seen->engine->limits.iops == 7);
  EXPECT_THAT(why(host, go), HasSubstr("is asked to take away a")) << "from before it was asked to go";
  EXPECT_THAT(why(host, {"m2", {.id = "a", .generation = 5, .show = false}}), HasSubstr("has not yet"));
  host.facts.told[1].heard = false;
  EXPECT_THAT(why(host, show), HasSubstr("has not yet")) << "what it does not know itself";
  host.facts.told[1].heard = true;
  host.silent = "2026-11-27T12:00:00Z";
  EXPECT_THAT(why(host, show), HasSubstr("m2 is silent since 2026-11-27T12:00:00Z"));
  host.silent.reset();
  EXPECT_FALSE(seen_there(host, show, "another pool")) << "of another pool's volume";
  host.facts.told[1].message = "there is no room";
  EXPECT_THAT(not_yet(host, show).message, HasSubstr("there is no room"));
}

TEST(HostOf, ANodeIsOnOneMachine) {
  const auto named = [](const char* host, const char* selector) { return api::VolumeHostFacts{.name = {}, .pool = {}, .host = host, .node_selector = selector, .pool_id = {}, .id = {}, .told_pool_id = {}, .heard = {}, .asked = {}, .told = {}}; };
  const std::vector<api::VolumeHostFacts> hosts{named("m2", "rack=b"), named("m3", ""), named("m4", "bad in (")};
  EXPECT_EQ(host_of("n", {{"rack", "b"}}, hosts).value(), "m2");
  EXPECT_EQ(host_of("n", {{"rack", "a"}}, hosts).value(), "");
  EXPECT_EQ(host_of("m3", {}, hosts).value(), "m3") << "without a selector: the node of its name";
  EXPECT_EQ(host_of("m3", {{"rack", "b"}}, hosts).error().code, Code::Conflict);
}

}  // namespace
}  // namespace fairlead::volumes
