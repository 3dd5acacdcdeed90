// SPDX-License-Identifier: GPL-3.0-or-later
#include "limits.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

namespace fairlead::companion {
namespace {

using testing::HasSubstr;

TEST(Limits, OfRootAndEverybodyInTheUnitsOfTheKernel) {
  const auto read = read_limits("# comment\n*  hard memlock unlimited # locked\n* soft nofile 1048576\nroot - stack 8192\nada hard nproc 5\n@staff soft nproc 5\n* hard maxlogins 4\n* - cpu 2\n");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->size(), 4U);
  EXPECT_EQ(read->at(0).resource, RLIMIT_MEMLOCK);
  EXPECT_EQ(read->at(0).value, RLIM_INFINITY);
  EXPECT_FALSE(read->at(0).soft);
  EXPECT_EQ(read->at(1).value, 1048576U);
  EXPECT_FALSE(read->at(1).hard);
  EXPECT_EQ(read->at(2).value, 8192U * 1024);
  EXPECT_TRUE(read->at(2).soft && read->at(2).hard);
  EXPECT_EQ(read->at(3).value, 120U);
}

TEST(Limits, ALineThatIsNotUnderstoodIsNamed) {
  for (const char* bad : {"* hard nofile", "* hard nofile 1 2", "* firm nofile 1", "* hard nofile many", "* hard stack 99999999999999999999", "* hard stack -2", "* soft stack 18446744073709551615"}) {
    const auto read = read_limits(bad);
    ASSERT_FALSE(read) << bad;
    EXPECT_THAT(read.error().message, HasSubstr(bad));
  }
}

}  // namespace
}  // namespace fairlead::companion
