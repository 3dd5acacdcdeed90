// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/releases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace fairlead::slurm {
namespace {

struct Release { int year, month, accepts; };  // how many releases before it
constexpr std::array kReleases = {
    Release{20, 2, 2}, Release{20, 11, 2}, Release{21, 8, 2}, Release{22, 5, 2}, Release{23, 2, 2}, Release{23, 11, 2}, Release{24, 5, 2},
    Release{24, 11, 3}, Release{25, 5, 3}, Release{25, 11, 3}, Release{26, 5, 3},
};

// -1: not known.
int index_of(const Version& version) {
  for (std::size_t i = 0; i < kReleases.size(); ++i)
    if (kReleases[i].year == version.year && kReleases[i].month == version.month) return static_cast<int>(i);
  return -1;
}
std::string release_text(int year, int month) { return fmt::format("{:02}.{:02}", year, month); }

std::optional<int> digits(std::string_view& rest, std::size_t most) {
  int value = 0;
  const char* const end = rest.data() + std::min(rest.size(), most);
  const auto [stop, error] = std::from_chars(rest.data(), end, value);
  if (error != std::errc() || value < 0 || stop == rest.data() || rest.front() == '-') return std::nullopt;
  rest.remove_prefix(static_cast<std::size_t>(stop - rest.data()));
  return value;
}

// At the beginning: YY.MM.P, with anything that is no digit behind it.
std::optional<Version> version_at(std::string_view rest) {
  const auto dot = [&] {
    if (rest.empty() || rest.front() != '.') return false;
    rest.remove_prefix(1);
    return true;
  };
  const auto year = digits(rest, 2);
  if (!year || !dot()) return std::nullopt;
  const std::size_t before = rest.size();
  const auto month = digits(rest, 2);
  if (!month || before - rest.size() != 2 || *month < 1 || *month > 12 || !dot()) return std::nullopt;
  const auto patch = digits(rest, 4);
  if (!patch || (!rest.empty() && rest.front() >= '0' && rest.front() <= '9')) return std::nullopt;
  return Version{*year, *month, *patch};
}

}  // namespace

std::string Version::release() const { return release_text(year, month); }
std::string Version::text() const { return fmt::format("{}.{}", release(), patch); }

std::optional<Version> read_version(std::string_view words) {
  for (std::size_t at = 0; at < words.size(); ++at) {
    const bool starts = at == 0 || !((words[at - 1] >= '0' && words[at - 1] <= '9') || words[at - 1] == '.');
    if (!starts) continue;
    if (auto version = version_at(words.substr(at))) return version;
  }
  return std::nullopt;
}

bool known(const Version& version) { return index_of(version) >= 0; }
std::string newest_known_release() { return release_text(kReleases.back().year, kReleases.back().month); }

bool accepts(const Version& newer, const Version& older) {
  if (newer.same_release(older)) return true;
  const int to = index_of(newer), from = index_of(older);
  return to >= 0 && from >= 0 && from <= to && to - from <= kReleases[static_cast<std::size_t>(to)].accepts;
}

std::vector<std::string> way(const Version& from, const Version& to) {
  int at = index_of(from);
  const int goal = index_of(to);
  if (at < 0 || goal < 0 || at > goal) return {};
  std::vector<std::string> out;
  while (at < goal) {
    // As far as one step goes: what a later release accepts begins no earlier than what an earlier one does.
    int next = goal;
    while (next - at > kReleases[static_cast<std::size_t>(next)].accepts) --next;
    at = next;
    out.push_back(release_text(kReleases[static_cast<std::size_t>(at)].year, kReleases[static_cast<std::size_t>(at)].month));
  }
  if (out.empty()) out.push_back(to.release());
  return out;
}

}  // namespace fairlead::slurm
