// SPDX-License-Identifier: GPL-3.0-or-later
#include "mark.h"

#include <gmock/gmock.h>

namespace fairlead::companion {
namespace {

TEST(Mark, IsReadAsItWasWrittenAndNothingElseIs) {
  const Mark mark{"0b8d-11", "node-a.site"};
  EXPECT_EQ(print_mark(mark), "fairlead:0b8d-11@node-a.site");
  EXPECT_EQ(read_mark(print_mark(mark)), mark);
  EXPECT_EQ(read_mark(print_mark(mark) + "!idle"), mark);
  EXPECT_FALSE(read_mark(print_mark(mark) + "!idle!idle"));
  for (const char* text : {"", "fairlead:", "fairlead:a", "fairlead:a@", "fairlead:@m", "fairlead:a@m b", "fairlead:a b@m", "fairlead:a@m@n", "Fairlead:a@m", "rack 7 fairlead:a@m"}) EXPECT_FALSE(read_mark(text)) << text;
}

TEST(Mark, IsTheLastOfANodesLine) {
  const auto nodes = read_nodes(
      "NodeName=worker-0 CPUAlloc=1 NodeAddr=10.1.0.7 State=MIXED Reason=old Extra=fairlead:x@y [root@2026-11-21T10:00:00] Comment=it said Extra=fairlead:x@y Extra=fairlead:u1@m1\n"
      "NodeName=worker-1 CPUAlloc=0 NodeAddr=10.1.0.8 State=IDLE\n"
      "NodeName=worker-2 CPUAlloc=0 NodeAddr=10.1.0.9 State=IDLE Extra=fairlead:u2@m2 InstanceId=i-7\n");
  ASSERT_TRUE(nodes);
  EXPECT_EQ(read_mark(nodes->at(0).extra), (Mark{"u1", "m1"}));
  EXPECT_EQ(nodes->at(1).extra, "");
  EXPECT_EQ(read_mark(nodes->at(2).extra), (Mark{"u2", "m2"}));
}

struct Row {
  const char* extra;
  bool runs;
  const char* pod;
  bool may;
};
class Speaks : public testing::TestWithParam<Row> {};
TEST_P(Speaks, OnlyForContainersOfTheOwnPod) {
  const auto& [extra, runs, pod, may] = GetParam();
  EXPECT_EQ(may_speak_for(NodeRecord{.name = "worker-0", .extra = extra}, runs, pod), may);
}
INSTANTIATE_TEST_SUITE_P(Rows, Speaks,
                         testing::Values(Row{"fairlead:u1@m1", true, "u1", true}, Row{"fairlead:u1@m1", true, "u2", false}, Row{"fairlead:u1@m1", false, "u2", true},  // nothing is at stake
                                         Row{"", true, "u2", true}, Row{"fairlead:u1@m1", true, "", true}));  // marks are not known on one side

TEST(Mark, AProofIsOfOnePodOrOneMachine) {
  const NodeRecord record{.name = "worker-0", .extra = "fairlead:u1@m1"};
  for (const char* of : {"u1@", "@m1", "u1@m1", "@"}) EXPECT_TRUE(may_be_of(record, of)) << of;
  for (const char* of : {"u2@", "@m2", "u1@m2", "u2@m1"}) EXPECT_FALSE(may_be_of(record, of)) << of;
  EXPECT_TRUE(may_be_of(NodeRecord{.name = "worker-0"}, "u2@m2"));
}

}  // namespace
}  // namespace fairlead::companion
