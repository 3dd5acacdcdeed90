// SPDX-License-Identifier: GPL-3.0-or-later
#include "limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <sstream>

#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"

namespace fairlead::companion {
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

Result<void> take_limits(const std::string& text) {
  if (text.empty()) return {};
  auto limits = read_limits(text);
  if (!limits) return pass(std::move(limits.error()), "securityLimitsConfig");
  if (auto made = make_dirs("/etc/security", 0755); !made) return made;
  if (auto written = write_file_atomically("/etc/security/limits.conf", text.ends_with('\n') ? text : text + "\n", 0644); !written) return written;
  for (const Limit& limit : *limits) {
    rlimit now{};
    ::getrlimit(static_cast<__rlimit_resource>(limit.resource), &now);
    if (limit.hard) now.rlim_max = limit.value;
    if (limit.soft) now.rlim_cur = limit.value;
    now.rlim_cur = std::min(now.rlim_cur, now.rlim_max);
    if (::setrlimit(static_cast<__rlimit_resource>(limit.resource), &now) != 0)
      log_warn("a limit was not taken on", {{"line", limit.line}, {"reason", std::strerror(errno)}, {"remedy", errno == EPERM ? "raising a hard limit needs CAP_SYS_RESOURCE: give the container runtime the limit" : ""}});
  }
  return {};
}

}  // namespace fairlead::companion
