// SPDX-License-Identifier: Apache-2.0
// What needs no ublk; what does is tried by the pool's suite (volumes/volume_pool_test.cpp) where the kernel has it.
#include "blocks/ublk.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "base/files.h"

namespace fairlead::blocks {
namespace {

TEST(Ublk, MarksAreOfNamesAndForEver) {
  EXPECT_EQ(ublk_mark("a.00000000-0000-4000-8000-000000000000.disk"), ublk_mark("a.00000000-0000-4000-8000-000000000000.disk"));
  EXPECT_NE(ublk_mark("a"), ublk_mark("b"));
  EXPECT_EQ(ublk_mark(""), 0x141cfc9842c4b0e3u) << "devices of engines that run bear it: the first eight bytes of SHA-256, little-endian";
}

TEST(Ublk, SaysWhatIsMissing) {
  if (exists("/dev/ublk-control")) GTEST_SKIP() << "the kernel has ublk";
  const auto control = Ublk::open();
  ASSERT_FALSE(control);
  EXPECT_EQ(control.error().code, Code::Unsupported);
  EXPECT_THAT(control.error().message, testing::HasSubstr("this kernel has no ublk"));
}

}  // namespace
}  // namespace fairlead::blocks
