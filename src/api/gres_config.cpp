// SPDX-License-Identifier: Apache-2.0
#include "api/gres_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/encoding.h"

namespace fairlead::api {
namespace {

constexpr std::size_t kMaxLine = 1024, kMaxLines = 64;
constexpr std::uint64_t kMaxFiles = 1024;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return out;
}

// As written by an administrator, in lower case: the name that is meant. Both spellings of one thing are one key here.
const std::map<std::string, const char*, std::less<>>& keys() {
  static const std::map<std::string, const char*, std::less<>> table = {{"autodetect", "AutoDetect"}, {"count", "Count"}, {"cpus", "Cores"}, {"cores", "Cores"}, {"file", "File"}, {"files", "File"}, {"flags", "Flags"},
                                                                       {"link", "Links"}, {"links", "Links"}, {"multiplefiles", "MultipleFiles"}, {"name", "Name"}, {"type", "Type"}};
  return table;
}

bool all_of(std::string_view text, std::string_view beside, bool letters) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (letters && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) || beside.find(c) != beside.npos;
  });
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty() || value > 1'000'000'000) return std::nullopt;
  return value;
}

// "0-3,5" is five. Nothing: it is no such list.
std::optional<std::uint64_t> count_ranges(std::string_view list) {
  std::uint64_t out = 0;
  for (const std::string& part : split(list, ',')) {
    const auto dash = part.find('-');
    const auto first = number(std::string_view(part).substr(0, dash)), last = dash == std::string::npos ? first : number(std::string_view(part).substr(dash + 1));
    if (!first || !last || *last < *first || *last - *first >= kMaxFiles) return std::nullopt;
    out += *last - *first + 1;
  }
  return out;
}

// How many files "/dev/nvidia[0-3],/dev/x" names.
std::optional<std::uint64_t> count_files(std::string_view files) {
  std::uint64_t out = 0;
  while (true) {
    const auto open = files.find('['), comma = files.find(',');
    std::string_view path = files.substr(0, std::min(open, comma));
    std::uint64_t of_it = 1;
    files.remove_prefix(path.size());
    if (!path.starts_with('/') || !all_of(path, "/_-.:", true)) return std::nullopt;
    if (files.starts_with('[')) {
      const auto close = files.find(']');
      const auto counted = close == std::string_view::npos ? std::nullopt : count_ranges(files.substr(1, close - 1));
      if (!counted) return std::nullopt;
      of_it = *counted;
      files.remove_prefix(close + 1);
    }
    out += of_it;
    if (out > kMaxFiles) return std::nullopt;
    if (files.empty()) return out;
    if (!files.starts_with(',')) return std::nullopt;
    files.remove_prefix(1);
  }
}

struct Line {
  std::map<std::string, std::string, std::less<>> given;  // by key
  std::optional<std::uint64_t> files;
  std::string environment;  // the flags that say which variables a job gets, in order; empty: none is given
};

class Reader {
 public:
  std::vector<std::string> problems;

