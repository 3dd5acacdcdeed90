// SPDX-License-Identifier: Apache-2.0
// Which flavor a job gets where some have room and others have victims (flavorFungibility), beside the compatible mode.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/rng.h"
#include "base/test_rounds.h"
#include "governance/plan/cycle.h"
#include "governance/plan/engine.h"

namespace fairlead::governance {
namespace {

using Kind = EngineDecision::Kind;

struct Order {
  const char* name;
  bool next_if_preempting, next_if_borrowing, preempt_rather_than_borrow;
  std::int64_t low_on_first;  // priority of who holds the first flavor
  Amount own_second;          // of the second flavor, which has room for one: borrowed where the queue owns none
  const char* flavor;
  bool preempts;
};
class FlavorOrder : public testing::TestWithParam<Order> {};
TEST_P(FlavorOrder, AsTheQueueSays) {
  const Order& row = GetParam();
  const auto quota = [](std::string name, Amount first, Amount second) {
    return NodeSpec{.name = std::move(name), .parent = "all", .leaf = true, .quotas = {{{"first", "gpu"}, {first, unlimited, unlimited}}, {{"second", "gpu"}, {second, unlimited, unlimited}}}};
  };
  EngineQueue queue{.name = "q", .policies = {.within_queue = PreemptionPolicy::LowerPriority}, .groups = {{{"gpu"}, {"first", "second"}}}};
  queue.policies.next_if_preempting = row.next_if_preempting, queue.policies.next_if_borrowing = row.next_if_borrowing, queue.policies.preempt_rather_than_borrow = row.preempt_rather_than_borrow;
  ContinuousEngine engine({.nodes = {quota("q", 1, row.own_second), quota("other", 0, 1 - row.own_second)}, .queues = {queue, {.name = "other", .policies = {}, .groups = {}}}});
  const auto asks = [](std::int64_t priority, std::vector<std::string> barred = {}) { return EngineClass{.queue = "q", .priority = priority, .pod_sets = {{.total = {{"gpu", 1}}, .barred = std::move(barred)}}}; };
  engine.submit(engine.define(asks(row.low_on_first, {"second"})), {0, 1}, 1);
  std::vector<EngineDecision> out;
  engine.drain(out);
  ASSERT_EQ(out.size(), 1u);
  const JobId job = engine.submit(engine.define(asks(5)), {0, 2}, 2);
  out.clear();
  engine.drain(out);
  ASSERT_FALSE(out.empty());
  EXPECT_EQ(out.front().kind == Kind::Preempted, row.preempts);
  EXPECT_EQ(engine.flavors_of(job), (std::vector<std::vector<std::string>>{{row.flavor}}));
}
INSTANTIATE_TEST_SUITE_P(Rows, FlavorOrder, testing::Values(
    Order{"room_before_victims", true, false, false, 0, 1, "second", false},
    Order{"the_first_with_victims", false, false, false, 0, 1, "first", true},
    Order{"nobody_to_preempt_there", false, false, false, 9, 1, "second", false},
    Order{"borrows_rather_than_preempts", true, true, false, 0, 0, "second", false},
    Order{"preempts_rather_than_borrows", true, true, true, 0, 0, "first", true},
    Order{"room_of_its_own_before_victims", true, true, true, 0, 1, "second", false},
    Order{"nobody_to_preempt_so_it_borrows", true, true, true, 9, 0, "second", false}),
    [](const auto& row) { return row.param.name; });

// One job that comes up on a random site with several flavors: the same flavor, and the same victims, as Kueue's cycle would choose.
void compare(bool fair) {
  std::uint64_t preempted = 0, moved_on = 0, asked = 0;
  for (std::uint64_t seed = 1; seed <= test_rounds<std::uint64_t>(4'000, 200'000); ++seed) {
    Rng rng(seed);
    const auto some = [&](Amount most) { return static_cast<Amount>(rng.below(static_cast<std::uint64_t>(most) + 1)); };
    const auto one_in = [&](std::uint64_t n) { return rng.below(n) == 0; };
    EngineSpec spec{.fair = fair};
    WorldSpec world_spec;
    world_spec.rules.fair = fair, world_spec.rules.check_final = true;
    std::vector<std::string> flavors;
    for (std::size_t f = 0; f < 2 + rng.below(2); ++f) {
      flavors.push_back(fmt::format("f{}", f));
      world_spec.flavors.push_back({});
      world_spec.flavors.back().node.name = flavors.back();
    }
    const std::size_t cohorts = 1 + rng.below(3), queues = 2 + rng.below(3);
    const auto add = [&](std::string name, std::string parent, bool leaf) {
      NodeSpec node{.name = name, .parent = parent, .leaf = leaf, .weight = fair ? static_cast<double>(1 + rng.below(3)) : 1};
      ResourceGroup group{{"gpu"}, {}};
      for (const std::string& flavor : flavors) {
        const Limits limits = leaf || one_in(3) ? Limits{some(6), one_in(4) ? some(4) : unlimited, one_in(4) ? some(4) : unlimited} : Limits{};
        node.quotas.push_back({{flavor, "gpu"}, limits});
        group.flavors.push_back({flavor, {{"gpu", limits}}});
      }
      const double weight = node.weight;
      spec.nodes.push_back(std::move(node));
      if (!leaf) {
        CohortSpec cohort;
        cohort.name = name, cohort.parent = parent, cohort.weight = weight, cohort.groups = {group};
        world_spec.cohorts.push_back(std::move(cohort));
        return;
      }
      QueueSpec queue;
      queue.name = name, queue.cohort = parent, queue.weight = weight, queue.groups = {group};
      QueuePolicies& may = queue.policies;
      may.within_queue = std::array{PreemptionPolicy::Never, PreemptionPolicy::LowerPriority, PreemptionPolicy::LowerOrNewerEqualPriority}[rng.below(3)];
      may.reclaim = std::array{PreemptionPolicy::Never, PreemptionPolicy::LowerPriority, PreemptionPolicy::Any}[rng.below(3)];
      may.borrow_within_cohort = !fair && one_in(3);
      may.next_if_preempting = !one_in(3), may.next_if_borrowing = one_in(2);
      may.preempt_rather_than_borrow = may.next_if_preempting && may.next_if_borrowing && one_in(2);
      spec.queues.push_back({.name = name, .policies = may, .groups = {{{"gpu"}, flavors}}});
      world_spec.queues.push_back(std::move(queue));
    };
    for (std::size_t c = 0; c < cohorts; ++c) add(fmt::format("c{}", c), c == 0 ? "" : fmt::format("c{}", rng.below(c)), false);
    for (std::size_t q = 0; q < queues; ++q) add(fmt::format("q{}", q), fmt::format("c{}", rng.below(cohorts)), true);

    ContinuousEngine engine(spec);
    const Instant start{std::chrono::seconds(1'800'000'000)};
    const auto workload = [&](const EngineClass& what, std::uint64_t uid, std::int64_t created) {
      WorkloadSpec w;
      w.space = "x", w.name = fmt::format("w{}", uid), w.uid = fmt::format("{:016x}", uid), w.priority = what.priority, w.created = start + std::chrono::seconds(created);
      PodSetSpec set;
      set.name = "main", set.count = 1, set.raw = set.per_pod = {{"gpu", what.pod_sets[0].total[0].second}};
      w.pod_sets.push_back(std::move(set));
      return w;
    };
    const auto some_class = [&] { return EngineClass{.queue = fmt::format("q{}", rng.below(queues)), .priority = static_cast<std::int64_t>(rng.below(3)), .pod_sets = {{.total = {{"gpu", 1 + some(3)}}, .barred = {}}}}; };
    std::map<JobId, std::uint64_t> uids;
    for (std::uint64_t i = 0; i < 10; ++i) {
      const EngineClass what = some_class();
      const std::string& flavor = flavors[rng.below(flavors.size())];
      const std::uint64_t uid = i * 7919 % 101;
      uids[engine.adopt(engine.define(what), {0, uid}, static_cast<std::int64_t>(i), {{flavor}})] = uid;
      WorkloadSpec held = workload(what, uid, static_cast<std::int64_t>(i));
      HeldPodSet pods;
      pods.name = "main", pods.count = 1, pods.flavors["gpu"] = flavor, pods.usage["gpu"] = what.pod_sets[0].total[0].second;
      held.admission = Admission{what.queue, {pods}};
      held.reserved = {true, "QuotaReserved", start + std::chrono::seconds(100 + i)};
      world_spec.workloads.push_back(std::move(held));
    }
    const EngineClass what = some_class();
    world_spec.workloads.push_back(workload(what, 999, 20));
    World world = build_world(world_spec);
    const auto id = static_cast<WorkloadId>(world.workloads.size() - 1);
    Assigned assigned = assign(world, id, world.queue_named(what.queue), 0, nullptr);
    std::string want, got;
    std::set<std::string> want_victims, got_victims;
    const bool would = assigned.assignment.mode() == Mode::Fit || !assigned.victims.empty();
    if (would) want = world.flavors[assigned.assignment.pod_sets.at(0).flavors.at(0).flavor].name;
    if (would)
      for (const Victim& victim : assigned.victims) want_victims.insert(world.workloads[victim.workload].spec.uid);

    const JobId job = engine.submit(engine.define(what), {0, 999}, 20);
    std::vector<EngineDecision> out;
    engine.drain(out);
    for (const EngineDecision& one : out) {
      if (one.kind == Kind::Preempted && one.by == job) got_victims.insert(fmt::format("{:016x}", uids.at(one.job)));
      if ((one.kind == Kind::Admitted || one.kind == Kind::Promised) && one.job == job) got = engine.flavors_of(job)[0][0];
    }
    ASSERT_EQ(got, want) << "seed " << seed;
    ASSERT_EQ(got_victims, want_victims) << "seed " << seed;
    preempted += !want_victims.empty(), moved_on += !want.empty() && want != "f0", ++asked;
  }
  EXPECT_GT(preempted, asked / 20);
  EXPECT_GT(moved_on, asked / 20);
}
TEST(FlavorOrderProperty, IsThatOfTheCompatibleMode) { compare(false); }
TEST(FlavorOrderProperty, AndByShare) { compare(true); }

}  // namespace
}  // namespace fairlead::governance
