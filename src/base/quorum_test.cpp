// SPDX-License-Identifier: Apache-2.0
// Heads and witnesses with clocks of their own pace, over a network that loses, delays, repeats and reorders, with pauses, restarts and partitions.
#include "base/quorum.h"
#include "base/test_rounds.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>

namespace fairlead::quorum {
namespace {
using namespace std::chrono_literals;

// Several machines. A machine acts while it is awake and its own clock is before the deadline that it last published, as the daemon's watchdog has it.
struct Options {
  double loss = 0.1;
  Time delay = 5ms;
  double repeat = 0.05, drift = 0.05;
};

class World {
 public:
  World(std::uint64_t seed, int heads, int witnesses, Options options = {}) : chance_(seed), options_(options), heads_(heads), machines_(heads + witnesses) {
    for (Machine& machine : machines_) {
      machine.pace = 1 + options.drift * (2 * fraction() - 1);
      machine.offset = Time(static_cast<std::int64_t>(fraction() * 1e12));
    }
    for (int i = 0; i < size(); ++i) start(i);
  }

  // A process that begins, or begins anew and has forgotten everything.
  void start(int i) {
    Machine& machine = machines_[i];
    machine.deadline = Time::min();
    const auto self = static_cast<std::uint8_t>(i);
    if (i < heads_) machine.elector = std::make_unique<Elector>(self, static_cast<std::uint8_t>(size()), timing_, chance_(), local(i));
    else machine.witness = std::make_unique<Voter>(self, timing_, local(i));
  }

  Time local(int i) const { return machines_[i].offset + Time(static_cast<std::int64_t>(static_cast<double>(now_.count()) * machines_[i].pace)); }
  bool acts(int i) const { return awake(i) && local(i) < machines_[i].deadline; }
  bool awake(int i) const { return machines_[i].asleep_until <= now_; }
  int acting() const {
    int count = 0;
    for (int i = 0; i < heads_; ++i) count += acts(i);
    return count;
  }
  int actor() const {
    for (int i = 0; i < heads_; ++i)
      if (acts(i)) return i;
    return -1;
  }

  void step() {
    now_ += 1ms;
    // A machine that wakes: what it had published counts at once, before it has looked at anything.
    most_ = std::max(most_, acting());
    for (int i = 0; i < static_cast<int>(machines_.size()); ++i) {
      if (!awake(i)) continue;
      while (true) {
        const auto due = std::find_if(machines_[i].inbox.begin(), machines_[i].inbox.end(), [&](const auto& item) { return item.first <= now_; });
        if (due == machines_[i].inbox.end()) break;
        const Message message = due->second;
        machines_[i].inbox.erase(due);
        if (machines_[i].elector) send(i, machines_[i].elector->receive(message, local(i)));
        else if (message.kind == Kind::Ask) send(i, {machines_[i].witness->answer(message, local(i))});
        else if (message.kind == Kind::Release) machines_[i].witness->release(message);
        most_ = std::max(most_, acting());
      }
      if (machines_[i].elector) own(i);
      most_ = std::max(most_, acting());
    }
  }
  void own(int i) {
    Machine& machine = machines_[i];
    send(i, machine.elector->tick(local(i), chance_()));
    if (machine.elector->lapsed(local(i))) {
      machine.deadline = Time::min();  // stopped, and known to be
      send(i, machine.elector->give_back(local(i) + 50ms));
    }
    machine.deadline = machine.elector->lease_until();
  }
  void run(Time duration) {
    for (const Time end = now_ + duration; now_ < end;) step();
  }
  // How long until somebody acts; nothing after ten seconds.
  std::optional<Time> until_acting(int not_this = -1) {
    const Time from = now_;
    while (now_ < from + 10s) {
      if (const int who = actor(); who >= 0 && who != not_this) return now_ - from;
      step();
    }
    return std::nullopt;
  }
  void send(int from, const std::vector<Message>& messages) {
    for (const Message& message : messages) {
      if (cut_.contains({from, message.to}) || fraction() < options_.loss) continue;
      for (int copies = fraction() < options_.repeat ? 2 : 1; copies > 0; --copies)
        machines_[message.to].inbox.emplace_back(now_ + Time(static_cast<std::int64_t>(fraction() * static_cast<double>(options_.delay.count()))), message);
    }
  }
  void step_down(int i, Time wait = 5s) {
    machines_[i].deadline = Time::min();
    send(i, machines_[i].elector->give_back(local(i) + wait));
  }
  void handicap(int i, Time by) { machines_[i].elector->handicap(by); }
  void sleep(int i, Time duration) { machines_[i].asleep_until = now_ + duration; }
  void cut(int from, int to) { cut_.insert({from, to}); }
  void cut_off(int i) {
    for (int other = 0; other < static_cast<int>(machines_.size()); ++other)
      if (other != i) cut(i, other), cut(other, i);
  }
  void heal() { cut_.clear(); }
  double fraction() { return std::uniform_real_distribution<>(0, 1)(chance_); }
  int below(int n) { return static_cast<int>(fraction() * n); }
  int most() const { return most_; }
  int size() const { return static_cast<int>(machines_.size()); }

