// SPDX-License-Identifier: GPL-3.0-or-later
#include "set_restore.h"

#include <gmock/gmock.h>

#include "hold.h"
#include "job_state.h"
#include "sets_jail.h"
#include "sets_test_world.h"
#include "terms.h"

using testing::HasSubstr;

namespace fairlead::companion {
namespace {

const std::vector<std::string> kAll = {"state", "database", "jail"};

// A cluster of which there is a set, and which has gone on since.
struct Gone : World {
  std::string set, database = "newer";
  bool elected;
  int asked = 0;

  explicit Gone(bool heads) : elected(heads) {
    if (elected) elect(7);
    auto made = make_set(options());
    EXPECT_TRUE(made);
    set = made->name;
    const std::string at = find_state(state)->path;
    write(at + "/job_state", job_state(99, "newer"));
    write(at + "/qos_usage", "of now");
    write(jail + "/home/ada/paper", "final");
  }
  RestoreSet restore() {
    return {.folder = folder, .state = state, .jail = jail, .cluster = "demo",
            .restore_database = [this](const Card&) -> Result<Card> {
              if (asked++ == 0) return fail(Code::Unavailable, "not yet");
              database = "older";
              return Card{{"last-id", "97"}, {"kept", "accounting-x"}};
            },
            .withdraw = {}, .on_step = {}, .free_bytes = {}, .now = now};
  }
  // The companion of the head: obeys a hold.
  void head() const {
    auto hold = read_hold(state);
    if (hold && *hold) {
      EXPECT_TRUE(note_held(state, (*hold)->id));
    }
  }
  // Until it has ended; a head is there.
  void finish() {
    for (int i = 0; i < 50; ++i) {
      auto ended = carry_on_restore(restore());
      if (ended && *ended) return;
      head();
    }
    ADD_FAILURE() << "it does not end";
  }
  std::uint32_t next_id() const {
    auto at = find_state(state);
    auto bytes = at ? read_job_state_file(at->path) : Result<std::string>(std::unexpected(at.error()));
    return bytes ? read_job_state(*bytes)->next_id : 0;
  }
  std::string jobs() const { return read_job_state_file(find_state(state)->path)->substr(35); }
  void expect_restored(std::uint32_t at_least) const {
    EXPECT_EQ(jobs(), "jobs");
    EXPECT_GE(next_id(), at_least);
    EXPECT_FALSE(exists(find_state(state)->path + "/qos_usage"));
    EXPECT_EQ(read_file(find_state(state)->path + "/hash.1/job.41/script").value_or("none"), "#!/bin/sh");
    EXPECT_EQ(database, "older");
    EXPECT_EQ(read_file(jail + "/home/ada/paper").value_or("none"), "final");  // never overwritten
    EXPECT_EQ(read_file(jail + "/restored/" + set + "/home/ada/paper").value_or("none"), "draft");
    EXPECT_FALSE(read_hold(state).value());
    EXPECT_EQ(read_intent(folder).error().code, Code::NotFound);
    // What was replaced is kept.
    const std::string id = list_dir(state + "/.fairlead-replaced")->at(0), aside = state + "/.fairlead-replaced/" + id + (elected ? "/term-7" : "");
    EXPECT_EQ(read_file(aside + "/job_state").value_or("none"), job_state(99, "newer"));
    EXPECT_EQ(read_file(aside + "/qos_usage").value_or("none"), "of now");
    if (elected) {
      EXPECT_EQ(*find_state(state)->term, 8u);
    }
    const auto left = list_dir(state).value();
    for (const std::string& name : left) EXPECT_THAT(name, testing::Not(HasSubstr("restore-"))) << name;
  }
};

class Restores : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Heads, Restores, testing::Bool(), [](const auto& row) { return row.param ? "elected" : "alone"; });

TEST_P(Restores, BringTheSetBackAndNoIdASecondTime) {
  Gone world(GetParam());
  ASSERT_TRUE(begin_restore(world.restore(), world.set, kAll, "r1"));
  world.finish();
  world.expect_restored(99);
  EXPECT_EQ(world.next_id(), 99u);
  auto outcome = read_outcome(world.folder, "r1");
  ASSERT_TRUE(outcome);
  EXPECT_EQ(value_of(*outcome, "outcome"), "done");
  EXPECT_EQ(value_of(*outcome, "database.kept"), "accounting-x");
}

TEST_P(Restores, TheNewestOfWhatWasPutAsideStay) {
  Gone world(GetParam());
  const std::string aside = world.state + "/.fairlead-replaced/";
  for (const char* name : {"20261101T000000Z-1", "20261102T000000Z-1", "20261103T000000Z-1", "of-ada"}) EXPECT_TRUE(make_dirs(aside + name + "/hash.1"));
  ASSERT_TRUE(begin_restore(world.restore(), world.set, kAll, "20261104T000000Z-5"));
  world.finish();
  EXPECT_THAT(list_dir(aside).value(), testing::UnorderedElementsAre("20261102T000000Z-1", "20261103T000000Z-1", "20261104T000000Z-5", "of-ada"));
}

TEST_P(Restores, KilledBeforeAnyStepGoOnWhereTheyWere) {
  int steps = 0;
  for (int at = 0; at <= steps; ++at) {
    Gone world(GetParam());
    int n = 0;
    auto options = world.restore();
    options.on_step = [&] {
      if (n++ == at) throw Killed();
    };
    bool begun = false;
    try {
      begun = begin_restore(options, world.set, kAll, "r1").has_value();
      for (int i = 0; i < 50; ++i) {
        auto ended = carry_on_restore(options);
        // While there is no state or half of it, there is a hold, or no head would find one.
        if (ended && *ended) break;
        world.head();
      }
    } catch (const Killed&) {
      begun = read_intent(world.folder).has_value() || read_outcome(world.folder, "r1").has_value();
      auto at_now = find_state(world.state);
      if (!at_now || world.next_id() < 99) {
        EXPECT_TRUE(read_hold(world.state).value()) << "step " << at;
      }
    }
    steps = std::max(steps, n);
    if (!begun) {  // killed before the intent: nothing has changed
      EXPECT_EQ(world.next_id(), 99u);
      EXPECT_EQ(world.database, "newer");
      continue;
    }
    world.finish();
    world.expect_restored(99);
  }
  EXPECT_GT(steps, 15);
}

TEST(Restore, IdsGoOnAboveWhateverIsKnown) {
  struct Case {
    std::uint32_t live, mark;
    const char* database;
    std::uint32_t want;
  };
  for (const Case& row : {Case{99, 0, "97", 99}, Case{99, 99, "97", 99}, Case{99, 200, "97", 200 + kIdsInDoubt}, Case{99, 0, "300", 301}, Case{10, 0, "3", 41}}) {
    Gone world(false);
    World::write(world.state + "/job_state", job_state(row.live, "newer"));
    if (row.mark) {
      ASSERT_TRUE(write_mark(world.folder, "demo", row.mark));
    }
    auto options = world.restore();
    options.restore_database = [&](const Card&) -> Result<Card> { return Card{{"last-id", row.database}}; };
    ASSERT_TRUE(begin_restore(options, world.set, {"state", "database"}, "r1"));
    for (int i = 0; i < 10; ++i) {
      auto ended = carry_on_restore(options);
      if (ended && *ended) break;
      world.head();
    }
    EXPECT_EQ(world.next_id(), row.want);
    EXPECT_EQ(read_mark_of(world.folder), row.want);
  }
}

TEST(Restore, WhereTheStateCannotBeReadIdsAreLeftOut) {
  for (const bool elected : {false, true}) {
    Gone world(elected);
    World::write(find_state(world.state)->path + "/job_state", "nothing of Slurm's");
    ASSERT_TRUE(begin_restore(world.restore(), world.set, {"state"}, "r1"));
    world.finish();
    EXPECT_EQ(world.next_id(), 41 + kIdsInDoubt);
    EXPECT_NE(value_of(*read_outcome(world.folder, "r1"), "doubt"), "");
  }
}

TEST(Restore, OfAVolumeThatHasLostEverything) {
  for (const bool elected : {false, true}) {
    Gone world(elected);
    if (elected) {
      ASSERT_TRUE(remove_tree(world.state + "/terms/7"));
    } else {
      for (const char* name : {"job_state", "node_state", "qos_usage", "hash.1"}) ASSERT_TRUE(remove_tree(world.state + "/" + name) || ::unlink((world.state + "/" + name).c_str()) == 0);
    }
    ASSERT_TRUE(write_mark(world.folder, "demo", 98));
    ASSERT_TRUE(begin_restore(world.restore(), world.set, {"state"}, "r1"));
    world.finish();
    EXPECT_EQ(world.jobs(), "jobs");
    EXPECT_EQ(world.next_id(), 98 + kIdsInDoubt);
  }
}

TEST(Restore, AHeadThatDoesNotAnswerIsNotTakenForOneThatHasEnded) {
  Gone world(false);
  ASSERT_TRUE(begin_restore(world.restore(), world.set, {"state"}, "r1"));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(carry_on_restore(world.restore()).error().code, Code::Unavailable);
  EXPECT_EQ(world.next_id(), 99u);
  world.now += std::chrono::hours(1);
  EXPECT_TRUE(*carry_on_restore(world.restore()));
  EXPECT_EQ(value_of(*read_outcome(world.folder, "r1"), "outcome"), "failed");
  EXPECT_EQ(world.next_id(), 99u);
  EXPECT_FALSE(read_hold(world.state).value());
}

TEST(Restore, ADatabaseThatRefusesLeavesEverythingAsItWas) {
  Gone world(true);
  auto options = world.restore();
  options.restore_database = [](const Card&) -> Result<Card> { return fail(Code::Invalid, "an earlier restore was interrupted"); };
  ASSERT_TRUE(begin_restore(options, world.set, {"state", "database"}, "r1"));
  for (int i = 0; i < 10; ++i) {
    auto ended = carry_on_restore(options);
    if (ended && *ended) break;
    world.head();
  }
  EXPECT_THAT(value_of(*read_outcome(world.folder, "r1"), "error"), HasSubstr("interrupted"));
  EXPECT_EQ(world.jobs(), "newer");
  EXPECT_EQ(*find_state(world.state)->term, 7u);
  EXPECT_FALSE(read_hold(world.state).value());
}

TEST(Restore, ADatabaseThatNobodyServesIsNotWaitedForWithoutEndButOneAtWorkIs) {
  for (const bool at_work : {false, true}) {
    Gone world(false);
    auto options = world.restore();
    options.restore_database = [](const Card&) -> Result<Card> { return fail(Code::Unavailable, "not yet"); };
    options.withdraw = [&](const Card&) { return !at_work; };
    ASSERT_TRUE(begin_restore(options, world.set, {"state", "database"}, "r1"));
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(carry_on_restore(options).error().code, Code::Unavailable);
      world.head();
    }
    options.now += std::chrono::hours(1);
    auto ended = carry_on_restore(options);
    EXPECT_EQ(ended && *ended, !at_work);
    EXPECT_EQ(world.next_id(), 99u);
    EXPECT_EQ(read_hold(world.state)->has_value(), at_work);
  }
}

