// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/engine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/rng.h"
#include "base/test_rounds.h"
#include "governance/plan/engine_reference.h"

namespace fairlead::governance {
namespace {

const FlavorResource gpu{"h100", "gpu"};
EngineQueue one_flavor(std::string name, bool strict = false) { return {.name = std::move(name), .strict_fifo = strict, .groups = {{{"gpu"}, {"h100"}}}}; }
NodeSpec quota(std::string name, std::string parent, Amount nominal, Amount borrow = unlimited, double weight = 1) {
  return {.name = std::move(name), .parent = std::move(parent), .leaf = true, .weight = weight, .quotas = {{gpu, {nominal, borrow, unlimited}}}};
}
EngineClass asks(std::string queue, Amount gpus, std::int64_t priority = 0) { return {.queue = std::move(queue), .priority = priority, .pod_sets = {{.total = {{"gpu", gpus}}, .barred = {}}}}; }
std::vector<std::uint64_t> admitted(ContinuousEngine& engine) {
  std::vector<EngineDecision> out;
  engine.drain(out);
  std::vector<std::uint64_t> uids;
  for (const EngineDecision& d : out)
    if (d.kind == EngineDecision::Kind::Admitted) uids.push_back(engine.uid(d.job).low);
  return uids;
}
using Uids = std::vector<std::uint64_t>;

TEST(ContinuousEngine, TheExampleOfTwoTeamsNeedsALimitOfSixtyPercent) {
  for (const auto& [limit, starts] : {std::pair<Amount, bool>{2, false}, {3, true}, {unlimited, true}}) {
    ContinuousEngine engine({.nodes = {quota("a", "all", 6), quota("b", "all", 5, limit)}, .queues = {one_flavor("a"), one_flavor("b")}});
    engine.submit(engine.define(asks("a", 2)), {0, 1}, 1);
    engine.submit(engine.define(asks("b", 4)), {0, 2}, 2);
    EXPECT_EQ(admitted(engine), (Uids{1, 2}));
    const ClassId four = engine.define(asks("b", 4));
    engine.submit(four, {0, 3}, 3);
    EXPECT_EQ(admitted(engine), starts ? Uids{3} : Uids{}) << limit;
    if (starts) continue;
    EXPECT_EQ(engine.wait(four).rule, EngineWait::Rule::Short);
    EXPECT_EQ(engine.wait(four).missing, 1);
    EXPECT_EQ(engine.ledger().name(engine.wait(four).node), "b");  // its own limit, not the others' use
  }
}

TEST(ContinuousEngine, AStrictQueueIsHeldUpByItsFirst) {
  for (const bool strict : {true, false}) {
    ContinuousEngine engine({.nodes = {quota("q", "", 4)}, .queues = {one_flavor("q", strict)}});
    const JobId runs = engine.submit(engine.define(asks("q", 3)), {0, 1}, 1);
    engine.submit(engine.define(asks("q", 2)), {0, 2}, 2);
    const ClassId small = engine.define(asks("q", 1));
    const JobId third = engine.submit(small, {0, 3}, 3);
    EXPECT_EQ(admitted(engine), strict ? Uids{1} : (Uids{1, 3}));
    EXPECT_EQ(engine.wait(small).rule, strict ? EngineWait::Rule::Behind : EngineWait::Rule::None);
    if (!strict) engine.leave(third);
    engine.leave(runs);
    EXPECT_EQ(admitted(engine), strict ? (Uids{2, 3}) : Uids{2});
  }
}

TEST(ContinuousEngine, ADeletedFirstLetsTheOthersPass) {
  ContinuousEngine engine({.nodes = {quota("q", "", 4)}, .queues = {one_flavor("q", true)}});
  const JobId big = engine.submit(engine.define(asks("q", 9)), {0, 1}, 1);
  engine.submit(engine.define(asks("q", 1)), {0, 2}, 2);
  EXPECT_EQ(admitted(engine), Uids{});
  EXPECT_EQ(engine.wait(engine.define(asks("q", 9))).rule, EngineWait::Rule::ExceedsMax);
  EXPECT_EQ(engine.wait(engine.define(asks("q", 9))).missing, 5);
  engine.leave(big);
  EXPECT_EQ(admitted(engine), Uids{2});
}

TEST(ContinuousEngine, AmongBorrowersMoreWeightAndLessBorrowedGoesFirst) {  // weights 10 and 5: two of three of what is idle
  ContinuousEngine engine({.fair = true, .nodes = {quota("a", "all", 0, unlimited, 10), quota("b", "all", 0, unlimited, 5), quota("idle", "all", 9)}, .queues = {one_flavor("a"), one_flavor("b"), one_flavor("idle")}});
  for (std::uint64_t i = 0; i < 9; ++i) {
    engine.submit(engine.define(asks("b", 1)), {0, 100 + i}, static_cast<std::int64_t>(i));
    engine.submit(engine.define(asks("a", 1)), {0, 200 + i}, static_cast<std::int64_t>(i));
  }
  const Uids got = admitted(engine);
  EXPECT_EQ(got.size(), 9u);
  EXPECT_EQ(std::count_if(got.begin(), got.end(), [](std::uint64_t uid) { return uid >= 200; }), 6);
}

TEST(ContinuousEngine, WhatIsOddIsToldAndHoldsNothingUp) {
  ContinuousEngine engine({.nodes = {quota("q", "", 4), quota("a", "x", 1), {.name = "x", .parent = "y", .leaf = false}, {.name = "y", .parent = "x", .leaf = false}}, .queues = {one_flavor("q"), one_flavor("a")}});
  const ClassId nowhere = engine.define(asks("gone", 1)), cycle = engine.define(asks("a", 1));
  const ClassId uncovered = engine.define({.queue = "q", .pod_sets = {{.total = {{"tpu", 1}}, .barred = {}}}});
  const ClassId barred = engine.define({.queue = "q", .pod_sets = {{.total = {{"gpu", 1}}, .barred = {"h100"}}}});
  std::uint64_t uid = 0;
  for (const ClassId c : {nowhere, cycle, uncovered, barred}) engine.submit(c, {0, ++uid}, 1);
  engine.submit(engine.define(asks("q", 1)), {0, 9}, 1);
  EXPECT_EQ(admitted(engine), Uids{9});
  EXPECT_EQ(engine.wait(nowhere).rule, EngineWait::Rule::NoQueue);
  EXPECT_EQ(engine.wait(cycle).rule, EngineWait::Rule::Stopped);
  EXPECT_EQ(engine.wait(uncovered).rule, EngineWait::Rule::NoQuota);
  EXPECT_EQ(engine.wait(uncovered).resource, "tpu");
  EXPECT_EQ(engine.wait(barred).rule, EngineWait::Rule::NoFlavor);
  EXPECT_EQ(engine.waiting(), 4u);
}

// ---- partial admission
EngineClass workers(std::string queue, std::int32_t count, std::int32_t least, Amount each, std::int64_t priority = 0) {
  return {.queue = std::move(queue), .priority = priority, .pod_sets = {{.total = {{"gpu", each * count}}, .barred = {}, .count = count, .least = least, .each = {each}}}};
}
std::int32_t pods_of(const ContinuousEngine& engine, JobId job) { return engine.what(engine.class_of(job)).pod_sets[0].count; }

TEST(ContinuousEngine, FewerPodsStartWhereAllDoNotFitAndNoFewerThanWillDo) {
  ContinuousEngine engine({.nodes = {quota("q", "", 10)}, .queues = {one_flavor("q")}});
  const JobId runs = engine.submit(engine.define(asks("q", 3)), {0, 1}, 1);
  const JobId some = engine.submit(engine.define(workers("q", 8, 2, 2)), {0, 2}, 2);
  EXPECT_EQ(admitted(engine), (Uids{1, 2}));
  EXPECT_EQ(pods_of(engine, some), 3);  // of the seven that are left
  EXPECT_EQ(engine.ledger().usage(0, 0), 9);
  const ClassId more = engine.define(workers("q", 4, 2, 1));
  engine.submit(more, {0, 3}, 3);
  EXPECT_EQ(admitted(engine), Uids{});
  EXPECT_EQ(engine.wait(more).missing, 1);  // for two, not for four
  engine.leave(runs);
  EXPECT_EQ(admitted(engine), Uids{3});
  engine.leave(some);
  EXPECT_EQ(engine.ledger().usage(0, 0), 4);  // who has fewer than asked does not grow
}

TEST(ContinuousEngine, AllPodsWithVictimsComeBeforeFewerWithout) {
  EngineQueue queue = one_flavor("q");
  queue.policies.within_queue = PreemptionPolicy::LowerPriority;
  ContinuousEngine engine({.nodes = {quota("q", "", 6)}, .queues = {queue}});
  engine.submit(engine.define(asks("q", 2, 0)), {0, 1}, 1);
  engine.submit(engine.define(asks("q", 2, 9)), {0, 2}, 2);
  EXPECT_EQ(admitted(engine), (Uids{2, 1}));
  const JobId all = engine.submit(engine.define(workers("q", 4, 1, 1, 5)), {0, 3}, 3);
  std::vector<EngineDecision> out;
  engine.drain(out);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].kind, EngineDecision::Kind::Preempted);
  EXPECT_EQ(pods_of(engine, all), 4);
  // Three more than there are even with victims: as many as there are with them.
  ContinuousEngine other({.nodes = {quota("q", "", 6)}, .queues = {queue}});
  other.submit(other.define(asks("q", 2, 0)), {0, 1}, 1);
  other.submit(other.define(asks("q", 2, 9)), {0, 2}, 2);
  EXPECT_EQ(admitted(other), (Uids{2, 1}));
  const JobId many = other.submit(other.define(workers("q", 6, 3, 1, 5)), {0, 3}, 3);
  out.clear();
  other.drain(out);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].kind, EngineDecision::Kind::Preempted);
  EXPECT_EQ(out[1].kind, EngineDecision::Kind::Promised);
  EXPECT_EQ(pods_of(other, many), 4);
}

