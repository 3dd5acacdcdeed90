// SPDX-License-Identifier: GPL-3.0-or-later
#include "sessions.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

namespace fairlead::companion {
namespace {
using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<ProcessSeen> kOurs = {{1, 0, 'S', "fairlead-slurm", "/opt/fairlead/bin/fairlead-slurm login "},
                                        {20, 0, 'S', "fairlead-slurm", "/opt/fairlead/bin/fairlead-slurm login "},
                                        {21, 0, 'S', "sshd", "sshd: /usr/sbin/sshd -D -e [listener] 0 of 10-100 startups"},
                                        {30, 0, 'R', "fairlead-slurm", "/opt/fairlead/bin/fairlead-slurm sessions "},
                                        {31, 0, 'S', "fairlead-slurm", "fairlead-slurm check login "},
                                        {35, 0, 'S', "fairlead-jail", "/opt/fairlead/bin/fairlead-slurm login "},
                                        {36, 0, 'S', "fairlead-conf", "/opt/fairlead/bin/fairlead-slurm login "},
                                        {32, 0, 'Z', "bash", ""},
                                        {33, 0, 'S', "sshd", "sshd: unknown [priv]"},
                                        {34, 102, 'S', "sshd", "sshd: unknown [net]"}};

People with(std::vector<ProcessSeen> more) {
  more.insert(more.end(), kOurs.begin(), kOurs.end());
  return people_among(more, 30);
}

TEST(Sessions, OursAreNobody) {
  EXPECT_EQ(with({}).processes, 0);
  EXPECT_THAT(with({}).users, IsEmpty());
}

TEST(Sessions, WhoeverIsInCounts) {
  EXPECT_EQ(with({{40, 0, 'S', "sshd", "sshd: ada [priv]"}, {41, 1000, 'S', "sshd", "sshd: ada@pts/0"}, {42, 1000, 'S', "bash", "-bash"}}).processes, 2);
  EXPECT_THAT(with({{40, 0, 'S', "sshd", "sshd: root@notty"}}).users, ElementsAre(0U)) << "sftp";
  EXPECT_THAT(with({{50, 1001, 'S', "tmux: server", "tmux"}, {51, 1000, 'T', "vi", "vi"}}).users, ElementsAre(1000U, 1001U)) << "left behind, and stopped";
  EXPECT_EQ(with({{60, 0, 'S', "bash", "bash"}}).processes, 1) << "by kubectl exec";
  EXPECT_EQ(with({{61, 1000, 'S', "fairlead-slurm", "fairlead-slurm login"}}).processes, 1) << "a name that a user gave";
}

TEST(Sessions, ProcessesAreReadAsTheyAre) {
  auto seen = processes_here();
  ASSERT_TRUE(seen);
  const auto me = std::find_if(seen->begin(), seen->end(), [](const ProcessSeen& one) { return one.pid == ::getpid(); });
  ASSERT_NE(me, seen->end());
  EXPECT_EQ(me->user, ::getuid());
  EXPECT_EQ(me->state, 'R');
  EXPECT_THAT(me->title, testing::HasSubstr("companion_test"));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  seen = processes_here();
  ASSERT_TRUE(seen);
  const auto ended = std::find_if(seen->begin(), seen->end(), [&](const ProcessSeen& one) { return one.pid == child; });
  ASSERT_NE(ended, seen->end());
  EXPECT_EQ(ended->state, 'Z');
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(processes_here("/nonexistent"));
}

}  // namespace
}  // namespace fairlead::companion