TEST(Restore, ALinkThatUsersMadeLeadsNowhere) {
  Gone world(false);
  ASSERT_TRUE(remove_tree(world.jail + "/restored"));
  ASSERT_TRUE(make_dirs(world.top + "/elsewhere"));
  ASSERT_EQ(::symlink((world.top + "/elsewhere").c_str(), (world.jail + "/restored").c_str()), 0);
  ASSERT_TRUE(begin_restore(world.restore(), world.set, {"jail"}, "r1"));
  world.finish();
  EXPECT_NE(value_of(*read_outcome(world.folder, "r1"), "jail.error"), "");
  EXPECT_TRUE(list_dir(world.top + "/elsewhere")->empty());
}

TEST(Restore, IsRefusedBeforeAnythingChanges) {
  Gone world(false);
  EXPECT_EQ(begin_restore(world.restore(), "20200101T000000Z", kAll, "r1").error().code, Code::NotFound);
  EXPECT_EQ(begin_restore(world.restore(), "../../etc", kAll, "r1").error().code, Code::NotFound);
  EXPECT_EQ(begin_restore(world.restore(), world.set, {}, "r1").error().code, Code::Invalid);
  EXPECT_EQ(begin_restore(world.restore(), world.set, {"nothing"}, "r1").error().code, Code::NotFound);
  auto other = world.restore();
  other.cluster = "other";
  EXPECT_THAT(begin_restore(other, world.set, kAll, "r1").error().message, HasSubstr("of cluster demo"));
  auto full = world.restore();
  full.free_bytes = [](const std::string&) { return std::uint64_t{0}; };
  EXPECT_EQ(begin_restore(full, world.set, kAll, "r1").error().code, Code::Exhausted);
  ASSERT_TRUE(place_hold(world.state, {"x", "moved", "this cluster was moved away"}));
  EXPECT_EQ(begin_restore(world.restore(), world.set, kAll, "r1").error().code, Code::Conflict);
  ASSERT_TRUE(lift_hold(world.state, "x"));
  World::write_in_place(world.folder + "/sets/" + world.set + "/state/node_state", "rotten");
  EXPECT_EQ(begin_restore(world.restore(), world.set, kAll, "r1").error().code, Code::Invalid);
  EXPECT_EQ(read_intent(world.folder).error().code, Code::NotFound);
  EXPECT_FALSE(exists(world.state + "/.fairlead-restore-r1"));
}

TEST(Restore, OneAtATime) {
  Gone world(false);
  ASSERT_TRUE(begin_restore(world.restore(), world.set, {"state"}, "r1"));
  EXPECT_EQ(begin_restore(world.restore(), world.set, {"state"}, "r2").error().code, Code::Conflict);
}

}  // namespace
}  // namespace fairlead::companion
