// SPDX-License-Identifier: Apache-2.0
#include "blocks/words.h"

#include <array>
#include <charconv>

#include "base/encoding.h"

namespace fairlead::blocks {
namespace {
constexpr std::array codes{Code::NotFound, Code::Exists, Code::Conflict, Code::Invalid, Code::Forbidden, Code::Unauthorized, Code::Exhausted, Code::Expired, Code::Unavailable, Code::Unsupported, Code::Internal};
}  // namespace

std::string print_words(const Words& words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) out += (i == 0 ? "" : " ") + percent_encode(words[i], " ");
  return out + "\n";
}

Result<Words> read_words(std::string_view line) {
  Words out;
  for (const std::string& word : split(line, ' ')) {
    auto plain = percent_decode(word);
    if (!plain) return fail(Code::Invalid, "a word with an escape that is none");
    out.push_back(std::move(*plain));
  }
  return out;
}

std::string print_answer(std::uint64_t number, const Result<Words>& words) {
  Words out{std::to_string(number)};
  if (words) {
    out.push_back("ok");
    out.insert(out.end(), words->begin(), words->end());
  } else {
    out.insert(out.end(), {std::string(name(words.error().code)), words.error().message});
  }
  return print_words(out);
}

Result<Answer> read_answer(std::string_view line) {
  auto words = read_words(line);
  if (!words) return std::unexpected(words.error());
  Answer out{.number = 0, .goes = false, .words = Words()};
  const auto none = [] { return fail(Code::Invalid, "an answer that is none"); };
  if (words->size() < 2) return none();
  const std::string& number = words->front();
  if (const auto read = std::from_chars(number.data(), number.data() + number.size(), out.number); read.ec != std::errc() || read.ptr != number.data() + number.size()) return none();
  const std::string& what = (*words)[1];
  if (what == "goes") {
    out.goes = true;
    return out;
  }
  if (what == "ok") {
    out.words->assign(words->begin() + 2, words->end());
    return out;
  }
  for (const Code code : codes)
    if (what == name(code) && words->size() == 3) {
      out.words = fail(code, (*words)[2]);
      return out;
    }
  return none();
}

}  // namespace fairlead::blocks
