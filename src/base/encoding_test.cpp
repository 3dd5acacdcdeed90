// SPDX-License-Identifier: Apache-2.0
#include "base/encoding.h"

#include <gtest/gtest.h>

namespace fairlead {
namespace {

TEST(Percent, WhatIsEncodedIsDecoded) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(percent_decode(percent_encode(all)), all);
  EXPECT_EQ(percent_decode(percent_encode(all, " -/")), all);
  EXPECT_EQ(percent_encode("a b%\n\x7f"), "a b%25%0a%7f");
  EXPECT_EQ(percent_encode("a b", " "), "a%20b");
  EXPECT_EQ(percent_decode("%2f%2F"), "//");
}

TEST(Percent, WhatIsNoEscapeIsTold) {
  for (const char* bad : {"%", "a%", "%2", "%zz", "%+1", "% 1", "%2g", "%%41"}) EXPECT_EQ(percent_decode(bad), std::nullopt) << bad;
  EXPECT_EQ(percent_decode(""), "");
}

}  // namespace
}  // namespace fairlead
