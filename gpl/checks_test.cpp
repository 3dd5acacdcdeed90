// SPDX-License-Identifier: GPL-3.0-or-later
#include "checks.h"

#include <gmock/gmock.h>

#include "check_trial.h"

namespace fairlead::companion {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kUid = "0a1b-2c";

TEST(CheckJobs, AreThoseOfTheCheckAlone) {
  // Recorded from 22.05.8, with names put in.
  const auto jobs = read_check_jobs("7|FAILED|256|worker-1|worker-1|fairlead-check-0a1b-2c-1800000000|\n"
                                    "8|COMPLETED|0|worker-0|worker-0|fairlead-check-0a1b-2c-1800000000|\n"
                                    "9|PENDING|0|worker-2||fairlead-check-0a1b-2c-1800000000|\n"
                                    "10|RUNNING|0||worker-[0-1]|fairlead-check-0a1b-2c-1800000060|\n"
                                    "11|FAILED|9|worker-0|worker-0|fairlead-check-0a1b-2c-1800000060|\n"
                                    "12|FAILED|256|worker-1|worker-1|fairlead-check-0a1b-2c-x|\n"
                                    "13|FAILED|256|worker-1|worker-1|fairlead-check-0a1b-2cc-1800000000|\n"
                                    "14|FAILED|256|worker-1|worker-1|another|fairlead-check-0a1b-2c-1800000000|\n",
                                    kUid);
  ASSERT_TRUE(jobs) << jobs.error().message;
  ASSERT_EQ(jobs->size(), 5U);
  EXPECT_EQ((*jobs)[0].run, "1800000000");
  EXPECT_EQ((*jobs)[0].exit_code, 1);
  EXPECT_THAT((*jobs)[0].requested, ElementsAre("worker-1"));
  EXPECT_EQ((*jobs)[1].exit_code, 0);
  EXPECT_THAT((*jobs)[2].nodes, IsEmpty());
  EXPECT_THAT((*jobs)[3].requested, IsEmpty());
  EXPECT_THAT((*jobs)[3].nodes, ElementsAre("worker-0", "worker-1"));
  EXPECT_EQ((*jobs)[4].signal, 9);
  EXPECT_EQ((*jobs)[4].exit_code, 0);
}

TEST(CheckJobs, OfDamagedOutputAreUnknown) {
  for (const char* text : {"7|FAILED|256|worker-1|worker-1\n", "7|FAILED|256|worker-1|worker-1|fairlead-check-0a1b-2c-1|", "x|FAILED|256|w|w|fairlead-check-0a1b-2c-1|\n", "7|FAI LED|256|w|w|fairlead-check-0a1b-2c-1|\n",
                           "7|FAILED|-1|w|w|fairlead-check-0a1b-2c-1|\n", "7|FAILED|0|w[|w|fairlead-check-0a1b-2c-1|\n"})
    EXPECT_FALSE(read_check_jobs(text, kUid)) << text;
  EXPECT_THAT(*read_check_jobs("", kUid), IsEmpty());
}

TEST(CheckComment, OfPeopleIsTheirs) {
  EXPECT_EQ(comment_of("NodeName=w State=IDLE Comment=ask ada Reason=x [root@2026-01-01T00:00:00]"), "ask ada");
  EXPECT_EQ(comment_of("NodeName=w State=IDLE Comment=fairlead: check gpu failed\n"), "fairlead: check gpu failed");
  EXPECT_EQ(comment_of("NodeName=w State=IDLE\n"), "");
  EXPECT_TRUE(comment_is_ours("[node_problem] fairlead: check gpu failed"));
  EXPECT_FALSE(comment_is_ours("ask ada"));
}

TEST(CheckCommands, TakeNothingThatIsNotOne) {
  EXPECT_FALSE(is_check_command("check-config"));
  EXPECT_FALSE(is_check_command("check"));
  for (const std::vector<std::string>& bad : {std::vector<std::string>{"check-look"}, {"check-look", "a b"}, {"check-cancel", "u", "7;8"}, {"check-drain", "w", "1", "because"}, {"check-drain", "w", "x", "fairlead: check g"},
                                              {"check-drain", "-w x", "1", "fairlead: check\n g"}, {"check-run", "u", "1", "5"}, {"check-run", "u", "1", "5", "--hold x"}, {"check-comment", "w", "mine"}, {"check-look", "u", "-a"}, {"check-run", "u", "1", "5", "--reservation", "other", "w"}, {"check-run", "u", "1", "5", "--reservation", "fairlead-check-0a"},
                                              {"check-try", "w", "somebodys", "fairlead: check g: x"}, {"check-try", "w", "fairlead-check-0a", "because"}, {"check-settle", "w", "-", "fairlead: check g: x", "because"}, {"check-settle", "w", "other", "fairlead: check g: x", "-"}})
    EXPECT_EQ(run_check_command(bad), 2) << bad[0];
}

TEST(CheckTrials, AreReservationsOfOursForNobodyAlone) {
  // Recorded from 22.05.8, with names put in.
  const std::string rest = " NodeCnt=1 CoreCnt=4 Features=(null) PartitionName=(null) Flags=SPEC_NODES TRES=cpu=4 ";
  const auto line = [&](const std::string& name, const std::string& nodes, const std::string& users) {
    return "ReservationName=" + name + " StartTime=2026-11-22T16:00:00 EndTime=2027-11-22T16:00:00 Duration=365-00:00:00 Nodes=" + nodes + rest + "Users=" + users + " Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)\n";
  };
  const auto trials = read_trials(line("fairlead-check-0a1b", "worker-1", "nobody") + line("maintenance", "worker-2", "nobody") + line("fairlead-check-0a1c", "worker-3", "nobody,ada") + line("fairlead-check-x", "worker-4", "nobody") + line("fairlead-check-0a1d", "worker-[0-1]", "nobody"));
  ASSERT_TRUE(trials) << trials.error().message;
  ASSERT_EQ(trials->size(), 1U);
  EXPECT_EQ((*trials)[0].node, "worker-1");
  EXPECT_EQ((*trials)[0].reservation, "fairlead-check-0a1b");
  EXPECT_THAT(*read_trials("No reservations in the system\n"), IsEmpty());
  for (const char* text : {"ReservationName=fairlead-check-0a1b Nodes=w Users=nobody", "Nodes=w Users=nobody\n", "ReservationName=fairlead-check-0a1b Users=nobody\n", "ReservationName=fairlead-check-0a1b Nodes=w[ Users=nobody\n"}) EXPECT_FALSE(read_trials(text)) << text;
}

TEST(CheckTrials, CountAsOutOfService) {
  const std::vector<NodeRecord> nodes = {{.name = "a", .state = {"IDLE", "DRAIN"}, .reason = "[p] fairlead: check g: x"}, {.name = "b", .state = {"IDLE", "DRAIN"}, .reason = "ada"}, {.name = "c", .state = {"IDLE"}}};
  EXPECT_EQ(out_for_checks(nodes, {}), 1U);
  EXPECT_EQ(out_for_checks(nodes, {{"c", "fairlead-check-1"}, {"a", "fairlead-check-2"}}), 2U);
}

}  // namespace
}  // namespace fairlead::companion
