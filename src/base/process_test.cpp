// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>

#include "base/files.h"

namespace fairlead {
namespace {
using namespace std::chrono_literals;
using testing::HasSubstr;

Command sh(const std::string& script) { return Command{.argv = {"sh", "-c", script}}; }

TEST(Process, OutputAndExitStatusComeBack) {
  auto output = run(sh("cat; echo oops >&2; exit 7"), 10s, "hello");
  ASSERT_TRUE(output) << output.error().message;
  EXPECT_EQ(output->out, "hello");
  EXPECT_EQ(output->err, "oops\n");
  EXPECT_EQ(output->exit, (Exit{.code = 7, .signal = 0}));
}

TEST(Process, DeathBySignalIs128More) {
  auto output = run(sh("kill -TERM $$"), 10s);
  ASSERT_TRUE(output);
  EXPECT_EQ(output->exit, (Exit{.code = 143, .signal = SIGTERM}));
}

TEST(Process, AMissingProgramIsNotFound) {
  EXPECT_EQ(Child::start({.argv = {"no-such-program-here"}}).error().code, Code::NotFound);
  EXPECT_EQ(Child::start({.argv = {"/no/such/program"}}).error().code, Code::NotFound);
  EXPECT_EQ(Child::start({.argv = {"/etc/passwd"}}).error().code, Code::Forbidden);
  EXPECT_EQ(Child::start({.argv = {}}).error().code, Code::Invalid);
}

TEST(Process, CheckedRunTellsTheLastLinesOfStderr) {
  auto output = run_checked(sh("echo fine; echo because >&2; exit 3"), 10s);
  ASSERT_FALSE(output);
  EXPECT_THAT(output.error().message, testing::AllOf(HasSubstr("exit status 3"), HasSubstr("because")));
  EXPECT_EQ(*run_checked(sh("echo fine"), 10s), "fine\n");
}

TEST(Process, ATimeOutKills) {
  auto output = run(sh("echo $$ > /tmp/process_test.$PPID; exec sleep 600"), 300ms);
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code, Code::Unavailable);
  const std::string file = "/tmp/process_test." + std::to_string(::getpid());
  auto pid = read_file(file);
  ASSERT_TRUE(pid);
  EXPECT_EQ(identify(std::stoi(*pid)).error().code, Code::NotFound);
  ::unlink(file.c_str());
}

TEST(Process, LargeInputAndOutputDoNotDeadlockAndAreCut) {
  const std::string input(4 << 20, 'x');
  auto output = run(Command{.argv = {"cat"}}, 30s, input);
  ASSERT_TRUE(output);
  EXPECT_EQ(output->out.size(), input.size());
  auto cut = run(Command{.argv = {"cat"}}, 30s, input, 1000);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->out.size(), 1000U);
}

TEST(Process, AReaderThatLeavesDoesNotKillUs) {
  auto output = run(Command{.argv = {"true"}}, 30s, std::string(4 << 20, 'x'));
  ASSERT_TRUE(output);
  EXPECT_EQ(output->exit.code, 0);
}

TEST(Process, AGrandchildThatKeepsThePipeIsNotWaitedFor) {
  auto output = run(sh("sleep 60 & echo $!"), 20s);
  ASSERT_TRUE(output);
  ::kill(std::stoi(output->out), SIGKILL);
}

TEST(Process, DescriptorsArePassedUnderTheirNumbersAndNoOthers) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);  // not close-on-exec on purpose
  const Fd in(ends[0]), out(ends[1]);
  Command command = sh("echo hi >&5; ls /proc/self/fd | tr '\\n' ' '");
  command.pass = {{out.get(), 5}};
  auto output = run(command, 10s);
  ASSERT_TRUE(output);
  char text[16] = {};
  EXPECT_EQ(::read(in.get(), text, sizeof text), 3);
  EXPECT_EQ(output->out, "0 1 2 3 5 ");  // 3 is the folder that ls reads
}

TEST(Process, EnvironmentFolderAndSessionAreAsked) {
  Command command{.argv = {"/bin/sh", "-c", "echo $A; pwd; ps -o sid= -p $$; echo $$"},
                  .environment = {{{"A", "b"}, {"PATH", "/bin"}}},
                  .working_directory = "/usr",
                  .new_session = true};
  auto output = run(command, 10s);
  ASSERT_TRUE(output);
  EXPECT_THAT(output->out, testing::StartsWith("b\n/usr\n"));
  pid_t sid = 0, pid = 0;
  ASSERT_EQ(std::sscanf(output->out.c_str(), "b\n/usr\n %d\n%d", &sid, &pid), 2) << output->out;
  EXPECT_EQ(sid, pid);
}

