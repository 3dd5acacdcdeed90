// SPDX-License-Identifier: Apache-2.0
#include "cli/slurm_words.h"

#include <string_view>

namespace fairlead::cli {

namespace {

// Short options of srun and sbatch (22.05 to 25) that take no value.
constexpr std::string_view kNoValue = "EIHhkKlOQqRsuvVW";

bool takes_next(const std::string& word) { return word.size() == 2 && word[0] == '-' && word[1] != '-' && kNoValue.find(word[1]) == std::string_view::npos; }

}  // namespace

Words split_words(const std::vector<std::string>& words, const std::function<bool(const std::string&)>& is_script) {
  Words out;
  std::size_t i = 0;
  for (; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      ++i;
      break;
    }
    if (word.empty() || word[0] != '-') break;
    out.options.push_back(word);
    if (takes_next(word) && i + 1 < words.size() && !is_script(words[i + 1])) out.options.push_back(words[++i]);
  }
  if (i < words.size() && is_script(words[i])) out.script = words[i++];
  out.command.assign(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
  return out;
}

std::string shell_quote(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:,./@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char one : word) {
    if (one == '\'')
      out += "'\\''";
    else
      out += one;
  }
  return out + "'";
}

}  // namespace fairlead::cli