TEST(ContinuousEngine, AmountsBeyondAllNumbersAreNotCutToSmallOnes) {
  ContinuousEngine engine({.nodes = {quota("q", "", 6)}, .queues = {one_flavor("q")}});
  engine.submit(engine.define({.queue = "q", .pod_sets = {{.total = {{"gpu", unlimited}}, .barred = {}, .count = 1'000'000, .least = 1, .each = {unlimited / 2}}}}), {0, 1}, 1);
  EXPECT_EQ(admitted(engine), Uids{});
}

// ---- reservations

// Sixteen small ones at a time, always others, and one that needs all.
TEST(ContinuousEngine, ALargeJobStartsWhenWhatRanHasEndedOnceItIsKeptFor) {
  for (const bool keeps : {false, true}) {
    ContinuousEngine engine({.nodes = {quota("q", "", 16)}, .queues = {one_flavor("q")}});
    const ClassId one = engine.define(asks("q", 1));
    std::vector<JobId> runs;
    std::uint64_t uid = 0;
    const auto small = [&] {
      ++uid;
      return engine.submit(one, {0, uid}, static_cast<std::int64_t>(uid));
    };
    for (int i = 0; i < 16; ++i) runs.push_back(small());
    (void)admitted(engine);
    const ClassId all = engine.define(asks("q", 16));
    const JobId large = engine.submit(all, {0, 999}, static_cast<std::int64_t>(++uid));
    EXPECT_EQ(admitted(engine), Uids{});
    if (keeps) {
      EXPECT_EQ(engine.firsts(), std::vector{large});
      EXPECT_TRUE(engine.keep_for(large));
      EXPECT_TRUE(engine.keep_for(large)) << "once";
      EXPECT_EQ(engine.kept(), std::vector{large});
    }
    for (int i = 0; i < 16; ++i) {
      const JobId next = small();
      engine.leave(runs[static_cast<std::size_t>(i)]);
      const Uids got = admitted(engine);
      if (keeps && i == 15) EXPECT_EQ(got, Uids{999});
      else EXPECT_EQ(got, keeps ? Uids{} : Uids{uid});
      if (keeps && i < 15) {
        EXPECT_EQ(engine.wait(one).rule, EngineWait::Rule::Kept) << i;
        EXPECT_EQ(engine.wait(one).by, large);
      }
      runs.push_back(next);
    }
    EXPECT_EQ(engine.running(large), keeps);
    EXPECT_TRUE(engine.kept().empty());
    if (!keeps) continue;
    engine.leave(large);
    EXPECT_EQ(admitted(engine).size(), 16u) << "and all is as it was";
  }
}

