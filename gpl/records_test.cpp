// SPDX-License-Identifier: GPL-3.0-or-later
#include "records.h"

#include <gmock/gmock.h>

namespace fairlead::companion {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Case {
  const char *name, *base, *mine, *theirs, *text;
  std::vector<std::string> carried, conflicts;
};
class MergePeople : public testing::TestWithParam<Case> {};
TEST_P(MergePeople, ThreeWays) {
  const auto& c = GetParam();
  const auto merged = merge_records(Records::Named, c.base, c.mine, c.theirs);
  EXPECT_EQ(merged.text, c.text);
  EXPECT_EQ(merged.carried, c.carried);
  EXPECT_EQ(merged.conflicts, c.conflicts);
}
INSTANTIATE_TEST_SUITE_P(
    Cases, MergePeople,
    testing::Values(Case{"both_added", "r:x:0:0\n", "r:x:0:0\nada:x:1000:1\n", "r:x:0:0\nnew:x:101:1\n", "r:x:0:0\nnew:x:101:1\nada:x:1000:1\n", {"ada"}, {}},
                    Case{"changed_here", "r:x:0:0:sh\n", "r:x:0:0:zsh\n", "r:x:0:0:sh\n", "r:x:0:0:zsh\n", {"r"}, {}},
                    Case{"changed_there", "r:x:0:0:sh\n", "r:x:0:0:sh\n", "r:x:0:0:zsh\n", "r:x:0:0:zsh\n", {}, {}},
                    Case{"changed_on_both_sides", "r:x:0:0:sh\n", "r:x:0:0:zsh\n", "r:x:0:0:fish\n", "r:x:0:0:fish\n", {}, {"r: changed here and in the new image"}},
                    Case{"changed_alike", "r:x:0:0:sh\n", "r:x:0:0:zsh\n", "r:x:0:0:zsh\n", "r:x:0:0:zsh\n", {}, {}},
                    Case{"removed_here", "r:x:0:0\ngames:x:5:5\n", "r:x:0:0\n", "r:x:0:0\ngames:x:5:5\n", "r:x:0:0\n", {}, {}},
                    Case{"removed_here_changed_there", "g:x:5:5\n", "", "g:x:6:5\n", "g:x:6:5\n", {}, {"g: removed here, changed in the new image"}},
                    Case{"gone_there", "r:x:0:0\ngames:x:5:5\n", "r:x:0:0\ngames:x:5:5\n", "r:x:0:0\n", "r:x:0:0\n", {}, {}},
                    Case{"changed_here_gone_there", "g:x:5:5\n", "g:x:5:5:a\n", "", "", {}, {"g: changed here, gone from the new image"}},
                    Case{"added_differently", "", "db:x:104:1\n", "db:x:105:1\n", "db:x:105:1\n", {}, {"db: added here and in the new image"}},
                    Case{"one_number_for_two", "", "db:x:104:a\n", "bus:x:104:a\n", "bus:x:104:a\ndb:x:104:a\n", {"db"}, {"db: has number 104, which is bus's in the new image"}}),
    [](const auto& of) { return of.param.name; });

TEST(MergePackages, KeepsWhatEachSideInstalled) {
  const std::string base = "Package: sh\nArchitecture: amd64\nVersion: 1\n\n";
  const auto merged = merge_records(Records::Stanzas, base, base + "Package: jq\nArchitecture: amd64\nVersion: 3\nDescription: x\n y\n\n", "Package: sh\nArchitecture: amd64\nVersion: 2\n\nPackage: new\nArchitecture: all\nVersion: 1\n");
  EXPECT_THAT(merged.carried, ElementsAre("jq:amd64"));
  EXPECT_THAT(merged.conflicts, IsEmpty());
  EXPECT_EQ(merged.text, "Package: sh\nArchitecture: amd64\nVersion: 2\n\nPackage: new\nArchitecture: all\nVersion: 1\n\nPackage: jq\nArchitecture: amd64\nVersion: 3\nDescription: x\n y\n\n");
}

TEST(MergeLines, OfShadowAreNoNumbers) {
  // The third field is the day of the last change.
  EXPECT_THAT(merge_records(Records::Named, "", "ada:!:19000:0:99999:7:::\n", "bus:!:19000:0:99999:7:::\n").conflicts, IsEmpty());
  EXPECT_EQ(merge_records(Records::Lines, "/bin/sh\n", "/bin/sh\n/bin/zsh\n", "/bin/sh\n/bin/fish\n").text, "/bin/sh\n/bin/fish\n/bin/zsh\n");
}

}  // namespace
}  // namespace fairlead::companion
