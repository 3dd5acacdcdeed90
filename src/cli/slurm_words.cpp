// SPDX-License-Identifier: Apache-2.0
#include "cli/slurm_words.h"

#include <string_view>

namespace fairlead::cli {

namespace {

// Short options of srun and sbatch (22.05 to 25) that take no value.
constexpr std::string_view kNoValue = "EIHhkKlOQqRsuvVW";

bool takes_next(const std::string& word) { return word.size() == 2 && word[0] == '-' && word[1] != '-' && kNoValue.find(word[1]) == std::string_view::npos; }

}  // namespace

std::string trouble_of_user(const std::string& name) {
  const auto fits = [](char c, bool first) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && ((c >= '0' && c <= '9') || c == '-' || c == '.')); };
  bool good = !name.empty() && name.size() <= 32;
  for (std::size_t i = 0; good && i < name.size(); ++i) good = fits(name[i], i == 0);
  return good ? "" : "\"" + name + "\" is no name of a user: letters, digits, - . and _, at most 32, with a letter or _ first";
}

std::string token_of(std::string_view output) {
  constexpr std::string_view kBegin = "SLURM_JWT=";
  const auto at = output.find(kBegin);
  if (at == std::string_view::npos || (at > 0 && output[at - 1] != '\n')) return "";
  output.remove_prefix(at + kBegin.size());
  const auto end = output.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.");
  if (end != std::string_view::npos && output[end] != '\n') return "";
  return std::string(output.substr(0, end));
}

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