TEST(ContinuousEngine, WhatIsKeptIsKeptFromThoseBehindAlone) {
  const auto lab = [](const std::function<void(ContinuousEngine&)>& then) {
    ContinuousEngine engine({.nodes = {quota("a", "all", 6), quota("b", "all", 6), quota("c", "all", 0)}, .queues = {one_flavor("a"), one_flavor("b"), one_flavor("c")}});
    engine.submit(engine.define(asks("a", 4)), {0, 1}, 1);
    (void)admitted(engine);
    const JobId large = engine.submit(engine.define(asks("a", 10, 5)), {0, 2}, 2);  // eight are free, two are missing
    EXPECT_EQ(admitted(engine), Uids{});
    EXPECT_TRUE(engine.keep_for(large));
    then(engine);
  };
  const auto starts = [](ContinuousEngine& engine, const EngineClass& what, std::int64_t created = 9) {
    const JobId job = engine.submit(engine.define(what), {0, 9}, created);
    (void)admitted(engine);
    return engine.running(job);
  };
  lab([&](ContinuousEngine& engine) { EXPECT_FALSE(starts(engine, asks("a", 1, 5))) << "behind it in its queue"; });
  lab([&](ContinuousEngine& engine) { EXPECT_TRUE(starts(engine, asks("a", 1, 5), 1)) << "before it, by age"; });
  lab([&](ContinuousEngine& engine) { EXPECT_TRUE(starts(engine, asks("a", 1, 6))) << "before it, by priority"; });
  lab([&](ContinuousEngine& engine) { EXPECT_FALSE(starts(engine, asks("c", 1, 5))) << "borrows what the other waits for"; });
  lab([&](ContinuousEngine& engine) { EXPECT_TRUE(starts(engine, asks("c", 1, 6))) << "with more priority"; });
  lab([&](ContinuousEngine& engine) { EXPECT_TRUE(starts(engine, asks("b", 6, 0))) << "its own quota is its own"; });
  lab([&](ContinuousEngine& engine) { EXPECT_FALSE(starts(engine, asks("b", 7, 5))) << "more than its own"; });
  lab([&](ContinuousEngine& engine) {
    EXPECT_FALSE(starts(engine, asks("c", 1, 5)));
    engine.keep_no_more(engine.kept().front());
    EXPECT_EQ(admitted(engine), Uids{9});
  });
  lab([&](ContinuousEngine& engine) {
    EXPECT_FALSE(starts(engine, asks("c", 1, 5)));
    engine.leave(engine.kept().front());
    EXPECT_EQ(admitted(engine), Uids{9});
  });
}

