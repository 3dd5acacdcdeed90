// SPDX-License-Identifier: Apache-2.0
#include "http/message.h"

#include <gmock/gmock.h>

namespace fairlead::http {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(ParseTarget, SplitsFirstAndDecodesEachSegment) {
  const auto target = parse_target("/a%20b/c%2Fd/e+f?x=1&x=2&y=a+b%2Bc&flag&=&z=");
  ASSERT_TRUE(target) << target.error().message;
  EXPECT_EQ(target->path, "/a%20b/c%2Fd/e+f");
  EXPECT_THAT(target->segments, ElementsAre("a b", "c/d", "e+f"));
  EXPECT_THAT(target->query, ElementsAre(Pair("x", "1"), Pair("x", "2"), Pair("y", "a b+c"), Pair("flag", ""), Pair("", ""), Pair("z", "")));
  EXPECT_EQ(find(target->query, "x"), "1");
  EXPECT_EQ(find(target->query, "none"), "");
}

TEST(ParseTarget, RootAndSlashesGiveNoEmptySegments) {
  EXPECT_THAT(parse_target("/")->segments, IsEmpty());
  EXPECT_THAT(parse_target("//api//v1/")->segments, ElementsAre("api", "v1"));
  EXPECT_THAT(parse_target("/?")->query, IsEmpty());
}

TEST(ParseTarget, AQueryMayHoldNewlinesBecauseCommandsDo) { EXPECT_EQ(find(parse_target("/exec?command=a%0Ab")->query, "command"), "a\nb"); }

class BadTarget : public testing::TestWithParam<const char*> {};
TEST_P(BadTarget, IsInvalid) {
  const auto target = parse_target(GetParam());
  ASSERT_FALSE(target);
  EXPECT_EQ(target.error().code, Code::Invalid);
}
INSTANTIATE_TEST_SUITE_P(All, BadTarget,
                         testing::Values("", "*", "a/b", "http://host/path", "/a%", "/a%2", "/a%zz", "/a%00b", "/a%0ab", "/a b", "/a\r\nX: y", "/a?x=%", "/a?x=%00",
                                         "/a#b"));

TEST(Escape, LeavesOnlyUnreservedCharacters) {
  EXPECT_EQ(escape("az-AZ_09.~"), "az-AZ_09.~");
  EXPECT_EQ(escape("a b/c?d=e&f+g%"), "a%20b%2Fc%3Fd%3De%26f%2Bg%25");
  EXPECT_EQ(escape("\xc3\xa4"), "%C3%A4");
}

TEST(FindHeader, IgnoresCase) {
  const Headers headers = {{"Content-Type", "a"}, {"content-type", "b"}};
  EXPECT_EQ(find(headers, "CONTENT-TYPE"), "a");
  EXPECT_EQ(find(headers, "Content"), "");
}

}  // namespace
}  // namespace fairlead::http
