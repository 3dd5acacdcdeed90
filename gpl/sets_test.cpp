// SPDX-License-Identifier: GPL-3.0-or-later
#include "sets.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/encoding.h"
#include "base/files.h"
#include "hold.h"
#include "job_state.h"
#include "set_settings.h"
#include "sets_test_world.h"

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace fairlead::companion {
namespace {

TEST(Card, TellsWhenItWasChangedOrCutOff) {
  const Card card = {{"name", "a%b\nc"}, {"empty", ""}};
  const std::string text = print_card("set", card);
  EXPECT_EQ(parse_card("set", text).value(), card);
  EXPECT_EQ(parse_card("hold", text).error().code, Code::Invalid);
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_FALSE(parse_card("set", text.substr(0, i)));
    std::string other = text;
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_FALSE(parse_card("set", other)) << i;
  }
}

TEST(JobState, TheNextIdIsReadAndReplacedAndNothingElse) {
  const std::string bytes = job_state(41, "jobs");
  EXPECT_EQ(read_job_state(bytes)->next_id, 41u);
  auto other = with_next_id(bytes, 1'000'000);
  EXPECT_EQ(read_job_state(*other)->next_id, 1'000'000u);
  EXPECT_EQ(*with_next_id(*other, 41), bytes);
  EXPECT_EQ(with_next_id(bytes, kHighestId + 1).error().code, Code::Exhausted);
  for (std::size_t i = 0; i < 35; ++i) EXPECT_EQ(read_job_state(bytes.substr(0, i)).error().code, Code::Invalid);
  EXPECT_EQ(read_job_state("\0\0\0\x11SOMETHING_ELSE__" + bytes.substr(20)).error().code, Code::Invalid);
}

TEST(Hold, IsPlacedOnceAndLiftedByWhoPlacedIt) {
  const World world;
  const Hold hold{"a", "restore", "set X is being restored"}, other{"b", "export", "moved"};
  EXPECT_FALSE(read_hold(world.state).value());
  ASSERT_TRUE(place_hold(world.state, hold));
  ASSERT_TRUE(place_hold(world.state, hold));
  EXPECT_EQ(read_hold(world.state).value(), hold);
  EXPECT_EQ(place_hold(world.state, other).error().code, Code::Conflict);
  EXPECT_EQ(lift_hold(world.state, "b").error().code, Code::Conflict);
  EXPECT_FALSE(is_held(world.state, "a"));
  ASSERT_TRUE(note_held(world.state, "a"));
  EXPECT_TRUE(is_held(world.state, "a"));
  EXPECT_FALSE(is_held(world.state, "b"));
  ASSERT_TRUE(lift_hold(world.state, "a"));
  EXPECT_FALSE(is_held(world.state, "a"));
  ASSERT_TRUE(lift_hold(world.state, "a"));
  EXPECT_FALSE(read_hold(world.state).value());
}

TEST(Hold, OneThatIsNotUnderstoodHoldsAndNobodyLiftsIt) {
  const World world;
  world.write(world.state + "/.fairlead-hold", "of a later version");
  ASSERT_TRUE(read_hold(world.state).value());
  EXPECT_EQ(lift_hold(world.state, "a").error().code, Code::Conflict);
  EXPECT_EQ(place_hold(world.state, {"a", "restore", ""}).error().code, Code::Conflict);
}

TEST(Sets, NamesAreTimes) {
  const Instant at = *parse_time("2026-11-22T00:15:00Z");
  EXPECT_EQ(set_name(at), "20261122T001500Z");
  EXPECT_EQ(set_time("20261122T001500Z"), at);
  for (const char* wrong : {"", "..", "20261122T001500Y", "20261322T001500Z", ".20261122T001500Z.partial", "20261122T001500Z/"}) EXPECT_FALSE(set_time(wrong)) << wrong;
}

TEST(Sets, TheOldestGoAndThoseOfTheFutureCountForNothing) {
  const Instant now = *parse_time("2026-11-22T00:15:00Z");
  const std::vector<std::string> names = {"20261122T001000Z", "20261121T001000Z", "20361121T001000Z", "20261120T001000Z", "what"};
  EXPECT_THAT(sets_to_remove(names, 2, now), ElementsAre("20261120T001000Z"));
  EXPECT_THAT(sets_to_remove(names, 0, now), ElementsAre("20261120T001000Z", "20261121T001000Z"));  // one stays
  EXPECT_THAT(sets_to_remove(names, 7, now), IsEmpty());
}

TEST(Sets, HasStateDatabaseAndSharedRoot) {
  World world;
  auto set = make_set(world.options());
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_THAT(set->parts, ElementsAre("state", "database", "jail"));
  EXPECT_EQ(set->next_id, 41u);
  EXPECT_EQ(set->cluster, "demo");
  const std::string path = world.folder + "/sets/" + set->name;
  EXPECT_EQ(read_file(path + "/state/job_state").value_or("none"), job_state(41, "jobs"));
  EXPECT_EQ(read_file(path + "/state/hash.1/job.41/script").value_or("none"), "#!/bin/sh");
  EXPECT_EQ(read_file(path + "/jail/home/ada/paper").value_or("none"), "draft");
  EXPECT_FALSE(exists(path + "/jail/restored"));
  EXPECT_FALSE(exists(path + "/jail/versions/old"));
  EXPECT_EQ(read_file(path + "/jail/versions/v1/etc/passwd").value_or("none"), "root");
  EXPECT_TRUE(check_set(world.folder, *set, set->parts));
  EXPECT_EQ(number_of(set->card, "database.last-id"), 40);
}

TEST(Sets, OfElectedHeadsIsTheHighestTerm) {
  World world;
  world.elect(12);
  auto set = make_set(world.options());
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_TRUE(exists(world.folder + "/sets/" + set->name + "/state/hash.1/job.41/script"));
  EXPECT_FALSE(exists(world.folder + "/sets/" + set->name + "/state/fairlead-holder"));
}

TEST(Sets, AFileThatIsBeingExchangedIsTakenFromItsOldOne) {
  World world;
  ASSERT_EQ(::rename((world.state + "/node_state").c_str(), (world.state + "/node_state.old").c_str()), 0);
  world.write(world.state + "/node_state.new", "half");
  auto set = make_set(world.options());
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(read_file(world.folder + "/sets/" + set->name + "/state/node_state").value_or("none"), "nodes");
  EXPECT_FALSE(exists(world.folder + "/sets/" + set->name + "/state/node_state.new"));
  EXPECT_FALSE(exists(world.folder + "/sets/" + set->name + "/state/node_state.old"));
}

TEST(Sets, WhatDidNotChangeInTheSharedRootIsLinkedAndWhatDidIsCopied) {
  World world;
  world.age_files();
  auto first = make_set(world.options());
  ASSERT_TRUE(first);
  world.write(world.jail + "/home/ada/paper", "final");
  world.now += std::chrono::hours(1);
  auto second = make_set(world.options());
  ASSERT_TRUE(second) << second.error().message;
  const auto inode = [&](const SetInfo& set, const char* file) {
    struct stat info {};
    EXPECT_EQ(::stat((world.folder + "/sets/" + set.name + "/jail" + file).c_str(), &info), 0);
    return info.st_ino;
  };
  EXPECT_EQ(inode(*first, "/versions/v1/etc/passwd"), inode(*second, "/versions/v1/etc/passwd"));
  EXPECT_NE(inode(*first, "/home/ada/paper"), inode(*second, "/home/ada/paper"));
  EXPECT_EQ(read_file(world.folder + "/sets/" + first->name + "/jail/home/ada/paper").value_or("none"), "draft");
  EXPECT_EQ(read_file(world.folder + "/sets/" + second->name + "/jail/home/ada/paper").value_or("none"), "final");
  ASSERT_TRUE(remove_set(world.folder, first->name));
  EXPECT_TRUE(check_set(world.folder, *second, second->parts));
}

TEST(Sets, ALinkToWhatHasRottedIsSeenAndTheNextSetCopiesAnew) {
  World world;
  world.age_files();
  auto first = make_set(world.options());
  ASSERT_TRUE(first);
  world.write_in_place(world.folder + "/sets/" + first->name + "/jail/versions/v1/etc/passwd", "xxxx");
  EXPECT_EQ(check_set(world.folder, *first, {"jail"}).error().code, Code::Invalid);
  world.now += std::chrono::hours(1);
  auto second = make_set(world.options());
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("etc/passwd"));
  second = make_set(world.options());
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(read_file(world.folder + "/sets/" + second->name + "/jail/versions/v1/etc/passwd").value_or("none"), "root");
}

