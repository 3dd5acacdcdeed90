// SPDX-License-Identifier: GPL-3.0-or-later
#include "versions.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "base/files.h"

namespace fairlead::companion {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

using Uses = std::map<std::string, std::set<std::string>>;

TEST(Versions, OnlyWhatNobodyUsesGoes) {
  const std::vector<std::string> there = {"a", "b", "c", "d"}, history = {"a", "b", "c", "d"};
  EXPECT_THAT(plan_removal(there, history, "d", 1, Uses{{"w", {"d"}}}, {"w"}).remove, ElementsAre("a", "b"));
  EXPECT_THAT(plan_removal(there, history, "d", 0, Uses{{"w", {"d"}}}, {"w"}).remove, ElementsAre("a", "b", "c"));
  const auto used = plan_removal(there, history, "d", 1, Uses{{"w", {"d", "a"}}}, {"w"});
  EXPECT_THAT(used.remove, ElementsAre("b"));
  EXPECT_THAT(used.kept, ElementsAre("a: w uses it"));
}

TEST(Versions, UnknownIsInUse) {
  const auto silent = plan_removal({"a", "b", "c"}, {"a", "b", "c"}, "c", 1, Uses{{"w", {"c"}}}, {"w", "x"});
  EXPECT_THAT(silent.remove, IsEmpty());
  EXPECT_THAT(silent.kept, ElementsAre("a: x has not said what it uses"));
  // A node that nobody names any more counts as well.
  EXPECT_THAT(plan_removal({"a", "b", "c"}, {"a", "b", "c"}, "c", 1, Uses{{"gone", {"a"}}}, {}).remove, IsEmpty());
}

TEST(Versions, TheOneBeforeStaysAfterAWayBack) {
  // c was tried and taken back: b is current, c served last before it.
  EXPECT_THAT(plan_removal({"a", "b", "c"}, {"a", "c", "b"}, "b", 1, Uses{}, {}).remove, ElementsAre("a"));
}

TEST(Versions, RecordsAreReadAsTheyWereWritten) {
  char name[] = "/dev/shm/fairlead-versions-XXXXXX";
  const std::string volume = ::mkdtemp(name);
  EXPECT_THAT(*read_uses(volume), IsEmpty());
  for (const char* version : {"a", "b", "a"}) EXPECT_TRUE(note_current(volume, version));
  EXPECT_THAT(*read_history(volume), ElementsAre("b", "a"));
  // What cannot be read is not empty: the order would be lost.
  EXPECT_EQ(::rename((volume + "/.fairlead-jail.history").c_str(), (volume + "/aside").c_str()), 0);
  EXPECT_TRUE(make_dirs(volume + "/.fairlead-jail.history"));
  EXPECT_FALSE(read_history(volume));
  EXPECT_FALSE(note_current(volume, "b"));
  (void)remove_tree(volume + "/.fairlead-jail.history");
  EXPECT_TRUE(note_use(volume, "worker-0", {"a", "b"}));
  EXPECT_TRUE(note_use(volume, "login-0", {}));
  EXPECT_FALSE(note_use(volume, "../x", {}));
  EXPECT_THAT(*read_uses(volume), ElementsAre(Pair("login-0", IsEmpty()), Pair("worker-0", ElementsAre("a", "b"))));
  EXPECT_TRUE(write_file_atomically(volume + "/.fairlead-jail.nodes/worker-1", "a\nb", 0644));  // cut off
  EXPECT_FALSE(read_uses(volume));
  (void)remove_tree(volume);
}

}  // namespace
}  // namespace fairlead::companion
