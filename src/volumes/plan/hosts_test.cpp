// SPDX-License-Identifier: Apache-2.0
#include "volumes/plan/hosts.h"

#include <gmock/gmock.h>
#include <fmt/format.h>
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
  Entry out{.snapshot = false, .size = gib, .source = {}, .nodes = {}, .hosts = {}, .places = {}, .owner = {}, .managed = true, .limits = {.iops = 200}, .there = true};
  if (attached) out.nodes = {{"n", 4}, {"o", 7}}, out.hosts = {{"n", "m2"}, {"o", "m2"}}, out.places = {{"m2", {.shown = 4, .device = "/dev/loop1"}}};
  return out;
}

// Of one machine at most.
std::optional<Asked> asked_of(const std::string& id, const Entry& entry, const std::map<std::int64_t, Intent>& under_way, const std::set<std::string>& leaving = {}) {
  const auto all = asked_for(id, entry, under_way, leaving);
  EXPECT_LE(all.size(), 1u);
  return all.empty() ? std::nullopt : std::optional(all.front());
}

TEST(Asked, FollowsFromTheLedger) {
  const api::AskedVolume shown{.id = "a", .generation = 4, .show = true, .size = gib, .iops = 200}, gone{.id = "a", .generation = 4, .show = false};
  const std::set<std::string> both{"n", "o"};
  EXPECT_EQ(asked_of("a", entry(false), {}), std::nullopt);
  EXPECT_EQ(asked_of("a", entry(true), {}), (Asked{"m2", shown, both})) << "by the attachment by which it was shown first, whoever reads it now";
  EXPECT_EQ(asked_of("a", entry(true), {{9, intent(What::Detach, 4)}}), (Asked{"m2", gone, both}));
  EXPECT_EQ(asked_of("a", entry(true), {{9, intent(What::Leave, 4)}}), (Asked{"m2", shown, both}));
  EXPECT_EQ(asked_of("a", entry(true), {{9, intent(What::Limit)}})->volume.iops, 300);
  EXPECT_EQ(asked_of("a", entry(true), {{9, intent(What::Attach, 4, "m2")}}), (Asked{"m2", shown, both})) << "made anew";
  EXPECT_EQ(asked_of("a", entry(false), {{9, intent(What::Attach, 8, "m3")}}), (Asked{"m3", {.id = "a", .generation = 8, .show = true, .size = gib, .iops = 200}, {"n"}}));
  EXPECT_EQ(asked_of("a", entry(false), {{9, intent(What::Attach, 8, "m3")}}, {"m3"}), (Asked{"m3", {.id = "a", .generation = 8, .show = false}, {"n"}}));
  EXPECT_EQ(asked_of("a", entry(false), {{9, intent(What::Attach, 8)}}), std::nullopt) << "on the pool's own machine";
  Entry there = entry(false);
  Intent others = intent(What::Attach, 8, "m3");
  others.id = "b";
  EXPECT_EQ(asked_of("a", there, {{9, others}}), std::nullopt);
}

TEST(Asked, OfEachMachineThatReadsItForItself) {
  Entry read = entry(true);
  read.read_only = true, read.generation = 9;
  read.nodes = {{"n", 4}, {"o", 7}, {"p", 9}}, read.hosts = {{"n", "m2"}, {"o", "m3"}}, read.places = {{"", {}}, {"m2", {.shown = 4, .device = {}}}, {"m3", {.shown = 7, .device = {}}}};
  const auto shown = [](std::int64_t generation) { return api::AskedVolume{.id = "a", .generation = generation, .show = true, .read_only = true, .size = gib, .iops = 200}; };
  const Asked second{"m2", shown(4), {"n"}}, third{"m3", shown(7), {"o"}};
  EXPECT_EQ(asked_for("a", read, {}, {}), (std::vector{second, third})) << "and nothing of the pool's own machine";
  Intent leaves = intent(What::Detach, 7);
  leaves.node = "o";
  EXPECT_EQ(asked_for("a", read, {{9, leaves}}, {}), (std::vector<Asked>{second, {"m3", {.id = "a", .generation = 7, .show = false}, {"o"}}}));
  Intent comes = intent(What::Attach, 10, "m4");
  comes.node = "q", comes.read_only = true;
  EXPECT_EQ(asked_for("a", read, {{9, comes}, {10, leaves}}, {"m4"}), (std::vector<Asked>{second, {"m3", {.id = "a", .generation = 7, .show = false}, {"o"}}, {"m4", {.id = "a", .generation = 10, .show = false}, {"q"}}}));
  const auto limited = asked_for("a", read, {{9, intent(What::Limit)}}, {});
  EXPECT_EQ(limited.at(0).volume.iops + limited.at(1).volume.iops, 600);
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

TEST(Names, AreThereOrGoneByTheMachinesWordAlone) {
  const Asked show{"m2", {.id = "a", .generation = 4, .show = true}}, go{"m2", {.id = "a", .generation = 4, .show = false}};
  const auto why = [](const Result<void>& done) { return done ? std::string("yes") : fmt::format("{}: {}", done.error().code == Code::Unavailable ? "unknown" : "no", done.error().message); };
  HostSeen host;
  host.facts.told_pool_id = pool;
  struct Row {
    const char* what;
    std::vector<api::ToldName> told;
    bool heard, silent;
    const char *has, *has_not;
  };
  for (const Row& row : {Row{"not answered yet", {}, false, false, "unknown: the machine m2 is asked to show a", "unknown: the machine m2 is asked to show a"},
                         Row{"not called so yet", {{.name = "/dev/xvdg"}}, true, false, "unknown: the machine m2 is asked to call a /dev/xvdf, and has not yet", "yes"},
                         Row{"called so", {{.name = "/dev/xvdf"}}, true, false, "yes", "unknown: the machine m2 is asked to call a /dev/xvdf no more"},
                         Row{"somebody else's", {{.name = "/dev/xvdf", .message = "there is a /dev/xvdf on this machine already"}}, true, false, "no: on the machine m2: there is a /dev/xvdf on this machine already", "yes"},
                         Row{"silent", {{.name = "/dev/xvdf"}}, true, true, "unknown: the machine m2 is silent since", "unknown: the machine m2 is silent since"}}) {
    host.facts.told = {{.id = "a", .generation = 4, .heard = row.heard, .show = true, .engine = true, .names = row.told}};
    host.silent = row.silent ? std::optional<std::string>("then") : std::nullopt;
    EXPECT_THAT(why(has_name(host, show, "/dev/xvdf", pool)), HasSubstr(row.has)) << row.what;
    EXPECT_THAT(why(has_not_name(host, show, "/dev/xvdf", pool)), HasSubstr(row.has_not)) << row.what;
  }
  host.silent.reset();
  host.facts.told = {{.id = "a", .generation = 4, .heard = true, .show = false, .names = {{.name = "/dev/xvdf"}}}};
  EXPECT_FALSE(seen_there(host, go, pool)) << "what is gone has no names";
  host.facts.told[0].names.clear();
  EXPECT_TRUE(seen_there(host, go, pool));
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