TEST(Sets, DamageIsFound) {
  for (const char* file : {"/state/job_state", "/state.manifest", "/database.sql.gz", "/jail/home/ada/paper", "/set"}) {
    World world;
    auto set = make_set(world.options());
    ASSERT_TRUE(set);
    const std::string path = world.folder + "/sets/" + set->name + file;
    std::string bytes = *read_file(path);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    world.write_in_place(path, bytes);
    auto again = read_set(world.folder, set->name);
    EXPECT_FALSE(again && check_set(world.folder, *again, again->parts)) << file;
  }
}

TEST(Sets, KilledAtAnyStepThereIsNoneOrAWholeOne) {
  int steps = 0;
  for (int at = 0; at <= steps; ++at) {
    World world;
    int n = 0;
    auto options = world.options();
    options.on_step = [&] {
      if (n++ == at) throw Killed();
    };
    try {
      ASSERT_TRUE(make_set(options));
    } catch (const Killed&) {
    }
    steps = std::max(steps, n);
    for (const std::string& name : set_names(world.folder)) {
      auto set = read_set(world.folder, name);
      ASSERT_TRUE(set && check_set(world.folder, *set, set->parts));
    }
    world.now += std::chrono::minutes(1);
    ASSERT_TRUE(make_set(world.options()));
    EXPECT_EQ(list_dir(world.folder + "/sets")->size(), set_names(world.folder).size());  // nothing half is left
  }
  EXPECT_GT(steps, 4);
}