  void read(const std::string& text, std::size_t number_of_line) {
    at_ = fmt::format("line {}", number_of_line);
    if (text.empty() || text.size() > kMaxLine) return refuse("", fmt::format("a line holds 1 to {} characters", kMaxLine));
    if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e || c == '"' || c == '\'' || c == '\\' || c == '#'; }))
      return refuse("", fmt::format("\"{}\" is not one line of KEY=VALUE without quotation marks, comments and line breaks", text));
    Line line;
    std::string first;
    const std::size_t before = problems.size();
    for (const std::string& word : split(text, ' ')) {
      if (!word.empty()) take(word, line, first);
      if (problems.size() > before) return;  // the rest of the line would only say it again
    }
    if (first == "AutoDetect" && line.given.size() == 1) return lines_.push_back(std::move(line));
    if (first != "Name") return refuse(first, "a line begins with Name=gpu, or is AutoDetect=... alone");
    check(line);
    lines_.push_back(std::move(line));
  }

  // slurmd reads them one after another, and ends where one contradicts another.
  void compare() {
    const Line *named = nullptr, *detects = nullptr;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const Line& line = lines_[i];
      at_ = fmt::format("line {}", i + 1);
      const auto has = [](const Line& of, const char* key) { return of.given.contains(key); };
      if (has(line, "AutoDetect")) {
        if (detects && lower(detects->given.at("AutoDetect")) != lower(line.given.at("AutoDetect"))) refuse("AutoDetect", "another line has another value; all have the same");
        else detects = &line;
      }
      if (!has(line, "Name")) continue;
      if (!named) {
        named = &line;
        continue;
      }
      const auto files = [&](const Line& of) { return has(of, "File") || has(of, "MultipleFiles"); };
      if (files(*named) != files(line)) refuse("File", "some lines have it and others do not; give all or none");
      else if (has(*named, "Type") != has(line, "Type")) refuse("Type", "some lines have it and others do not; give all or none");
      else if (!files(line) && !has(line, "Type")) refuse("Name", "the second line without Type and File; say it in one, with Count");
      if (!line.environment.empty() && line.environment != named->environment) refuse("Flags", "the variables of jobs (*_env) differ from those of the first line; all lines give the same, or the first alone does");
    }
  }

 private:
  void refuse(std::string_view key, const std::string& why) { problems.push_back(key.empty() ? fmt::format("{}: {}", at_, why) : fmt::format("{}, {}: {}", at_, key, why)); }

  void take(const std::string& word, Line& line, std::string& first) {
    const auto equals = word.find('=');
    const std::string key = word.substr(0, equals), value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (lower(key) == "include") return refuse(key, "what it names could not be checked; put its lines here");
    if (lower(key) == "nodename") return refuse(key, "it is put before each line; leave it out");
    if (equals == std::string::npos || value.empty()) return refuse(key, fmt::format("\"{}\" is not KEY=VALUE, without spaces around the sign", word));
    const auto known = keys().find(lower(key));
    if (known == keys().end()) return refuse(key, "gres.conf of Slurm 22.05 has no such key, and every slurmd would end with it; there are Name, Type, File, MultipleFiles, Count, Cores, Links, Flags, AutoDetect");
    if (first.empty()) first = known->second;
    if (!line.given.emplace(known->second, value).second) return refuse(key, "it is given twice; keep one");
    check_value(known->second, key, value, line);
  }

  void check_value(std::string_view kind, const std::string& key, const std::string& value, Line& line) {
    if (kind == "Name" && value != "gpu") return refuse(key, fmt::format("\"{}\" is no resource of these clusters; gpu is", value));
    if (kind == "Type" && !all_of(value, "_-.", true)) return refuse(key, fmt::format("\"{}\" is not one word", value));
    if (kind == "Count" && (!number(value) || *number(value) == 0)) return refuse(key, fmt::format("\"{}\" is not a whole number from 1", value));
    if (kind == "Cores" && !count_ranges(value)) return refuse(key, fmt::format("\"{}\" is no list as 0-3,8", value));
    if (kind == "Links" && !all_of(value, ",-", false)) return refuse(key, fmt::format("\"{}\" is no list of numbers", value));
    if (kind == "AutoDetect" && lower(value) != "nvml" && lower(value) != "rsmi" && lower(value) != "oneapi" && lower(value) != "off") return refuse(key, fmt::format("\"{}\" is none of nvml, rsmi, oneapi, off", value));
    if (kind == "Flags") check_flags(key, value, line);
    if (kind != "File" && kind != "MultipleFiles") return;
    line.files = count_files(value);
    if (!line.files) refuse(key, fmt::format("\"{}\" names no files as /dev/nvidia[0-3]", value));
    else if (kind == "MultipleFiles" && *line.files < 2) refuse(key, "it names one file; use File");
  }

  void check_flags(const std::string& key, const std::string& value, Line& line) {
    std::vector<std::string> environment;
    for (const std::string& flag : split(lower(value), ',')) {
      const auto is = [&](std::initializer_list<std::string_view> words) { return std::find(words.begin(), words.end(), flag) != words.end(); };
      if (is({"nvidia_gpu_env", "amd_gpu_env", "intel_gpu_env", "opencl_env", "no_gpu_env"})) environment.push_back(flag);
      else if (!is({"countonly", "one_sharing", "all_sharing"})) refuse(key, fmt::format("Slurm 22.05 does not know {}", flag));
    }
    std::sort(environment.begin(), environment.end());
    if (environment.size() > 1 && std::find(environment.begin(), environment.end(), "no_gpu_env") != environment.end()) refuse(key, "no_gpu_env goes with no other *_env");
    for (const std::string& flag : environment) line.environment += flag + ",";
  }

  void check(const Line& line) {
    if (line.given.contains("File") && line.given.contains("MultipleFiles")) return refuse("MultipleFiles", "it goes with no File; keep one");
    const auto count = line.given.find("Count");
    const std::uint64_t files = line.given.contains("MultipleFiles") ? 1 : line.files.value_or(0);
    if (count != line.given.end() && files > 0 && *number(count->second) != files) refuse("Count", fmt::format("{} is said, and the files make {}; leave it out", count->second, files));
  }

  std::string at_;
  std::vector<Line> lines_;
};

}  // namespace

std::vector<std::string> check_gres_lines(const std::vector<std::string>& lines) {
  if (lines.size() > kMaxLines) return {fmt::format("{} lines; at most {} are taken", lines.size(), kMaxLines)};
  Reader reader;
  for (std::size_t i = 0; i < lines.size(); ++i) reader.read(lines[i], i + 1);
  if (reader.problems.empty()) reader.compare();
  return reader.problems;
}

}  // namespace fairlead::api