TEST(ContinuousEngine, NothingIsKeptForWhoCouldNeverHaveIt) {
  ContinuousEngine engine({.nodes = {quota("q", "", 4)}, .queues = {one_flavor("q")}});
  const JobId runs = engine.submit(engine.define(asks("q", 3)), {0, 1}, 1), never = engine.submit(engine.define(asks("q", 5)), {0, 2}, 2);
  const JobId odd = engine.submit(engine.define({.queue = "q", .pod_sets = {{.total = {{"tpu", 1}}, .barred = {}}}}), {0, 3}, 3);
  EXPECT_EQ(admitted(engine), Uids{1});
  for (const JobId job : {runs, never, odd}) EXPECT_FALSE(engine.keep_for(job));
  EXPECT_TRUE(engine.firsts().empty());
}

void fewer_will_do(EnginePodSet& pods, Rng& rng) {
  pods.count = 2 + static_cast<std::int32_t>(rng.below(4));
  pods.least = 1 + static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(pods.count)));
  pods.each.clear();
  for (auto& [resource, amount] : pods.total) {
    amount = (amount + 1) / 2;
    pods.each.push_back(amount);
    amount *= pods.count;
  }
}

// ---- random histories beside a slow model that looks at everything each time
struct Random {
  Rng rng;
  std::vector<std::string> queue_names;
  std::vector<bool> has_places;  // of each flavor
  bool with_places = false;
  explicit Random(std::uint64_t seed) : rng(seed) {}
  Amount some(Amount most) { return static_cast<Amount>(rng.below(static_cast<std::uint64_t>(most) + 1)); }
  bool one_in(std::uint64_t n) { return rng.below(n) == 0; }

