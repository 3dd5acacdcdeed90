// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/links.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/encoding.h"

namespace fairlead::fleet {
namespace {

using State = LinkWord::State;

// Both ends' word of a link: it works if each attempt did, and does not if none did. One way only tells of rules rather than of cables.
struct Links {
  explicit Links(const std::map<std::string, LinkWords>& told) {
    for (const auto& [from, words] : told)
      for (const auto& [to, word] : words)
        if (told.contains(to) && to != from) {
          put(from, to, word);
          put(to, from, word);
        }
  }
  void put(const std::string& of, const std::string& with, const LinkWord& word) {
    const auto [at, fresh] = all[of].emplace(with, word);
    if (!fresh && at->second.state != word.state) at->second = {State::Unknown, at->second.state == State::Well ? word.words : at->second.words};
  }
  const LinkWords& links_of(const std::string& member) const {
    static const LinkWords none;
    const auto found = all.find(member);
    return found == all.end() ? none : found->second;
  }
  static std::size_t count(const LinkWords& of, State state) {
    return static_cast<std::size_t>(std::count_if(of.begin(), of.end(), [&](const auto& one) { return one.second.state == state; }));
  }
  bool at_fault(const std::string& member) const {
    const LinkWords& of = links_of(member);
    if (of.empty() || count(of, State::Fault) != of.size()) return false;
    return std::count_if(of.begin(), of.end(), [&](const auto& one) { return count(links_of(one.first), State::Well) > 0; }) >= 2;
  }
  std::map<std::string, LinkWords> all;
};

}  // namespace

std::vector<std::string> meeting_of(const std::vector<std::string>& waiting, const std::string& id) {
  const std::size_t count = waiting.size(), parts = (count + kMostInMeeting - 1) / kMostInMeeting;
  const auto at = static_cast<std::size_t>(std::lower_bound(waiting.begin(), waiting.end(), id) - waiting.begin());
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t begin = count * part / parts, end = count * (part + 1) / parts;
    if (at >= begin && at < end) return {waiting.begin() + static_cast<std::ptrdiff_t>(begin), waiting.begin() + static_cast<std::ptrdiff_t>(end)};
  }
  return {id};
}

std::vector<std::string> link_peers(const std::vector<std::string>& members, const std::string& of) {
  std::vector<std::string> out;
  const auto found = std::find(members.begin(), members.end(), of);
  if (found == members.end()) return out;
  const auto at = static_cast<std::size_t>(found - members.begin());
  for (std::size_t step = 1; step < members.size() && step <= kMostInMeeting / 2; step *= 2) out.push_back(members[(at + step) % members.size()]);
  return out;
}

LinkWords read_link_words(std::string_view text, const std::vector<std::string>& peers) {
  LinkWords out;
  for (const std::string& peer : peers) out[peer] = {State::Unknown, "nothing is known of it"};
  for (const std::string& line : split(text, '\n')) {
    const auto first = line.find(' ');
    if (first == line.npos) continue;
    const auto known = out.find(line.substr(0, first));
    if (known == out.end()) continue;
    const auto second = line.find(' ', first + 1);
    const std::string state = line.substr(first + 1, second == line.npos ? second : second - first - 1);
    if (state != "ok" && state != "fault" && state != "unknown") continue;
    known->second = {state == "ok" ? State::Well : state == "fault" ? State::Fault : State::Unknown, second == line.npos ? "" : std::string(trim(line.substr(second + 1))).substr(0, 200)};
  }
  return out;
}

LinkVerdict judge_links(const std::map<std::string, LinkWords>& told, const std::string& of) {
  using Kind = LinkVerdict::Kind;
  const Links links(told);
  const LinkWords& own = links.links_of(of);
  if (own.empty()) return {Kind::Alone, "links: there was no other machine to try it with"};
  std::vector<std::string> faults, unknown, well;
  for (const auto& [peer, word] : own) {
    if (word.state == State::Well) well.push_back(fmt::format("{} {}", peer, word.words));
    else if (!links.at_fault(peer)) (word.state == State::Fault ? faults : unknown).push_back(fmt::format("{}: {}", peer, word.words));
  }
  if (links.at_fault(of)) return {Kind::Faulty, fmt::format("links: none of {} works, and those at their other ends reach others ({})", own.size(), fmt::join(faults, "; "))};
  if (!faults.empty()) return {Kind::Unknown, fmt::format("links: {} of {} {} not work, and at which end the fault is cannot be told ({})", faults.size(), own.size(), faults.size() == 1 ? "does" : "do", fmt::join(faults, "; "))};
  if (!unknown.empty() || well.empty()) return {Kind::Unknown, fmt::format("links: {} of {} could not be tried ({})", unknown.size(), own.size(), fmt::join(unknown, "; "))};
  return {Kind::Passed, fmt::format("links: {} ({})", well.size(), fmt::join(well, "; "))};
}

}  // namespace fairlead::fleet
