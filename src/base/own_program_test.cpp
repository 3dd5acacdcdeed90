// SPDX-License-Identifier: Apache-2.0
#include "base/own_program.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "base/files.h"
#include "base/process.h"

namespace fairlead {
namespace {

TEST(OwnProgram, IsThisTest) {
  const auto own = own_program();
  ASSERT_TRUE(own);
  EXPECT_THAT(*own, testing::EndsWith("/base_test"));
  EXPECT_EQ(*program_beside("base_test"), *own);
  EXPECT_THAT(*program_beside("other"), testing::EndsWith("/other"));
}

// For the test below: what a process says whose file was replaced while it ran.
TEST(OwnProgramChild, DISABLED_IsReplaced) {
  const std::string before = *own_program();
  ASSERT_EQ(::unlink(before.c_str()), 0);
  EXPECT_EQ(*own_program(), before);
}
TEST(OwnProgram, KeepsItsPathWhenItsFileIsReplaced) {
  char folder[] = "/tmp/fairlead-own-program-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string copy = std::string(folder) + "/base_test";
  const auto made = run_checked({.argv = {"cp", *own_program(), copy}}, std::chrono::seconds(60));
  const auto ran = made ? run_checked({.argv = {copy, "--gtest_filter=OwnProgramChild.*", "--gtest_also_run_disabled_tests"}}, std::chrono::seconds(60)) : made;
  EXPECT_TRUE(remove_tree(folder));
  ASSERT_TRUE(ran) << ran.error().message;
  EXPECT_THAT(*ran, testing::HasSubstr("1 test"));
}

}  // namespace
}  // namespace fairlead
