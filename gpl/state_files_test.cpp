// SPDX-License-Identifier: GPL-3.0-or-later
#include "state_files.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/files.h"

namespace fairlead::companion {
namespace {
using testing::HasSubstr;

constexpr uid_t kUser = 64030;

class StateFiles : public testing::Test {
 protected:
  StateFiles() {
    char name[] = "/tmp/fairlead-state-XXXXXX";
    state_ = ::mkdtemp(name);
    EXPECT_EQ(::chmod(state_.c_str(), 0755), 0);
  }
  ~StateFiles() override { EXPECT_TRUE(remove_tree(state_)); }
  void write(const std::string& name, const std::string& text = "x") { std::ofstream(state_ + "/" + name) << text; }
  Result<void> check(bool saved = true) { return check_state(state_, saved, ::getuid(), ::getgid()); }
  std::string why(bool saved = true) {
    auto good = check(saved);
    return good ? "" : good.error().message;
  }
  std::string state_;
};

TEST_F(StateFiles, AFreshVolumeIsBegunAndAWholeOneGoesOn) {
  EXPECT_EQ(why(false), "");
  write("job_state");
  write("node_state");
  EXPECT_EQ(why(), "");
  EXPECT_EQ(why(false), "");
}

TEST_F(StateFiles, ASaveThatWasCutBeforeItsLastStepIsNoOneFileWithTheNext) {
  write("job_state", "jobs");
  write("node_state.new", "half");
  std::filesystem::create_hard_link(state_ + "/job_state", state_ + "/job_state.new");
  ASSERT_TRUE(remove_unfinished_saves(state_));
  write("job_state.new", "");  // how the next save begins
  EXPECT_EQ(std::filesystem::file_size(state_ + "/job_state"), 4U);
  EXPECT_FALSE(std::filesystem::exists(state_ + "/node_state.new"));
  EXPECT_EQ(why(), "");
  EXPECT_FALSE(remove_unfinished_saves(state_ + "/nowhere"));
}

TEST_F(StateFiles, NothingIsBegunWithoutTheJobsOfBefore) {
  EXPECT_THAT(why(), HasSubstr("neither job_state nor job_state.old"));
  write("job_state.old");
  EXPECT_EQ(why(), "") << "a save that was cut";
  write("job_state.old", "");
  EXPECT_THAT(why(false), HasSubstr("job_state.old: it is empty"));
}

TEST_F(StateFiles, WhatSlurmWouldPassOverIsRefusedThoughAnEarlierSaveIsThere) {
  for (const std::string file : {"job_state", "node_state", "part_state", "resv_state", "trigger_state"}) {
    for (const char* good : {"job_state", "node_state", "part_state", "resv_state", "trigger_state"}) write(good), write(std::string(good) + ".old");
    write(file, "");
    auto refused = check(false);
    ASSERT_FALSE(refused) << file;
    EXPECT_EQ(refused.error().code, Code::Invalid);
    EXPECT_THAT(refused.error().message, testing::AllOf(HasSubstr(state_ + "/" + file + ": it is empty"), HasSubstr("mv " + state_ + "/" + file + ".old " + state_ + "/" + file)));
  }
  write("trigger_state");
  ASSERT_EQ(::unlink((state_ + "/job_state").c_str()), 0);
  ASSERT_EQ(::symlink("/etc/passwd", (state_ + "/job_state").c_str()), 0);
  EXPECT_THAT(why(), HasSubstr("it is no file"));
}

TEST_F(StateFiles, AFileThatTheDaemonsUserCannotOpenIsRefused) {
  if (::getuid() != 0) GTEST_SKIP() << "root alone opens files as somebody else";
  write("job_state");
  ASSERT_EQ(::chmod((state_ + "/job_state").c_str(), 0600), 0);
  auto refused = check_state(state_, true, kUser, kUser);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::Unavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("job_state: user 64030 cannot open it: Permission denied"));
  EXPECT_EQ(why(), "") << "this thread is root again";
}

TEST_F(StateFiles, TheStateOfADaemonThatWasRootIsGivenOver) {
  if (::getuid() != 0) GTEST_SKIP() << "root alone gives files away";
  for (const char* folder : {"/hash.1", "/hash.1/job.1", "/terms"}) ASSERT_EQ(::mkdir((state_ + folder).c_str(), 0700), 0);
  for (const char* file : {"job_state", "node_state", "hash.1/job.1/script", "terms/x", "fairlead-saved"}) write(file);
  const auto owner = [&](const std::string& name) {
    struct stat info{};
    return ::stat((state_ + "/" + name).c_str(), &info) == 0 ? info.st_uid : 1;
  };
  // Killed before the last one: everything is looked at again.
  ASSERT_EQ(::chown((state_ + "/job_state").c_str(), kUser, kUser), 0);
  ASSERT_TRUE(give_state_to(state_, kUser, kUser));
  for (const char* given : {"job_state", "node_state", "hash.1", "hash.1/job.1", "hash.1/job.1/script"}) EXPECT_EQ(owner(given), kUser) << given;
  for (const char* ours : {"terms", "terms/x", "fairlead-saved"}) EXPECT_EQ(owner(ours), 0U) << ours;
  EXPECT_TRUE(check_state(state_, true, kUser, kUser));
  // A state that is the daemon's own is not looked through.
  write("hash.1/job.1/of-root");
  ASSERT_TRUE(give_state_to(state_, kUser, kUser));
  EXPECT_EQ(owner("hash.1/job.1/of-root"), 0U);
}

}  // namespace
}  // namespace fairlead::companion