  EngineSpec spec() {
    EngineSpec out;
    out.fair = one_in(2);
    const std::size_t flavors = 1 + rng.below(3), cohorts = rng.below(4), queues = 1 + rng.below(6);
    const bool two_groups = one_in(3);
    has_places.assign(flavors, false);
    for (std::size_t f = 0; with_places && f < flavors; ++f) {
      if (!(has_places[f] = !one_in(3))) continue;
      static const std::vector<std::vector<std::string>> levels = {{"block", "rack", "kubernetes.io/hostname"}, {"rack", "kubernetes.io/hostname"}, {"block", "rack"}, {"kubernetes.io/hostname"}};
      out.places.push_back({fmt::format("f{}", f), {.name = "t", .levels = levels[rng.below(levels.size())], .flavor_labels = one_in(3) ? kube::Labels{{"kind", "a"}} : kube::Labels{}, .tolerations = {}}});
    }
    const auto limits = [&] { return Limits{some(8), one_in(3) ? some(6) : unlimited, one_in(3) ? some(6) : unlimited}; };
    const auto quotas = [&](NodeSpec& node) {
      for (std::size_t f = 0; f < flavors; ++f)
        for (const char* resource : {"cpu", "gpu"})
          if (node.leaf || one_in(3)) node.quotas.push_back({{fmt::format("f{}", f), resource}, limits()});
      if (two_groups && (node.leaf || one_in(3))) node.quotas.push_back({{"disk", "bytes"}, limits()});
    };
    for (std::size_t c = 0; c < cohorts; ++c) {
      NodeSpec node{.name = fmt::format("c{}", c), .parent = c == 0 || one_in(4) ? "" : fmt::format("c{}", rng.below(c)), .leaf = false, .weight = static_cast<double>(rng.below(4))};
      quotas(node);
      out.nodes.push_back(std::move(node));
    }
    queue_names.clear();
    for (std::size_t q = 0; q < queues; ++q) {
      NodeSpec node{.name = fmt::format("q{}", q), .parent = cohorts == 0 || one_in(6) ? "" : fmt::format("c{}", rng.below(cohorts)), .leaf = true, .weight = static_cast<double>(rng.below(4))};
      quotas(node);
      EngineQueue queue{.name = node.name, .strict_fifo = one_in(4), .policies = {.next_if_borrowing = one_in(2)}, .stopped = one_in(12), .groups = {{{"cpu", "gpu"}, {}}}};
      for (std::size_t f = 0; f < flavors; ++f) queue.groups[0].flavors.push_back(fmt::format("f{}", f));
      if (two_groups) queue.groups.push_back({{"bytes"}, {"disk"}});
      queue_names.push_back(node.name);
      out.queues.push_back(std::move(queue));
      out.nodes.push_back(std::move(node));
    }
    return out;
  }
  EngineClass what() {
    EngineClass out{.queue = queue_names[rng.below(queue_names.size())], .priority = static_cast<std::int64_t>(rng.below(3)), .pod_sets = {}};
    const std::size_t sets = 1 + rng.below(2);
    for (std::size_t p = 0; p < sets; ++p) {
      EnginePodSet pods{.total = {{"cpu", some(5)}, {"gpu", some(3)}}, .barred = {}};
      if (one_in(4)) pods.total.push_back({"bytes", some(3)});
      if (one_in(4)) pods.barred.push_back("f0");
      // Fewer pods of one set may push those of another out of their place: then not all that fits in some way is found.
      if ((!with_places || sets == 1) && one_in(4)) fewer_will_do(pods, rng);
      if (with_places) place(pods, p == 0 ? nullptr : &out.pod_sets.front());
      out.pod_sets.push_back(std::move(pods));
    }
    return out;
  }

