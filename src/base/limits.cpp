// SPDX-License-Identifier: Apache-2.0
#include "base/limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <charconv>
#include <map>
#include <optional>
#include <sstream>

#include "base/encoding.h"

namespace fairlead {
namespace {

struct Kind {
  int resource;
  std::uint64_t unit;
};
// limits.conf(5): sizes in KiB, times in minutes.
const std::map<std::string, Kind, std::less<>>& kinds() {
  static const std::map<std::string, Kind, std::less<>> table = {{"core", {RLIMIT_CORE, 1024}},       {"data", {RLIMIT_DATA, 1024}},   {"fsize", {RLIMIT_FSIZE, 1024}},        {"memlock", {RLIMIT_MEMLOCK, 1024}},
                                                                {"nofile", {RLIMIT_NOFILE, 1}},      {"rss", {RLIMIT_RSS, 1024}},     {"stack", {RLIMIT_STACK, 1024}},        {"cpu", {RLIMIT_CPU, 60}},
                                                                {"nproc", {RLIMIT_NPROC, 1}},        {"as", {RLIMIT_AS, 1024}},       {"locks", {RLIMIT_LOCKS, 1}},           {"sigpending", {RLIMIT_SIGPENDING, 1}},
                                                                {"msgqueue", {RLIMIT_MSGQUEUE, 1}}};
  return table;
}

std::optional<std::uint64_t> number(std::string_view text, std::uint64_t unit) {
  if (text == "unlimited" || text == "infinity" || text == "-1") return RLIM_INFINITY;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > (RLIM_INFINITY - 1) / unit) return std::nullopt;
  return value * unit;
}

}  // namespace

Result<std::vector<Limit>> read_limits(std::string_view text) {
  std::vector<Limit> out;
  for (const auto& raw : split(text, '\n')) {
    const std::string line(trim(std::string_view(raw).substr(0, raw.find('#'))));
    if (line.empty()) continue;
    std::istringstream words(line);
    std::string domain, type, item, value, rest;
    if (!(words >> domain >> type >> item >> value) || words >> rest) return fail(Code::Invalid, fmt::format("\"{}\" is not \"DOMAIN TYPE ITEM VALUE\"", line));
    if (type != "soft" && type != "hard" && type != "-") return fail(Code::Invalid, fmt::format("\"{}\": {} is none of soft, hard, -", line, type));
    if (domain != "*" && domain != "root") continue;
    const auto kind = kinds().find(item);
    if (kind == kinds().end()) continue;  // nice, priority, maxlogins: of sessions
    const auto parsed = number(value, kind->second.unit);
    if (!parsed) return fail(Code::Invalid, fmt::format("\"{}\": {} is no limit", line, value));
    out.push_back({kind->second.resource, type != "hard", type != "soft", *parsed, line});
  }
  return out;
}

}  // namespace fairlead
