// SPDX-License-Identifier: GPL-3.0-or-later
#include "rights.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

namespace fairlead::companion {
namespace {

constexpr int kNoNamespace = 77;

void put(const char* path, const std::string& text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || ::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) ::_exit(kNoNamespace);
  ::close(fd);
}

// The sets of a program that root starts after `given_up`, by name ("CapEff"), as its kernel tells them. In a user namespace of its own, where anybody is root with all rights; empty: there is none to be had.
std::map<std::string, unsigned long long> sets_of_a_child(bool given_up) {
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) return {};
  const std::string user = "0 " + std::to_string(::getuid()) + " 1", group = "0 " + std::to_string(::getgid()) + " 1";
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWUSER) == 0) {
      put("/proc/self/setgroups", "deny");
      put("/proc/self/uid_map", user);
      put("/proc/self/gid_map", group);
    } else if (::getuid() != 0) {
      ::_exit(kNoNamespace);
    }
    // Twice: the second does nothing.
    for (int i = 0; i < 2; ++i)
      if (given_up && !give_up(CAP_SYS_ADMIN)) ::_exit(1);
    ::dup2(pipe[1], 1);
    ::execl("/bin/sh", "sh", "-c", "exec /bin/sh -c 'grep ^Cap /proc/self/status'", nullptr);
    ::_exit(2);
  }
  ::close(pipe[1]);
  std::string text;
  char part[512];
  for (ssize_t n = 0; (n = ::read(pipe[0], part, sizeof part)) > 0;) text.append(part, static_cast<std::size_t>(n));
  ::close(pipe[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoNamespace) return {};
  EXPECT_EQ(status, 0);
  std::map<std::string, unsigned long long> out;
  std::istringstream lines(text);
  for (std::string name, value; lines >> name >> value;) out[name.substr(0, name.find(':'))] = std::strtoull(value.c_str(), nullptr, 16);
  return out;
}

bool has(unsigned long long set, int capability) { return (set >> capability & 1) != 0; }

TEST(Rights, WhatWasGivenUpNoProgramOfRootGetsBack) {
  const auto before = sets_of_a_child(false), after = sets_of_a_child(true);
  if (before.empty()) GTEST_SKIP() << "neither root nor user namespaces here";
  ASSERT_TRUE(has(before.at("CapEff"), CAP_SYS_ADMIN)) << "then nothing is shown";
  ASSERT_EQ(after.size(), 5U);
  for (const auto& [name, set] : after) {
    EXPECT_FALSE(has(set, CAP_SYS_ADMIN)) << name;
    EXPECT_EQ(set, before.at(name) & ~(1ULL << CAP_SYS_ADMIN)) << name << ": nothing else goes";
  }
}

}  // namespace
}  // namespace fairlead::companion
