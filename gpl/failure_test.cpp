// SPDX-License-Identifier: GPL-3.0-or-later
#include "failure.h"

#include <gmock/gmock.h>

namespace fairlead::companion {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Failure, WhatWasLostWithANode) {
  const auto jobs = read_jobs(
      "2|RUNNING|worker-[0,7]||NONE|root\n"
      "3_4|RUNNING|worker-0||NONE|ada\n"
      "4|PENDING|||N/A|ada\n"
      "5|COMPLETING|worker-0||NONE|ada\n"
      "6|SUSPENDED|worker-1||NONE|ada\n");
  ASSERT_TRUE(jobs);
  const Loss first = lost_with("worker-0", *jobs);
  EXPECT_THAT(first.jobs, ElementsAre("2", "3_4"));  // one that completes is over
  EXPECT_TRUE(first.several);
  const Loss second = lost_with("worker-1", *jobs);
  EXPECT_THAT(second.jobs, ElementsAre("6"));
  EXPECT_FALSE(second.several);
  EXPECT_THAT(lost_with("worker-2", *jobs).jobs, IsEmpty());
}

std::string job(const std::string& state, const std::string& reason, int restarts) {
  return "JobId=7 JobName=wrap UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901759 Nice=0 Account=(null) QOS=(null) JobState=" + state + " Reason=" + reason +
         " Dependency=(null) Requeue=1 Restarts=" + std::to_string(restarts) + " BatchFlag=1 Reboot=0 ExitCode=0:0\n";
}
struct Row {
  const char* state;
  const char* reason;
  int restarts;
  Requeued what;
};
class AJob : public testing::TestWithParam<Row> {};
TEST_P(AJob, StartsAgainAtOnceOnlyWhenSlurmHasPutItBack) {
  const auto& [state, reason, restarts, what] = GetParam();
  EXPECT_EQ(requeued(job(state, reason, restarts)), what);
}
INSTANTIATE_TEST_SUITE_P(Rows, AJob,
                         testing::Values(Row{"PENDING", "BeginTime", 1, Requeued::Hurry}, Row{"PENDING", "None", 1, Requeued::Wait}, Row{"PENDING", "Cleaning", 1, Requeued::Wait}, Row{"COMPLETING", "NodeDown", 0, Requeued::Wait}, Row{"REQUEUED", "NodeDown", 1, Requeued::Wait},
                                         Row{"PENDING", "BeginTime", 0, Requeued::Nothing},     // its user's own --begin
                                         Row{"PENDING", "JobHeldUser", 1, Requeued::Nothing},   // held: its user's or administrator's will
                                         Row{"PENDING", "Dependency", 2, Requeued::Nothing}, Row{"PENDING", "Resources", 1, Requeued::Nothing}, Row{"RUNNING", "None", 1, Requeued::Nothing},
                                         Row{"RUNNING", "None", 0, Requeued::Nothing},          // goes on without the node
                                         Row{"NODE_FAIL", "NodeDown", 0, Requeued::Nothing}));
TEST(Failure, AnAnswerThatIsNotUnderstoodHurriesNothing) { EXPECT_EQ(requeued("slurm_load_jobs error: Invalid job id specified\n"), Requeued::Nothing); }

struct Out {
  const char* state;
  const char* reason;
  int ago;   // seconds since it was set DOWN
  int left;
};
class KeepOut : public testing::TestWithParam<Out> {};
TEST_P(KeepOut, OnlyWhileMessagesToLostJobsMayBeUnderWay) {
  const auto& [state, reason, ago, left] = GetParam();
  const Instant now = *parse_time("2026-11-21T20:13:01Z");
  const NodeRecord node{.name = "worker-0", .state = {state}, .reason = reason, .by = "root", .since = print_time(now - std::chrono::seconds(ago))};
  EXPECT_EQ(keep_out(node, now).count(), left);
}
INSTANTIATE_TEST_SUITE_P(Rows, KeepOut,
                         testing::Values(Out{"DOWN", "fairlead: the worker died (jobs over several nodes)", 5, 60}, Out{"DOWN", "fairlead: the worker died (jobs over several nodes)", 65, 0},
                                         Out{"DOWN", "fairlead: the worker died (jobs over several nodes)", 100'000, 0}, Out{"DOWN", "fairlead: the worker died (jobs over several nodes)", -30, 65},
                                         Out{"DOWN", "fairlead: the worker died", 0, 0}, Out{"DOWN", "disk", 15, 50}, Out{"DOWN", "disk", 4000, 0}, Out{"IDLE", "", 5, 0}));

// The reason of a drain is kept, and says nothing of what was lost.
TEST(Failure, AWorkerThatDiedWithoutWorkComesBackAtOnce) {
  const Instant now = *parse_time("2026-11-21T20:13:01Z");
  NodeRecord node{.name = "worker-0", .state = {"IDLE", "DRAIN"}, .reason = "fairlead: scale-down of 12345678 generation 3", .since = print_time(now), .extra = "fairlead:u1@m1"};
  EXPECT_EQ(extra_of_death(node, Loss{}), "fairlead:u1@m1!idle");
  EXPECT_EQ(extra_of_death(node, Loss{{"7"}, false}), "fairlead:u1@m1");
  NodeRecord completing = node, given = node, unmarked = node;
  completing.state = {"IDLE", "DRAIN", "COMPLETING"};
  given.cpus_given = 1;
  unmarked.extra = "rack 7";
  EXPECT_EQ(extra_of_death(completing, Loss{}), "fairlead:u1@m1");
  EXPECT_EQ(extra_of_death(given, Loss{}), "fairlead:u1@m1");
  EXPECT_EQ(extra_of_death(unmarked, Loss{}), "rack 7");
  node.state = {"DOWN", "DRAIN"};
  EXPECT_EQ(keep_out(node, now), kKeepOut);
  node.extra = "fairlead:u1@m1!idle";
  EXPECT_EQ(keep_out(node, now).count(), 0);
  EXPECT_EQ(extra_of_death(node, Loss{{"7"}, true}), "fairlead:u1@m1") << "what was true of the last death is not of this one";
  node.extra = "rack 7!idle";
  EXPECT_EQ(keep_out(node, now), kKeepOut);
}

TEST(Failure, TheReasonSaysWhetherTheWorkerMustStayOut) {
  const NodeRecord healthy{.name = "worker-0", .state = {"MIXED"}}, drained{.name = "worker-0", .state = {"MIXED", "DRAIN"}, .reason = "fan", .by = "ada"};
  EXPECT_EQ(reason_of_death(healthy, "died: power off", Loss{{"7"}, false}), "fairlead: the worker died: power off");
  EXPECT_EQ(reason_of_death(healthy, "died: power off", Loss{{"7"}, true}), "fairlead: the worker died: power off (jobs over several nodes)");
  EXPECT_EQ(reason_of_death(drained, "died: power off", Loss{{"7"}, true}), "fan");
}

}  // namespace
}  // namespace fairlead::companion
