// SPDX-License-Identifier: GPL-3.0-or-later
#include "cluster_move.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "copy_tree.h"
#include "hold.h"
#include "job_state.h"
#include "sets_test_world.h"
#include "terms.h"

using testing::HasSubstr;

namespace fairlead::companion {
namespace {

// A cluster that moves, and the place that it moves to.
struct Move {
  World from, to;
  bool set_fails = false;
  int kill_at = -1, steps = 0, restores = 0;
  std::string database = "empty", last_code;
  int codes = 0;

  explicit Move(bool elected) {
    if (elected) from.elect(7);
    EXPECT_TRUE(remove_tree(to.state));
    EXPECT_TRUE(make_dirs(to.state));
  }
  void step() {
    if (steps++ == kill_at) throw Killed();
  }
  ExportCluster source() {
    return {.folder = from.folder, .state = from.state, .cluster = "demo",
            .make = [this]() -> Result<SetInfo> {
              if (set_fails) return fail(Code::Exhausted, "no room");
              auto options = from.options();
              options.jail.clear();
              options.now = from.now += std::chrono::seconds(1);
              return make_set(options);
            },
            .new_code = [this]() -> Result<std::string> { return last_code = fmt::format("{:064x}", ++codes); }, .on_step = [this] { step(); }, .now = from.now};
  }
  ImportCluster target() {
    RestoreSet restore{.folder = to.folder, .state = to.state, .jail = "", .cluster = "demo",
                       .restore_database = [this](const Card&) -> Result<Card> {
                         database = "filled";
                         return Card{{"last-id", "0"}};
                       },
                       .withdraw = {}, .on_step = [this] { step(); }, .free_bytes = {}, .now = to.now};
    return {.folder = to.folder, .state = to.state, .cluster = "demo",
            .unpack = [this](const std::string&, const std::string& at) -> Result<void> {
              const std::string set = value_of(*read_import(to.folder), "set");
              EXPECT_TRUE(make_dirs(at + "/" + set));
              return copy_whole(from.folder + "/sets/" + set, at + "/" + set);
            },
            .on_step = [this] { step(); }, .restore = restore, .restore_id = "r" + std::to_string(restores++)};
  }
  void head() const {
    if (auto hold = read_hold(from.state); hold && *hold) {
      EXPECT_TRUE(note_held(from.state, (*hold)->id));
    }
  }
  // Until nothing is left to do by itself.
  bool export_rounds() {
    for (int i = 0; i < 40; ++i) {
      auto done = carry_on_export(source());
      if (done && *done) return true;
      head();
    }
    return false;
  }
  std::string step_of_export() const {
    auto card = read_export(from.folder);
    return card ? value_of(*card, "step") : "";
  }
  Imported archive() const {
    auto card = read_export(from.folder);
    return {.id = value_of(*card, "id"), .cluster = "demo", .sum = value_of(*card, "sum"), .set = value_of(*card, "set"), .bytes = 5};
  }
  bool fill(const Imported& what) {
    if (!begin_import(target(), what)) return false;
    if (auto card = read_import(to.folder); card && value_of(*card, "step") == "fill") {
      EXPECT_TRUE(put_import(target(), what.id, 2, "cde"));
      EXPECT_TRUE(put_import(target(), what.id, 0, "ab"));
    }
    for (int i = 0; i < 60; ++i) {
      auto done = fill_import(target(), what.id);
      if (done && *done) return true;
      if (!done && done.error().code != Code::Unavailable) return false;
      (void)carry_on_restore(target().restore);
    }
    return false;
  }
  bool source_may_run() const { return !*read_hold(from.state); }
  bool target_may_run() const { return !*read_hold(to.state) && find_state(to.state).has_value(); }
  bool given_away() const {
    auto hold = read_hold(from.state);
    return hold && *hold && (*hold)->kind == "moved";
  }
  std::string target_jobs() const { return read_job_state_file(to.state)->substr(35); }
};

class Moves : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Heads, Moves, testing::Bool(), [](const auto& row) { return row.param ? "elected" : "alone"; });

TEST_P(Moves, WithItsQueueAndIdsAndOnlyOneRuns) {
  Move move(GetParam());
  ASSERT_TRUE(begin_export(move.source(), "e1"));
  EXPECT_FALSE(hand_over(move.source()).has_value()) << "before a head has said that slurmctld ended";
  ASSERT_TRUE(move.export_rounds());
  ASSERT_EQ(move.step_of_export(), "ready");
  EXPECT_FALSE(move.source_may_run());
  if (GetParam()) {
    EXPECT_EQ(*find_state(move.from.state)->term, 8u) << "who still believes that it serves has lost its path";
  }
  EXPECT_EQ(begin_restore(move.target().restore, "x", {"state"}, "r").error().code, Code::NotFound);

  const Imported what = move.archive();
  ASSERT_TRUE(move.fill(what));
  EXPECT_FALSE(move.target_may_run());
  EXPECT_EQ(move.target_jobs(), "jobs");
  EXPECT_EQ(read_job_state(*read_job_state_file(move.to.state))->next_id, 41u);
  EXPECT_EQ(move.database, "filled");
  EXPECT_FALSE(exists(move.to.folder + "/import.tar"));
  EXPECT_EQ(open_import(move.target(), std::string(64, 'b')).error().code, Code::Forbidden);
  EXPECT_EQ(open_import(move.target(), "").error().code, Code::Forbidden);
  EXPECT_FALSE(move.target_may_run());

  auto code = hand_over(move.source());
  ASSERT_TRUE(code);
  EXPECT_EQ(*hand_over(move.source()), *code) << "it may be asked for again";
  EXPECT_EQ(abort_export(move.source()).error().code, Code::Conflict);
  EXPECT_EQ(begin_export(move.source(), "e2").value()["id"], "e1");
  RestoreSet back{.folder = move.from.folder, .state = move.from.state, .jail = "", .cluster = "demo", .restore_database = {}, .withdraw = {}, .on_step = {}, .free_bytes = {}, .now = move.from.now};
  EXPECT_EQ(begin_restore(back, what.set, {"state"}, "r9").error().code, Code::Conflict) << "a restore is no way back";
  ASSERT_TRUE(open_import(move.target(), *code));
  ASSERT_TRUE(open_import(move.target(), *code));
  EXPECT_TRUE(move.target_may_run());
  EXPECT_TRUE(move.given_away());
}

TEST_P(Moves, AreAbortedBeforeTheHandOverAndNobodyLearnsTheCode) {
  Move move(GetParam());
  ASSERT_TRUE(begin_export(move.source(), "e1"));
  ASSERT_TRUE(move.export_rounds());
  const Imported what = move.archive();
  ASSERT_TRUE(move.fill(what));
  ASSERT_TRUE(abort_export(move.source()));
  EXPECT_THAT(*read_file(move.from.folder + "/export"), testing::Not(HasSubstr(move.last_code)));
  EXPECT_FALSE(hand_over(move.source()).has_value());
  ASSERT_TRUE(move.export_rounds());
  EXPECT_TRUE(move.source_may_run());
  EXPECT_FALSE(move.target_may_run());
  EXPECT_EQ(hand_over(move.source()).error().code, Code::NotFound);
  EXPECT_EQ(abort_export(move.source()).error().code, Code::NotFound);
  EXPECT_THAT(set_names(move.from.folder), testing::IsEmpty()) << "its set has no shared root, and no set follows such a one";
  EXPECT_EQ(value_of(*read_export_outcome(move.from.folder, "e1"), "error"), "");
}

TEST(Move, WithoutRoomIsAborted) {
  Move move(false);
  move.set_fails = true;
  ASSERT_TRUE(begin_export(move.source(), "e1"));
  ASSERT_TRUE(move.export_rounds());
  EXPECT_TRUE(move.source_may_run());
  EXPECT_EQ(value_of(*read_export_outcome(move.from.folder, "e1"), "error"), "no room");
}

TEST(Move, WithoutAHeadThatSaysSlurmctldEndedIsAborted) {
  Move move(false);
  ASSERT_TRUE(begin_export(move.source(), "e1"));
  for (int i = 0; i < 20; ++i) {
    (void)carry_on_export(move.source());
    move.from.now += std::chrono::seconds(60);
  }
  EXPECT_TRUE(move.source_may_run());
  EXPECT_THAT(value_of(*read_export_outcome(move.from.folder, "e1"), "error"), HasSubstr("waits until a head says"));
}

TEST(Move, GoesIntoAnEmptyClusterOfTheSameNameAlone) {
  Move move(false);
  ASSERT_TRUE(begin_export(move.source(), "e1"));
  ASSERT_TRUE(move.export_rounds());
  Imported what = move.archive();
  World::fill_state(move.to.state, 3);
  EXPECT_THAT(begin_import(move.target(), what).error().message, HasSubstr("has a state of slurmctld already"));
  EXPECT_FALSE(read_hold(move.to.state).value()) << "what runs there is not stopped";
  ASSERT_TRUE(remove_tree(move.to.state));
  ASSERT_TRUE(make_dirs(move.to.state));
  what.cluster = "other";
  EXPECT_THAT(begin_import(move.target(), what).error().message, HasSubstr("keeps its name"));
  what = move.archive();
  ASSERT_TRUE(begin_import(move.target(), what));
  what.sum = std::string(64, 'c');
  EXPECT_EQ(begin_import(move.target(), what).error().code, Code::Conflict) << "nobody changes the code afterwards";
  EXPECT_EQ(put_import(move.target(), what.id, 4, "xy").error().code, Code::Invalid);
  EXPECT_EQ(fill_import(move.target(), what.id).error().code, Code::Invalid) << "the archive is not whole";
  EXPECT_EQ(open_import(move.target(), move.last_code).error().code, Code::Conflict) << "not filled";
}

TEST(Move, ADamagedArchiveFillsNothing) {
  Move move(false);
  ASSERT_TRUE(begin_export(move.source(), "e1"));
  ASSERT_TRUE(move.export_rounds());
  const Imported what = move.archive();
  World::write_in_place(move.from.folder + "/sets/" + what.set + "/state/job_state", "rotten");
  EXPECT_FALSE(move.fill(what));
  EXPECT_FALSE(find_state(move.to.state).has_value());
  EXPECT_FALSE(move.target_may_run());
}

// The whole of a move, killed before each change once, and typed again from the beginning.
TEST_P(Moves, KilledBeforeAnyStepGoOnWhenTypedAgain) {
  int steps = 0;
  for (int at = 0; at <= steps; ++at) {
    Move move(GetParam());
    move.kill_at = at;
    bool told = false;
    const auto all = [&] {
      if (!begin_export(move.source(), "e1")) return false;
      if (!move.export_rounds()) return false;
      const Imported what = move.archive();
      if (!move.fill(what)) return false;
      auto code = hand_over(move.source());
      if (!code) return false;
      told = true;
      EXPECT_TRUE(move.given_away());
      return open_import(move.target(), *code).has_value();
    };
    bool done = false;
    for (int i = 0; i < 5 && !done; ++i) {
      try {
        done = all();
      } catch (const Killed&) {
      }
      EXPECT_FALSE(move.source_may_run() && move.target_may_run()) << "step " << at;
      if (move.target_may_run()) {
        EXPECT_TRUE(told) << "step " << at;
      }
    }
    EXPECT_TRUE(done) << "step " << at;
    EXPECT_EQ(move.target_jobs(), "jobs");
    EXPECT_TRUE(move.target_may_run());
    steps = std::max(steps, move.steps - 1);
    if (at > 200) break;
  }
  EXPECT_GT(steps, 15);
}

// Anybody types anything, in any order, and is killed anywhere.
TEST(MoveProperty, AtMostOneEverRuns) {
  int opened = 0, aborted = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    Move move(seed % 2 == 0);
    std::string code;
    std::optional<Imported> archive;
    for (int i = 0; i < 40; ++i) {
      move.steps = 0;
      move.kill_at = random() % 3 == 0 ? static_cast<int>(random() % 8) : -1;
      try {
        switch (random() % 9) {
          case 0: (void)begin_export(move.source(), "e" + std::to_string(i)); break;
          case 1: case 2: (void)carry_on_export(move.source()); break;
          case 3: move.head(); break;
          case 4: if (random() % 4 == 0) (void)abort_export(move.source()); break;
          case 5:
            if (random() % 2 == 0)
              if (auto told = hand_over(move.source())) code = *told;
            break;
          case 6: if (move.step_of_export() == "ready" || move.step_of_export() == "moved") archive = move.archive(); break;
          case 7: if (archive) (void)move.fill(*archive); break;
          default: (void)open_import(move.target(), code); break;
        }
      } catch (const Killed&) {
      }
      ASSERT_FALSE(move.source_may_run() && move.target_may_run()) << "seed " << seed;
      if (!code.empty()) {
        ASSERT_TRUE(move.given_away()) << "seed " << seed;
      }
    }
    opened += move.target_may_run();
    aborted += exists(move.from.folder + "/exports");
  }
  EXPECT_GT(opened, 0);
  EXPECT_GT(aborted, 0);
}

}  // namespace
}  // namespace fairlead::companion