  // Pods of a set that has places, on flavors that have them; others on others. Two sets that are placed one after the other may come to fit because less is free: they are of one group here, or one of them has no place.
  void place(EnginePodSet& pods, const EnginePodSet* first) {
    const bool placed = first == nullptr ? !one_in(4) : first->place && first->place->ask.group;
    pods.barred.clear();
    for (std::size_t f = 0; f < has_places.size(); ++f)
      if (has_places[f] != placed) pods.barred.push_back(fmt::format("f{}", f));
    if (!placed) return;
    PlaceAsk& ask = pods.place.emplace();
    ask.count = pods.count > 0 ? pods.count : 1 + static_cast<std::int32_t>(rng.below(5));
    for (std::size_t r = 0; r < pods.total.size(); ++r)
      if (pods.total[r].first != "bytes") ask.per_pod[pods.total[r].first] = pods.total[r].second / ask.count;
    static const std::vector<std::string> levels = {"block", "rack", "kubernetes.io/hostname"};
    if (const std::uint64_t kind = rng.below(5); kind == 0) ask.ask.required = levels[rng.below(3)];
    else if (kind == 1) ask.ask.preferred = levels[rng.below(3)];
    else if (kind == 2) ask.ask.unconstrained = ask.ask.named = true;
    else if (kind == 3 && pods.count == 0) ask.ask.slices = {{.level = levels[rng.below(3)], .size = 1 + static_cast<std::int32_t>(rng.below(2))}};
    else ask.implied = true;
    if (ask.ask.required && one_in(3)) ask.ask.group = "g";
    if (first != nullptr) ask.ask = first->place->ask, ask.implied = false, ask.count = 1;
    if (one_in(5)) ask.needs.selector["kind"] = "a";
  }
  std::vector<TopologyNode> nodes() {
    std::vector<TopologyNode> out;
    for (std::size_t n = 0; n < 2 + rng.below(7); ++n) {
      TopologyNode node;
      node.name = fmt::format("n{}", n);
      node.labels = {{"kubernetes.io/hostname", node.name}, {"rack", fmt::format("r{}", n / 2)}, {"block", fmt::format("b{}", n / 4)}};
      if (one_in(2)) node.labels["kind"] = "a";
      node.ready = !one_in(8), node.unschedulable = one_in(12);
      node.allocatable = {{"cpu", some(8)}, {"gpu", some(6)}, {"pods", 1 + some(4)}};
      out.push_back(std::move(node));
    }
    return out;
  }
};

