// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "blocks/words.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::blocks;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto words = read_words(text)) {
    const std::string line = print_words(*words);
    if (line.empty() || line.back() != '\n' || line.find('\n') != line.size() - 1) std::abort();
    if (const auto again = read_words(std::string_view(line).substr(0, line.size() - 1)); !again || *again != *words) std::abort();
  }
  if (const auto answer = read_answer(text); answer && !answer->goes) {
    const std::string line = print_answer(answer->number, answer->words);
    const auto again = read_answer(std::string_view(line).substr(0, line.size() - 1));
    if (!again || again->number != answer->number || again->words.has_value() != answer->words.has_value()) std::abort();
  }
  return 0;
}
