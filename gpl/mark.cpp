// SPDX-License-Identifier: GPL-3.0-or-later
#include "mark.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::companion {
namespace {

constexpr std::string_view kPrefix = "fairlead:";
bool word(std::string_view text) {
  return !text.empty() && text.size() <= 253 && std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.'; });
}

}  // namespace

std::optional<Mark> read_mark(std::string_view extra) {
  if (!extra.starts_with(kPrefix)) return std::nullopt;
  extra.remove_prefix(kPrefix.size());
  if (extra.ends_with(kDiedIdle)) extra.remove_suffix(kDiedIdle.size());
  const auto at = extra.find('@');
  if (at == extra.npos || !word(extra.substr(0, at)) || !word(extra.substr(at + 1))) return std::nullopt;
  return Mark{std::string(extra.substr(0, at)), std::string(extra.substr(at + 1))};
}

std::string print_mark(const Mark& mark) { return fmt::format("{}{}@{}", kPrefix, mark.pod, mark.machine); }

bool may_be_of(const NodeRecord& record, std::string_view of) {
  const auto mark = read_mark(record.extra);
  if (!mark) return true;
  const auto at = of.find('@');
  const std::string_view pod = of.substr(0, at), machine = at == of.npos ? std::string_view() : of.substr(at + 1);
  return (pod.empty() || pod == mark->pod) && (machine.empty() || machine == mark->machine);
}

bool may_speak_for(const NodeRecord& record, bool something_runs, const std::string& pod) {
  if (!something_runs || pod.empty()) return true;
  const auto mark = read_mark(record.extra);
  return !mark || mark->pod == pod;
}

}  // namespace fairlead::companion
