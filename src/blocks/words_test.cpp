// SPDX-License-Identifier: Apache-2.0
#include "blocks/words.h"

#include <gmock/gmock.h>

namespace fairlead::blocks {
namespace {

TEST(Words, AnEmptyFirstOneStays) {
  for (const Words& words : {Words{"", "a"}, Words{"a", ""}, Words{"", ""}}) {
    const std::string line = print_words(words);
    EXPECT_EQ(read_words(std::string_view(line).substr(0, line.size() - 1)).value(), words) << line;
  }
}
TEST(Words, WhatIsPrintedIsRead) {
  for (const Words& words : {Words{"look", "a"}, Words{"make", "a", "4096", ""}, Words{"a b", "100%", "two\nlines", "\t"}}) {
    std::string line = print_words(words);
    ASSERT_TRUE(line.ends_with('\n'));
    line.pop_back();
    EXPECT_EQ(line.find('\n'), line.npos);
    EXPECT_EQ(read_words(line).value(), words);
  }
  EXPECT_EQ(read_words("look %zz").error().code, Code::Invalid);
}

TEST(Words, AnswersAreOfARequest) {
  const auto again = [](const Result<Words>& words) {
    std::string line = print_answer(7, words);
    line.pop_back();
    return read_answer(line).value();
  };
  EXPECT_EQ(again(Words{"volume", "4096"}).words.value(), (Words{"volume", "4096"}));
  EXPECT_EQ(again(Words{}).number, 7u);
  EXPECT_EQ(again(fail(Code::Exhausted, "no room: really")).words.error(), (Error{Code::Exhausted, "no room: really"}));
  EXPECT_TRUE(read_answer("7 goes")->goes);
  for (const char* const bad : {"", "7", "x ok", "7 maybe", "7 Exhausted", "-1 ok", "7x ok"}) EXPECT_FALSE(read_answer(bad)) << bad;
}

}  // namespace
}  // namespace fairlead::blocks
