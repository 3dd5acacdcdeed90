// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/config_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace fairlead::slurm {
namespace {

// By hand: the C library's look at the locale.
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f' || c == '\n'; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
bool is_key_char(char c) { return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.'; }

// A line without its comment; `joined`: a '\' at its end takes the next one in.
std::string_view without_comment(std::string_view line, bool& joined) {
  std::size_t slashes = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '#' && slashes % 2 == 0) {
      line = line.substr(0, i);
      break;
    }
    slashes = line[i] == '\\' ? slashes + 1 : 0;
  }
  std::size_t end = line.size();
  while (end > 0 && is_space(line[end - 1])) --end;
  std::size_t run = 0;
  while (run < end && line[end - 1 - run] == '\\') ++run;
  joined = run % 2 == 1;
  return joined ? line.substr(0, end - 1) : line;
}

std::string without_escapes(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\') ++i;
    if (i < line.size()) out += line[i];
  }
  return out;
}

// KEY=VALUE from `at` on; false: there is none, `why` says what stands there instead.
bool take_pair(std::string_view line, std::size_t& at, std::pair<std::string, std::string>& out, std::string& why) {
  const auto skip = [&] { while (at < line.size() && is_space(line[at])) ++at; };
  const std::size_t key_at = at;
  while (at < line.size() && is_key_char(line[at])) ++at;
  out.first = std::string(line.substr(key_at, at - key_at));
  skip();
  if (out.first.empty() || at == line.size() || line[at] != '=') {
    const bool operation = at + 1 < line.size() && std::string_view("+-*/").find(line[at]) != std::string_view::npos && line[at + 1] == '=';
    why = operation ? fmt::format("\"{}=\" changes nothing in slurm.conf; write KEY=VALUE", line[at]) : fmt::format("\"{}\" is not KEY=VALUE", line.substr(key_at, 80));
    return false;
  }
  ++at;
  skip();
  if (at < line.size() && line[at] == '"') {
    const auto close = line.find('"', at + 1);
    if (close == std::string_view::npos || (close + 1 < line.size() && !is_space(line[close + 1]))) {
      why = "the quotation mark is not closed, or something is glued to the closing one";
      return false;
    }
    out.second = std::string(line.substr(at + 1, close - at - 1));
    at = close + 1;
    return true;
  }
  const std::size_t value_at = at;
  while (at < line.size() && !is_space(line[at])) ++at;
  out.second = std::string(line.substr(value_at, at - value_at));
  if (out.second.empty()) why = "no value follows the \"=\"; leave the line out for Slurm's default";
  else if (out.second.find('"') != std::string::npos) why = "a quotation mark inside a value; put the whole value in quotation marks";
  return why.empty();
}

void read_line(std::string_view line, int number, ConfigText& out) {
  std::size_t at = 0;
  const auto skip = [&] { while (at < line.size() && is_space(line[at])) ++at; };
  skip();
  if (at == line.size()) return;
  if (const auto bad = std::find_if(line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\r'; }); bad != line.end()) {
    out.problems.push_back({"", number, "", "a control character; write plain text"});
    return;
  }
  constexpr std::string_view kInclude = "include";
  if (line.size() - at > kInclude.size() && same_key(line.substr(at, kInclude.size()), kInclude) && is_space(line[at + kInclude.size()])) {
    out.problems.push_back({"", number, "Include", "other files cannot be included: what they hold could not be checked; write their lines here"});
    return;
  }
  ConfigEntry entry{.line = number};
  while (at < line.size()) {
    std::pair<std::string, std::string> pair;
    std::string why;
    if (!take_pair(line, at, pair, why)) {
      out.problems.push_back({"", number, entry.key.empty() ? pair.first : entry.key, std::move(why)});
      return;
    }
    if (entry.key.empty()) std::tie(entry.key, entry.value) = std::move(pair);
    else entry.more.push_back(std::move(pair));
    skip();
  }
  out.entries.push_back(std::move(entry));
}

std::string print_value(std::string_view value) {
  const bool quoted = value.empty() || std::any_of(value.begin(), value.end(), is_space);
  std::string out = quoted ? "\"" : "";
  for (const char c : value) {
    if (c == '#' || c == '\\') out += '\\';
    out += c;
  }
  return quoted ? out + '"' : out;
}

}  // namespace

bool same_key(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return lower(x) == lower(y); });
}

std::string describe(const ConfigProblem& problem) {
  std::string place = problem.where;
  const auto add = [&](const std::string& part) { place += (place.empty() || part.empty() ? "" : ", ") + part; };
  if (problem.line > 0) add(fmt::format("line {}", problem.line));
  add(problem.key);
  return (place.empty() ? "" : place + ": ") + problem.text;
}

ConfigText read_config_text(std::string_view text) {
  ConfigText out;
  std::string line;
  int number = 0, first = 0;
  while (!text.empty()) {
    const auto end = text.find('\n');
    std::string_view part = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (first == 0) first = number;
    bool joined = false;
    line += without_comment(part, joined);
    if (joined && !text.empty()) continue;
    read_line(without_escapes(line), first, out);
    line.clear();
    first = 0;
  }
  return out;
}

std::string print_config(const ConfigEntry& entry) {
  std::string out = entry.key + "=" + print_value(entry.value);
  for (const auto& [key, value] : entry.more) out += " " + key + "=" + print_value(value);
  return out;
}

}  // namespace fairlead::slurm
