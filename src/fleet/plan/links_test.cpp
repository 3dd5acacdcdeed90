// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/links.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "base/rng.h"

namespace fairlead::fleet {
namespace {

using State = LinkWord::State;
using Kind = LinkVerdict::Kind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> some(std::size_t count) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(fmt::format("i-{:02}", i));
  return out;
}
// What everybody tells, where a link works as `works(from, to)` says.
std::map<std::string, LinkWords> tell(const std::vector<std::string>& members, const auto& works) {
  std::map<std::string, LinkWords> out;
  for (const std::string& from : members) {
    out[from];
    for (const std::string& to : link_peers(members, from)) out[from][to] = works(from, to) ? LinkWord{State::Well, "900 MB/s"} : LinkWord{State::Fault, "timed out"};
  }
  return out;
}

TEST(Links, EveryPairOfAFewIsTriedAndEachOfManyHasSeveral) {
  EXPECT_THAT(link_peers(some(1), "i-00"), IsEmpty());
  EXPECT_THAT(link_peers(some(2), "i-01"), ElementsAre("i-00"));
  for (std::size_t count = 2; count <= kMostInMeeting; ++count) {
    const auto members = some(count);
    std::map<std::string, std::set<std::string>> with;
    for (const std::string& from : members) {
      const auto peers = link_peers(members, from);
      EXPECT_LE(peers.size(), 5U);
      EXPECT_EQ(std::set(peers.begin(), peers.end()).size(), peers.size());
      for (const std::string& to : peers) {
        EXPECT_NE(to, from);
        with[from].insert(to);
        with[to].insert(from);
      }
    }
    for (const std::string& of : members) {
      EXPECT_GE(with[of].size(), std::min<std::size_t>(count - 1, 4));
      if (count <= 5) {
        EXPECT_EQ(with[of].size(), count - 1);
      }
    }
  }
}

TEST(Links, ManyMeetInPartsOfLikeSizeThatAllAgreeOn) {
  for (const std::size_t count : {1U, 2U, 32U, 33U, 65U, 1000U}) {
    auto waiting = some(count);
    std::sort(waiting.begin(), waiting.end());
    for (const std::string& id : waiting) {
      const auto part = meeting_of(waiting, id);
      EXPECT_LE(part.size(), kMostInMeeting);
      EXPECT_GE(part.size(), std::min<std::size_t>(count, 16));
      EXPECT_THAT(part, testing::Contains(id));
      for (const std::string& other : part) EXPECT_EQ(meeting_of(waiting, other), part);
    }
  }
}

TEST(Links, OneThatReachesNobodyIsAtFaultAndTheOthersPass) {
  for (std::size_t count = 3; count <= kMostInMeeting; ++count) {
    const auto members = some(count);
    const auto told = tell(members, [&](const auto& from, const auto& to) { return from != "i-01" && to != "i-01"; });
    for (const std::string& of : members) EXPECT_EQ(judge_links(told, of).kind, of == "i-01" ? Kind::Faulty : Kind::Passed) << count << of;
  }
  const auto told = tell(some(3), [&](const auto& from, const auto& to) { return from != "i-01" && to != "i-01"; });
  EXPECT_THAT(judge_links(told, "i-01").words, HasSubstr("none of 2 works"));
  EXPECT_THAT(judge_links(told, "i-00").words, HasSubstr("i-02 900 MB/s"));
}

TEST(Links, OfTwoNobodyIsAtFault) {
  const auto told = tell(some(2), [](const auto&, const auto&) { return false; });
  for (const char* of : {"i-00", "i-01"}) EXPECT_EQ(judge_links(told, of).kind, Kind::Unknown);
}

TEST(Links, WhereNothingWorksNobodyIsAtFault) {
  const auto told = tell(some(5), [](const auto&, const auto&) { return false; });
  for (const std::string& of : some(5)) EXPECT_EQ(judge_links(told, of).kind, Kind::Unknown);
}

TEST(Links, ALinkBetweenTwoThatReachOthersCondemnsNeither) {
  const auto told = tell(some(4), [](const auto& from, const auto& to) { return std::set<std::string>{from, to} != std::set<std::string>{"i-00", "i-01"}; });
  EXPECT_EQ(judge_links(told, "i-00").kind, Kind::Unknown);
  EXPECT_EQ(judge_links(told, "i-01").kind, Kind::Unknown);
  EXPECT_EQ(judge_links(told, "i-02").kind, Kind::Passed);
}

// Rules of a network refuse one way; a cable does not.
TEST(Links, OneWayOnlyCondemnsNobody) {
  const auto told = tell(some(3), [](const auto&, const auto& to) { return to != "i-01"; });
  for (const std::string& of : some(3)) EXPECT_NE(judge_links(told, of).kind, Kind::Faulty);
  EXPECT_EQ(judge_links(told, "i-01").kind, Kind::Unknown);
}

TEST(Links, WhatCouldNotBeTriedIsNoFault) {
  auto told = tell(some(3), [](const auto& from, const auto& to) { return from != "i-01" && to != "i-01"; });
  for (auto& [from, words] : told)
    for (auto& [to, word] : words)
      if (from == "i-01" && to == "i-02") word = {State::Unknown, "nobody listened"};
  EXPECT_EQ(judge_links(told, "i-01").kind, Kind::Unknown);
}

TEST(Links, WhatIsSaidOfThoseThatAreGoneDoesNotCount) {
  auto told = tell(some(3), [](const auto& from, const auto& to) { return from != "i-01" && to != "i-01"; });
  told.erase("i-01");
  EXPECT_EQ(judge_links(told, "i-00").kind, Kind::Passed);
  told.erase("i-02");
  EXPECT_EQ(judge_links(told, "i-00").kind, Kind::Alone);
}

// Whatever fails: a link that works saves, who has no other passes, and of those who are condemned two at least are left who say so.
TEST(Links, AWellLinkSaves) {
  Rng rng(7);
  for (int round = 0; round < 2000; ++round) {
    const auto members = some(2 + rng.below(10));
    std::map<std::set<std::string>, bool> works;
    const auto told = tell(members, [&](const auto& from, const auto& to) { return works.emplace(std::set<std::string>{from, to}, rng.below(3) > 0).first->second; });
    std::size_t condemned = 0;
    for (const std::string& of : members) {
      const auto verdict = judge_links(told, of);
      bool any = false, all = true;
      for (const auto& [pair, well] : works)
        if (pair.contains(of)) any = any || well, all = all && well;
      EXPECT_FALSE(any && verdict.kind == Kind::Faulty);
      EXPECT_TRUE(!all || verdict.kind == Kind::Passed);
      condemned += verdict.kind == Kind::Faulty;
    }
    EXPECT_LE(condemned + 2, std::max<std::size_t>(members.size(), 2));
  }
}

TEST(Links, WordsAreReadAsTheyAreMeant) {
  const auto read = read_link_words("i-1 ok 812 MB/s, 0.2 ms\ni-2 fault timed out\nnonsense\ni-9 ok x\ni-3 wonderful\ni-4\n i-5 ok", {"i-1", "i-2", "i-3", "i-4", "i-5"});
  EXPECT_EQ(read.size(), 5U);
  EXPECT_EQ(read.at("i-1"), (LinkWord{State::Well, "812 MB/s, 0.2 ms"}));
  EXPECT_EQ(read.at("i-2"), (LinkWord{State::Fault, "timed out"}));
  for (const char* of : {"i-3", "i-4", "i-5"}) EXPECT_EQ(read.at(of).state, State::Unknown);
}

}  // namespace
}  // namespace fairlead::fleet