 private:
  struct Machine {
    double pace = 1;
    Time offset{};
    Time asleep_until{};
    Time deadline = Time::min();
    std::unique_ptr<Elector> elector;
    std::unique_ptr<Voter> witness;
    std::vector<std::pair<Time, Message>> inbox;
  };
  std::mt19937_64 chance_;
  Options options_;
  Timing timing_;
  int heads_;
  Time now_{};
  int most_ = 0;
  std::vector<Machine> machines_;
  std::set<std::pair<int, int>> cut_;
};

TEST(Quorum, OneHeadAloneHoldsAtOnce) {
  World world(1, 1, 0);
  const auto took = world.until_acting();
  ASSERT_TRUE(took);
  EXPECT_LE(*took, 5ms);
  world.run(3s);
  EXPECT_EQ(world.acting(), 1);
}

TEST(Quorum, TheOthersTakeOverAboutASecondAfterTheHolderIsGone) {
  for (const auto& [heads, witnesses] : std::vector<std::pair<int, int>>{{2, 1}, {3, 1}, {3, 0}}) {
    std::vector<Time> took;
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
      World world(seed, heads, witnesses);
      ASSERT_TRUE(world.until_acting()) << seed;
      world.run(Time(world.below(1000)) * 1'000'000);
      const int holder = world.actor();
      ASSERT_GE(holder, 0);
      world.sleep(holder, 1000s);
      const auto time = world.until_acting(holder);
      ASSERT_TRUE(time) << seed;
      took.push_back(*time);
      EXPECT_EQ(world.most(), 1);
    }
    std::sort(took.begin(), took.end());
    EXPECT_LT(took[25], 1200ms) << heads;
    EXPECT_LT(took[49], 2500ms) << heads;
    EXPECT_GT(took[0], 700ms);
  }
}

TEST(Quorum, APlannedChangeTakesNoWaiting) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    World world(seed, 3, 1, {.loss = 0});
    ASSERT_TRUE(world.until_acting());
    world.run(300ms);
    const int holder = world.actor();
    world.step_down(holder);
    const auto time = world.until_acting(holder);
    ASSERT_TRUE(time) << seed;
    EXPECT_LT(*time, 150ms) << seed;
    EXPECT_EQ(world.most(), 1);
  }
}

TEST(Quorum, AHandicapLetsOthersBeFirstAndKeepsNobodyOut) {
  World world(3, 2, 1, {.loss = 0});
  ASSERT_TRUE(world.until_acting());
  world.run(300ms);
  const int holder = world.actor();
  world.handicap(1 - holder, 300ms);
  world.handicap(holder, 700ms);
  world.step_down(holder, 0s);
  auto time = world.until_acting(holder);
  ASSERT_TRUE(time);
  EXPECT_GE(*time, 250ms);
  EXPECT_LT(*time, 450ms);
  world.run(300ms);
  world.sleep(1 - holder, 1000s);
  time = world.until_acting(1 - holder);
  ASSERT_TRUE(time);
  EXPECT_LT(*time, 2s);
  EXPECT_EQ(world.most(), 1);
}

TEST(Quorum, WithoutAMajorityNobodyActs) {
  World world(7, 2, 1);
  ASSERT_TRUE(world.until_acting());
  for (int i = 0; i < 3; ++i) world.cut_off(i);
  world.run(1200ms);
  EXPECT_EQ(world.acting(), 0);
  world.run(20s);
  EXPECT_EQ(world.acting(), 0);
  world.heal();
  EXPECT_TRUE(world.until_acting());
  EXPECT_EQ(world.most(), 1);
}

// Two heads that cannot hear each other, and a witness that hears both: who serves goes on.
TEST(Quorum, AHealthyHolderIsNotDisturbedByOneThatCannotHearIt) {
  World world(11, 2, 1, {.loss = 0.02});
  ASSERT_TRUE(world.until_acting());
  world.run(200ms);
  const int holder = world.actor();
  world.cut(0, 1);
  world.cut(1, 0);
  for (int i = 0; i < 30'000; ++i) {
    world.step();
    ASSERT_TRUE(world.acts(holder)) << i;
  }
}

// A holder that nobody else can hear keeps nothing by the questions that it sends, nor one that hears nobody by what it is promised.
TEST(Quorum, OneWayLinksGiveNoLease) {
  for (const bool out : {true, false}) {
    World world(13, 3, 0, {.loss = 0});
    ASSERT_TRUE(world.until_acting());
    world.run(200ms);
    const int holder = world.actor();
    for (int other = 0; other < 3; ++other)
      if (other != holder) out ? world.cut(holder, other) : world.cut(other, holder);
    world.run(900ms);
    EXPECT_FALSE(world.acts(holder));
    if (!out) world.heal();  // what it asks without hearing holds the others up: healed, somebody serves again
    EXPECT_TRUE(world.until_acting());
    EXPECT_EQ(world.most(), 1);
  }
}