void beside_the_slow_model(std::uint64_t histories, bool with_places) {
  std::uint64_t decisions = 0;
  for (std::uint64_t seed = 1; seed <= histories; ++seed) {
    Random random(seed);
    random.with_places = with_places;
    EngineSpec spec = random.spec();
    ContinuousEngine engine(spec);
    EngineReference reference(spec);
    const auto look_at_nodes = [&] {
      const std::vector<TopologyNode> nodes = random.nodes();
      engine.set_nodes(nodes);
      reference.set_nodes(nodes);
    };
    if (with_places) look_at_nodes();
    std::map<std::uint64_t, JobId> present;  // by uid
    std::uint64_t uid = 0;
    std::int64_t now = 0;
    for (int event = 0; event < 40; ++event) {
      const std::uint64_t kind = random.rng.below(20);
      if (kind < 12) {
        const EngineClass what = random.what();
        now += random.some(1);
        const std::uint64_t own = ++uid * 7919 % 10'007;
        present[own] = engine.submit(engine.define(what), {0, own}, now);
        reference.submit(what, {0, own}, now);
      } else if (kind < 19 && !present.empty()) {
        const auto gone = std::next(present.begin(), static_cast<std::ptrdiff_t>(random.rng.below(present.size())));
        engine.leave(gone->second);
        reference.leave({0, gone->first});
        present.erase(gone);
      } else if (with_places && random.one_in(2)) {
        if (random.one_in(3)) {
          look_at_nodes();
        } else {
          const std::string node = fmt::format("n{}", random.rng.below(8));
          const ContinuousEngine::OtherUse use{.requests = {{"cpu", random.some(4)}}, .pods = static_cast<std::int32_t>(random.some(2))};
          engine.set_others(node, use);
          reference.set_others(node, use);
        }
      } else if (random.one_in(3)) {
        spec = random.spec();
        engine.configure(spec);
        reference.configure(spec);
      }
      if (random.one_in(3)) continue;
      const Uids got = admitted(engine), want = reference.drain();
      ASSERT_EQ(got, want) << "history " << seed << ", event " << event;
      decisions += got.size();
      ASSERT_EQ(engine.running(), reference.running());
      ASSERT_EQ(engine.running() + engine.waiting(), present.size());
      for (const auto& [one, job] : present) {
        ASSERT_EQ(engine.flavors_of(job), reference.flavors_of({0, one})) << "history " << seed;
        ASSERT_EQ(engine.places_of(job), reference.places_of({0, one})) << "history " << seed << ", event " << event;
        ASSERT_EQ(engine.what(engine.class_of(job)), reference.gets({0, one})) << "history " << seed << ", event " << event;
      }
      const std::string ledgers = reference.compare(engine.ledger());
      ASSERT_EQ(ledgers, "") << "history " << seed << ", event " << event;
    }
  }
  EXPECT_GT(decisions, histories);
}

