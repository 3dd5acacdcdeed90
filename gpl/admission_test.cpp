// SPDX-License-Identifier: GPL-3.0-or-later
#include "admission.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace fairlead::companion {
namespace {

using testing::HasSubstr;

const std::string kWord = "0123abcd";

// As squeue 22.05.8 prints columns of these widths.
std::string room(const std::string& id, const std::string& tres, const std::string& per_node = "N/A", const std::string& comment = "(null)") {
  return fmt::format("{:<128}{:<160}{:<80}{:<80}{:<80}{:<20}{:<220}\n", id, tres, per_node, "N/A", "N/A", "1", comment);
}

TEST(Governed, AreReadWithWhatTheyAskFor) {
  auto jobs = read_governed(kWord + "7|PENDING|JobHeldAdmin|2|4|0|(null)|ada|1:00:00|team-a\n" + kWord + "8_3|RUNNING|None|1|2|4294901757|(null)|ada|1:00:00|(null)\n",
                            room("7", "cpu=4,mem=2G,node=2,billing=4", "gres:gpu:1", "fairlead: waits") + room("8_3", "cpu=2,mem=100M,node=1"), kWord);
  ASSERT_TRUE(jobs) << jobs.error().message;
  ASSERT_EQ(jobs->size(), 2u);
  const GovernedJob& first = jobs->at(0);
  EXPECT_EQ(first.id + " " + first.state + " " + first.reason + " " + first.user + " " + first.account + " " + first.comment, "7 PENDING JobHeldAdmin ada team-a fairlead: waits");
  ASSERT_EQ(first.parts.size(), 1u);
  EXPECT_EQ(first.parts[0].nodes, 2);
  EXPECT_EQ(first.parts[0].room.cpus, 4);
  EXPECT_EQ(first.parts[0].room.memory, 2048);
  EXPECT_EQ(first.parts[0].room.gpus, 2);
  EXPECT_EQ(jobs->at(1).id, "8_3");
  EXPECT_EQ(jobs->at(1).account, "");
  EXPECT_EQ(jobs->at(1).comment, "");
  EXPECT_EQ(first.limit_seconds, 3600);
}

TEST(Governed, LimitsAreReadAsSlurmWritesThem) {
  for (const auto& [text, seconds] : {std::pair<const char*, std::int64_t>{"5:00", 300}, {"0:30", 30}, {"1:00:00", 3600}, {"12:34:56", 45'296}, {"2-00:00:00", 172'800}, {"365-00:00:00", 31'536'000}, {"UNLIMITED", 0}, {"Partition_Limit", 0}, {"INVALID", 0}, {"", 0},
                                      {"-", 0}, {"-1:00", 0}, {"1-", 0}, {"x:00", 0}, {"1:2:3:4", 0}, {"99999999999999999999:00", 0}, {"9999999999-00:00:00", 0}})
    EXPECT_EQ(read_time_limit(text), seconds) << text;
}

TEST(Governed, HeldIsWhoHasNoPriorityWhateverTheReason) {
  struct Row { const char* line; bool held, by_user, depends; };
  for (const Row row : {Row{"PENDING|JobHeldAdmin|1|1|0|(null)", true, false, false}, Row{"PENDING|JobHeldUser|1|1|0|(null)", false, true, false}, Row{"PENDING|Dependency|1|1|0|afterok:6(unfulfilled)", true, false, true},
                        Row{"PENDING|BeginTime|1|1|0|(null)", true, false, false}, Row{"PENDING|Dependency|1|1|9|afterok:6(unfulfilled)", false, false, true}, Row{"RUNNING|None|1|1|0|(null)", false, false, false}}) {
    auto jobs = read_governed(kWord + "7|" + row.line + "|ada|1:00:00|a\n", room("7", "cpu=1"), kWord);
    ASSERT_TRUE(jobs) << jobs.error().message;
    EXPECT_EQ(jobs->at(0).held(), row.held) << row.line;
    EXPECT_EQ(jobs->at(0).held_by_user(), row.by_user) << row.line;
    EXPECT_EQ(jobs->at(0).depends, row.depends) << row.line;
  }
}

TEST(Governed, NoAccountCanPretendToBeAJob) {
  auto jobs = read_governed(kWord + "7|PENDING|JobHeldAdmin|1|1|0|(null)|eve|UNLIMITED|x|y\n8|COMPLETED|None|1|1|9|(null)|bob|UNLIMITED|team-b\n" + kWord + "8|RUNNING|None|1|1|9|(null)|bob|UNLIMITED|team-b\n", room("7", "cpu=1") + room("8", "cpu=1"), kWord);
  ASSERT_TRUE(jobs) << jobs.error().message;
  ASSERT_EQ(jobs->size(), 2u);
  EXPECT_EQ(jobs->at(0).account, "x|y 8|COMPLETED|None|1|1|9|(null)|bob|UNLIMITED|team-b");
  EXPECT_EQ(jobs->at(1).state, "RUNNING");
}

TEST(Governed, ComponentsAreOneJobAsFarAsTheFurthest) {
  auto jobs = read_governed(kWord + "7+0|PENDING|JobHeldAdmin|1|1|0||ada|1:00:00|a\n" + kWord + "7+1|COMPLETING|None|2|8|9||ada|1:00:00|a\n", room("7+0", "cpu=1") + room("7+1", "cpu=8"), kWord);
  ASSERT_TRUE(jobs) << jobs.error().message;
  ASSERT_EQ(jobs->size(), 1u);
  EXPECT_EQ(jobs->at(0).id, "7");
  EXPECT_EQ(jobs->at(0).state, "COMPLETING");
  ASSERT_EQ(jobs->at(0).parts.size(), 2u);
  EXPECT_EQ(jobs->at(0).parts[1].room.cpus, 8);
}

TEST(Governed, WhatIsNotUnderstoodIsUnknownAsAWhole) {
  for (const std::string bad : {"7|PENDING|None|1|1|9||ada|5:00", "x|PENDING|None|1|1|9||ada|1:00:00|a", "7|pending|None|1|1|9||ada|1:00:00|a", "7|PENDING|None|-1|1|9||ada|1:00:00|a", "7|PENDING|None|1|many|9||ada|1:00:00|a", "7|PENDING|None|1|1|high||ada|1:00:00|a", "7_|PENDING|None|1|1|9||ada|1:00:00|a"})
    EXPECT_FALSE(read_governed(kWord + bad + "\n", room("7", "cpu=1"), kWord)) << bad;
  EXPECT_FALSE(read_governed("7|PENDING|None|1|1|9||ada|1:00:00|a\n", "", kWord)) << "without the word";
  auto twice = read_governed(kWord + "7|PENDING|None|1|1|9||ada|1:00:00|a\n" + kWord + "7|RUNNING|None|1|1|9||ada|1:00:00|a\n", room("7", "cpu=1"), kWord);
  ASSERT_FALSE(twice);
  EXPECT_THAT(twice.error().message, HasSubstr("twice"));
  auto apart = read_governed(kWord + "7|PENDING|None|1|1|9||ada|1:00:00|a\n", room("8", "cpu=1"), kWord);
  ASSERT_TRUE(apart) << apart.error().message;
  EXPECT_TRUE(apart->empty()) << "it came in between";
  EXPECT_TRUE(read_governed("", "", kWord)->empty());
}

}  // namespace
}  // namespace fairlead::companion