TEST(Process, AnErrorBeforeExecIsReported) {
  Command command = sh("true");
  command.before_exec = [] { return EBUSY; };
  auto child = Child::start(command);
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().code, Code::Unavailable);
}

TEST(Process, SignalsAreDefaultInTheChild) {
  ::signal(SIGUSR1, SIG_IGN);
  auto output = run(sh("kill -USR1 $$; echo survived"), 10s);
  ::signal(SIGUSR1, SIG_DFL);
  ASSERT_TRUE(output);
  EXPECT_EQ(output->exit.signal, SIGUSR1);
}

TEST(Process, WaitGivesTheSameAnswerAgainAndSignalsNeverHitAfterwards) {
  auto child = Child::start(sh("exit 4"));
  ASSERT_TRUE(child);
  auto exit = child->wait(10s);
  ASSERT_TRUE(exit && *exit);
  EXPECT_EQ((*exit)->code, 4);
  EXPECT_EQ((*child->wait(0ms))->code, 4);
  EXPECT_EQ(child->signal(SIGKILL).error().code, Code::NotFound);
}

TEST(Process, WaitReturnsEmptyWhileItRunsAndTheDestructorKills) {
  pid_t pid = 0;
  {
    auto child = Child::start(Command{.argv = {"sleep", "600"}});
    ASSERT_TRUE(child);
    pid = child->pid();
    auto exit = child->wait(20ms);
    ASSERT_TRUE(exit);
    EXPECT_FALSE(exit->has_value());
  }
  EXPECT_EQ(identify(pid).error().code, Code::NotFound);
}

TEST(Process, ADetachedChildOutlivesItsHandle) {
  pid_t pid = 0;
  {
    auto child = Child::start(Command{.argv = {"sleep", "600"}});
    ASSERT_TRUE(child);
    pid = child->pid();
    child->detach();
  }
  EXPECT_TRUE(identify(pid));
  ::kill(pid, SIGKILL);
  EXPECT_EQ(::waitpid(pid, nullptr, 0), pid);
}

TEST(Process, MovedChildrenKeepTheirOwner) {
  auto first = Child::start(Command{.argv = {"sleep", "600"}});
  auto second = Child::start(sh("exit 1"));
  ASSERT_TRUE(first && second);
  const pid_t pid = first->pid();
  *first = std::move(*second);  // the first one is killed
  EXPECT_EQ(identify(pid).error().code, Code::NotFound);
  EXPECT_EQ((*first->wait(10s))->code, 1);
}

TEST(Process, AnIdentityTellsAReusedNumber) {
  auto child = Child::start(Command{.argv = {"sleep", "600"}});
  ASSERT_TRUE(child);
  auto identity = identify(child->pid());
  ASSERT_TRUE(identity);
  EXPECT_TRUE(open_process(*identity));
  ProcessIdentity other = *identity;
  other.start_ticks += 1;
  EXPECT_EQ(open_process(other).error().code, Code::NotFound);
  ASSERT_TRUE(child->signal(SIGKILL));
  ASSERT_TRUE(*child->wait(10s));
  EXPECT_EQ(open_process(*identity).error().code, Code::NotFound);
  EXPECT_EQ(open_process({}).error().code, Code::NotFound);
}

TEST(Process, AChildCanDieWithItsParent) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd in(ends[0]);
  Fd out(ends[1]);
  const pid_t parent = ::fork();
  if (parent == 0) {
    Command command{.argv = {"sleep", "600"}, .die_with_parent = true};
    auto child = Child::start(command);
    const pid_t pid = child ? child->pid() : -1;
    [[maybe_unused]] const ssize_t n = ::write(out.get(), &pid, sizeof pid);
    ::_exit(0);  // without destructors
  }
  out.reset();
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
  pid_t pid = -1;
  ASSERT_EQ(::read(in.get(), &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
  ASSERT_GT(pid, 0);
  // Killed at once; somebody else reaps it, which may take a moment: its end closes a pidfd.
  if (auto identity = identify(pid); identity) {
    auto pidfd = open_process(*identity);
    pollfd wait{.fd = pidfd ? pidfd->get() : -1, .events = POLLIN, .revents = 0};
    EXPECT_TRUE(!pidfd || ::poll(&wait, 1, 10'000) == 1);
  }
}

}  // namespace
}  // namespace fairlead