TEST(ContinuousEngine, RandomHistoriesGoAsTheSlowModelSays) { beside_the_slow_model(test_rounds<std::uint64_t>(3'000, 1'000'000), false); }
TEST(ContinuousEngine, AndSoDoThoseWithPlaces) { beside_the_slow_model(test_rounds<std::uint64_t>(1'000, 100'000), true); }

TEST(ContinuousEngine, ARestartChangesNothing) {
  for (std::uint64_t seed = 1; seed <= test_rounds<std::uint64_t>(300, 3'000); ++seed) {
    Random random(seed);
    const EngineSpec spec = random.spec();
    ContinuousEngine engine(spec);
    std::vector<JobId> jobs;
    for (std::uint64_t i = 0; i < 25; ++i) jobs.push_back(engine.submit(engine.define(random.what()), {0, i}, static_cast<std::int64_t>(i)));
    (void)admitted(engine);
    ContinuousEngine again(spec);
    std::vector<JobId> copies;
    Random same(seed);
    (void)same.spec();
    for (std::uint64_t i = 0; i < 25; ++i) {
      const ClassId what = again.define(same.what());
      copies.push_back(engine.running(jobs[i]) ? again.adopt(again.define(engine.what(engine.class_of(jobs[i]))), {0, i}, static_cast<std::int64_t>(i), engine.flavors_of(jobs[i])) : again.submit(what, {0, i}, static_cast<std::int64_t>(i)));
    }
    EXPECT_EQ(admitted(again), Uids{}) << seed;
    for (std::uint64_t i = 0; i < 25; i += 3) engine.leave(jobs[i]), again.leave(copies[i]);
    EXPECT_EQ(admitted(engine), admitted(again)) << seed;
  }
}

// Jobs that are stopped for a reason of their own, shrink, or were told to stop before a restart: each is counted where it belongs, and who fits with what they give back starts.
TEST(ContinuousEngine, StoppedAndShrunkJobsAreCountedOnce) {
  for (std::uint64_t seed = 1; seed <= test_rounds<std::uint64_t>(500, 20'000); ++seed) {
    Random random(seed);
    const EngineSpec spec = random.spec();
    ContinuousEngine engine(spec);
    struct Job {
      JobId id;
      EngineClass what;
      bool stopping;
    };
    std::map<std::uint64_t, Job> jobs;
    std::uint64_t uid = 0;
    for (int event = 0; event < 30; ++event) {
      const auto any = [&] { return std::next(jobs.begin(), static_cast<std::ptrdiff_t>(random.rng.below(jobs.size()))); };
      const std::uint64_t kind = random.rng.below(10);
      if (kind < 5 || jobs.empty()) {
        const EngineClass what = random.what();
        ++uid;
        jobs[uid] = {engine.submit(engine.define(what), {0, uid}, static_cast<std::int64_t>(uid)), what, false};
      } else if (kind < 6) {
        const auto gone = any();
        engine.leave(gone->second.id);
        jobs.erase(gone);
      } else if (auto& [id, what, stopping] = any()->second; engine.flavors_of(id).empty()) {
        continue;
      } else if (kind < 8) {
        stopping = stopping || engine.running(id);
        engine.stop(id);
      } else if (engine.running(id) || stopping) {
        what = engine.what(engine.class_of(id));
        for (EnginePodSet& pods : what.pod_sets)
          for (auto& [resource, amount] : pods.total) amount -= random.some(amount);
        engine.recount(id, engine.define(what));
      }
      (void)admitted(engine);
      Ledger all(spec.nodes), held(spec.nodes);  // in use; without what is being stopped
      for (const auto& [own, job] : jobs) {
        const auto flavors = engine.flavors_of(job.id);
        const EngineClass& what = engine.what(engine.class_of(job.id));
        if (flavors.empty()) continue;
        const bool uses = engine.running(job.id) || job.stopping;  // else its quota is promised
        for (std::size_t p = 0; p < what.pod_sets.size(); ++p)
          for (std::size_t r = 0; r < what.pod_sets[p].total.size(); ++r) {
            const NodeId leaf = all.leaf(what.queue);
            const Column column = flavors[p][r].empty() ? no_column : all.column(leaf, flavors[p][r], what.pod_sets[p].total[r].first);
            if (column == no_column) continue;
            if (uses) all.add(leaf, column, what.pod_sets[p].total[r].second);
            if (!job.stopping) held.add(leaf, column, what.pod_sets[p].total[r].second);
          }
      }
      for (NodeId node = 0; node < all.size(); ++node)
        for (Column column = 0; column < all.width(node); ++column) {
          ASSERT_EQ(engine.in_use().usage(node, column), all.usage(node, column)) << "history " << seed << ", event " << event;
          ASSERT_EQ(engine.ledger().usage(node, column), held.usage(node, column)) << "history " << seed << ", event " << event;
        }
    }
    // A successor of what is there sees it as its predecessor does.
    ContinuousEngine again(spec);
    std::map<std::uint64_t, JobId> copies;
    const auto promised = [&](const Job& job) { return !engine.flavors_of(job.id).empty() && !engine.running(job.id) && !job.stopping; };
    if (std::any_of(jobs.begin(), jobs.end(), [&](const auto& one) { return promised(one.second); })) continue;  // it may promise to others
    for (const auto& [own, job] : jobs)
      if (!engine.flavors_of(job.id).empty())
        copies[own] = again.adopt(again.define(engine.what(engine.class_of(job.id))), {0, own}, static_cast<std::int64_t>(own), engine.flavors_of(job.id), job.stopping ? ContinuousEngine::Adopted::Stopping : ContinuousEngine::Adopted::Running);
    for (const auto& [own, job] : jobs)
      if (!copies.contains(own)) copies[own] = again.submit(again.define(job.what), {0, own}, static_cast<std::int64_t>(own));
    EXPECT_EQ(admitted(again), Uids{}) << seed << ": whoever fits with what was given back has started";
    for (const auto& [own, job] : jobs)
      if (job.stopping) engine.leave(job.id), again.leave(copies[own]);
    EXPECT_EQ(admitted(engine), admitted(again)) << seed;
  }
}

}  // namespace
}  // namespace fairlead::governance
