// SPDX-License-Identifier: Apache-2.0
#include "agent/companion.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/files.h"

namespace fairlead::agent {
namespace {

class Companion : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/fairlead-companion-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    ASSERT_TRUE(write_file_atomically(source(), "program, version 2", 0644));
  }
  void TearDown() override { ASSERT_TRUE(remove_tree(folder_)); }
  std::string source() const { return folder_ + "/fairlead-slurm"; }
  std::string bin() const { return folder_ + "/node/bin"; }
  std::string target() const { return bin() + "/fairlead-slurm"; }
  static ino_t inode(const std::string& path) {
    struct stat facts {};
    return ::stat(path.c_str(), &facts) == 0 ? facts.st_ino : 0;
  }
  std::string folder_;
};

TEST_F(Companion, IsPutThereOnceAndLeftAloneAfterwards) {
  const auto first = place_companion(source(), bin());
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(*first);
  struct stat facts {};
  ASSERT_EQ(::stat(target().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0755U);
  const ino_t before = inode(target());
  const auto second = place_companion(source(), bin());
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_FALSE(*second);
  EXPECT_EQ(inode(target()), before);
}

TEST_F(Companion, AnotherVersionIsReplacedByAnotherFileSoThatRunningOnesGoOn) {
  ASSERT_TRUE(make_dirs(bin()));
  ASSERT_TRUE(write_file_atomically(target(), "program, version 1", 0755));
  const ino_t before = inode(target());
  const auto placed = place_companion(source(), bin());
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_TRUE(*placed);
  EXPECT_EQ(read_file(target()).value(), "program, version 2");
  EXPECT_NE(inode(target()), before);
  EXPECT_THAT(list_dir(bin()).value(), testing::ElementsAre("fairlead-slurm"));
}

TEST_F(Companion, AFileThatNobodyMayExecuteIsRepaired) {
  ASSERT_TRUE(make_dirs(bin()));
  ASSERT_TRUE(write_file_atomically(target(), "program, version 2", 0644));
  EXPECT_TRUE(place_companion(source(), bin()).value());
  struct stat facts {};
  ASSERT_EQ(::stat(target().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0755U);
}

TEST_F(Companion, AMissingProgramIsNamed) {
  const auto placed = place_companion(folder_ + "/nowhere", bin());
  ASSERT_FALSE(placed);
  EXPECT_THAT(placed.error().message, testing::HasSubstr("nowhere"));
  EXPECT_FALSE(exists(bin()));
}

}  // namespace
}  // namespace fairlead::agent