TEST(Sets, WithoutRoomNothingIsWritten) {
  World world;
  auto options = world.options();
  options.free_bytes = [](const std::string&) { return std::uint64_t{1} << 20; };
  auto set = make_set(options);
  EXPECT_EQ(set.error().code, Code::Exhausted);
  EXPECT_THAT(set.error().message, HasSubstr("spec.extensions.backup.parts"));
  EXPECT_THAT(*list_dir(world.folder + "/sets"), IsEmpty());
}

TEST(Sets, WithoutAStateOrADumpThereIsNone) {
  World world;
  auto options = world.options();
  options.dump = [](const std::string&) -> Result<Card> { return fail(Code::Unavailable, "the database is away"); };
  EXPECT_THAT(make_set(options).error().message, HasSubstr("the database is away"));
  EXPECT_THAT(*list_dir(world.folder + "/sets"), IsEmpty());
  ASSERT_TRUE(remove_tree(world.state));
  ASSERT_TRUE(make_dirs(world.state));
  EXPECT_EQ(make_set(world.options()).error().code, Code::NotFound);
}

TEST(Sets, AreDueByTheIntervalOrByTheClock) {
  const auto at = [](const char* text) { return *parse_time(text); };
  Settings settings;
  settings.interval = std::chrono::hours(1);
  EXPECT_EQ(settings.due_after(at("2026-11-22T03:00:00Z")), at("2026-11-22T04:00:00Z"));
  EXPECT_TRUE(settings.fresh(at("2026-11-22T03:00:00Z"), at("2026-11-22T04:59:59Z")));
  EXPECT_FALSE(settings.fresh(at("2026-11-22T03:00:00Z"), at("2026-11-22T05:00:00Z")));
  ASSERT_EQ(::setenv("FAIRLEAD_SET_SCHEDULE", "30 3 * * 1-5", 1), 0);
  const Settings nightly;
  ::unsetenv("FAIRLEAD_SET_SCHEDULE");
  ASSERT_TRUE(nightly.schedule);
  // A Friday's set: the next is due on Monday, and it is old when Tuesday's should be there.
  EXPECT_EQ(nightly.due_after(at("2026-11-20T03:30:00Z")), at("2026-11-23T03:30:00Z"));
  EXPECT_TRUE(nightly.fresh(at("2026-11-20T03:30:00Z"), at("2026-11-24T03:29:59Z")));
  EXPECT_FALSE(nightly.fresh(at("2026-11-20T03:30:00Z"), at("2026-11-24T03:30:00Z")));
  settings.schedule = Cron{};  // names no time at all
  EXPECT_EQ(settings.due_after(at("2026-11-22T03:00:00Z")), Instant::max());
  EXPECT_TRUE(settings.fresh(at("2026-11-22T03:00:00Z"), at("2026-11-30T03:00:00Z")));
}

}  // namespace
}  // namespace fairlead::companion
