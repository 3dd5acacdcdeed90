// SPDX-License-Identifier: Apache-2.0
#include "api/field_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace fairlead::api {
namespace {

using kube::Json;

constexpr std::size_t kLongest = 80;  // of a name that is compared with others

// Changes of one letter that lead from one word to the other.
std::size_t distance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t corner = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, corner + (lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1)});
      corner = above;
    }
  }
  return row[b.size()];
}

}  // namespace

FieldNames field_names(std::string_view lines) {
  FieldNames out;
  while (!lines.empty()) {
    const auto end = lines.find('\n');
    const std::string_view line = lines.substr(0, end);
    out.emplace(line.substr(0, line.find(' ')));
    lines.remove_prefix(end == lines.npos ? lines.size() : end + 1);
  }
  return out;
}

std::vector<std::string> ignored_fields(const Json& spec, const FieldNames& effective, const std::function<bool(std::string_view path, const Json& value)>& says_nothing) {
  std::vector<std::string> out;
  const std::function<void(const Json&, const std::string&)> walk = [&](const Json& node, const std::string& path) {
    if (effective.contains(path)) return;
    const auto below = effective.lower_bound(path + ".");
    if (path.empty() || (below != effective.end() && below->starts_with(path + "."))) {
      for (const auto& [name, value] : node.members()) walk(value, path.empty() ? name : path + "." + name);
    } else if (!says_nothing(path, node)) {
      out.push_back("spec." + path);
    }
  };
  walk(spec, "");
  return out;
}

std::string with_suggestion(std::string path, const FieldNames& known) {
  if (!path.starts_with("spec.") || path.find(' ') != std::string::npos) return path;
  const std::string below = path.substr(5);
  if (known.contains(below)) return path;
  const auto dot = below.rfind('.');
  const std::string parent = dot == std::string::npos ? "" : below.substr(0, dot + 1), name = below.substr(dot == std::string::npos ? 0 : dot + 1);
  std::string best;
  std::size_t least = name.size() > kLongest ? 0 : name.size() > 4 ? 3 : 2;
  for (auto at = known.lower_bound(parent); least > 0 && at != known.end() && at->starts_with(parent); ++at) {
    const std::string_view rest = std::string_view(*at).substr(parent.size());
    if (rest.empty() || rest.find('.') != rest.npos || rest.ends_with("[]")) continue;
    if (const std::size_t far = distance(name, rest); far < least) {
      least = far;
      best = rest;
    }
  }
  if (best.empty()) return path + " (no such field)";
  return fmt::format("{} (no such field; did you mean {}?)", path, best);
}

}  // namespace fairlead::api