TEST(Quorum, NeverTwoWhateverHappens) {
  int takeovers = 0;
  const auto seeds = test_rounds<std::uint64_t>(60, 3000);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const int heads = 1 + static_cast<int>(seed % 3), witnesses = heads == 1 ? 0 : static_cast<int>(seed / 3 % 2) + (heads == 2 ? 1 : 0);
    World world(seed, heads, witnesses, {.loss = 0.15, .delay = seed % 5 == 0 ? Time(700ms) : Time(20ms), .repeat = 0.2, .drift = 0.08});
    int last = -1;
    for (int round = 0; round < 60; ++round) {
      const int who = world.below(world.size());
      switch (world.below(6)) {
        case 0: world.sleep(who, Time(world.below(3000)) * 1'000'000); break;
        case 1: world.start(who); break;
        case 2: world.cut_off(who); break;
        case 3: world.cut(who, world.below(world.size())); break;
        case 4: world.heal(); break;
        case 5: if (who < heads && world.acts(who)) world.step_down(who); break;
      }
      world.run(Time(world.below(700)) * 1'000'000);
      if (const int actor = world.actor(); actor >= 0 && actor != last) last = actor, ++takeovers;
      ASSERT_LE(world.most(), 1) << "seed " << seed << " round " << round;
    }
    world.heal();
    world.run(4s);
    if (seed % 5 != 0) {
      EXPECT_TRUE(world.until_acting()) << seed;
    }
    ASSERT_LE(world.most(), 1) << seed;
  }
  EXPECT_GT(takeovers, static_cast<int>(seeds));  // something did happen
}

// The promise itself, by the table.
TEST(Voter, PromisesToOneAtATime) {
  const Timing timing;
  Voter voter(2, timing, 0s);
  const auto ask = [&](std::uint8_t from, std::uint64_t incarnation, std::uint64_t sequence, Time now) {
    return voter.answer({.kind = Kind::Ask, .from = from, .to = 2, .incarnation = incarnation, .sequence = sequence}, now);
  };
  Message silent = ask(0, 7, 1, 400ms);
  EXPECT_EQ(silent.kind, Kind::Refuse);
  EXPECT_EQ(silent.holder, 255);
  EXPECT_EQ(silent.left, 600ms);
  EXPECT_EQ(ask(0, 7, 2, 1s).kind, Kind::Grant);
  const Message refused = ask(1, 8, 1, 1500ms);
  EXPECT_EQ(refused.kind, Kind::Refuse);
  EXPECT_EQ(refused.holder, 0);
  EXPECT_EQ(refused.left, 500ms);
  EXPECT_EQ(ask(0, 9, 1, 1500ms).kind, Kind::Refuse) << "another process of the same head";
  EXPECT_EQ(ask(1, 8, 2, 2s).kind, Kind::Grant);
  // A late release of what came before does not free it; its own does, and what it took back promises nothing any more.
  voter.release({.kind = Kind::Release, .from = 0, .to = 2, .incarnation = 7, .sequence = 2});
  EXPECT_EQ(voter.promised_to(2s), 1);
  EXPECT_EQ(ask(1, 8, 5, 2100ms).kind, Kind::Grant);
  voter.release({.kind = Kind::Release, .from = 1, .to = 2, .incarnation = 8, .sequence = 4});
  EXPECT_EQ(voter.promised_to(2100ms), 1);
  voter.release({.kind = Kind::Release, .from = 1, .to = 2, .incarnation = 8, .sequence = 5});
  EXPECT_EQ(voter.promised_to(2100ms), std::nullopt);
  EXPECT_EQ(ask(1, 8, 3, 2200ms).kind, Kind::Refuse);
  EXPECT_EQ(ask(0, 9, 2, 2200ms).kind, Kind::Grant);
}

// An answer counts from when its question was sent; one that was never sent, or was taken back, proves nothing.
TEST(Elector, CountsFromTheQuestion) {
  Elector elector(0, 3, {}, 5, 0s);
  auto out = elector.tick(2s, 0);
  ASSERT_EQ(out.size(), 2U);
  const auto grant = [&](std::uint8_t from, std::uint64_t sequence) {
    return Message{.kind = Kind::Grant, .from = from, .to = 0, .incarnation = 5, .sequence = sequence};
  };
  (void)elector.receive(grant(1, 99), 2100ms);
  EXPECT_FALSE(elector.holds(2100ms));
  (void)elector.receive(grant(1, out[0].sequence), 2100ms);
  EXPECT_EQ(elector.lease_until(), 2800ms);
  EXPECT_TRUE(elector.lapsed(2800ms));
  // Late, but sent in time to matter if it had not lapsed.
  auto renewed = elector.tick(2150ms, 0);
  ASSERT_FALSE(renewed.empty());
  (void)elector.tick(2800ms, 0);
  (void)elector.receive(grant(1, renewed[0].sequence), 2801ms);
  EXPECT_FALSE(elector.holds(2801ms));
  EXPECT_EQ(elector.give_back(3s).size(), 2U);
  (void)elector.receive(grant(1, renewed[0].sequence), 2802ms);
  (void)elector.receive(grant(2, renewed[0].sequence), 2802ms);
  EXPECT_FALSE(elector.holds(2802ms));
  EXPECT_TRUE(elector.tick(2900ms, 0).empty());
}

}  // namespace
}  // namespace fairlead::quorum
