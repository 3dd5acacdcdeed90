// SPDX-License-Identifier: Apache-2.0
// Lines of words between two of our processes: percent-encoded, one space between two, ended by a newline. A request is "NUMBER VERB WORDS"; the answers to it "NUMBER goes" (it lives, and is at it still), then "NUMBER ok WORDS" or "NUMBER CODE MESSAGE".
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fairlead::blocks {

using Words = std::vector<std::string>;

std::string print_words(const Words& words);
// Invalid: an escape that is none. `line`: without its newline.
Result<Words> read_words(std::string_view line);

struct Answer {
  std::uint64_t number = 0;
  bool goes = false;                // not yet an answer
  Result<Words> words;              // or the error that was met
};
std::string print_answer(std::uint64_t number, const Result<Words>& words);
// Invalid: it is none.
Result<Answer> read_answer(std::string_view line);

}  // namespace fairlead::blocks
