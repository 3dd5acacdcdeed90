// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/rng.h"
#include "base/test_rounds.h"
#include "governance/plan/engine.h"
#include "governance/plan/victims.h"

namespace fairlead::governance {
namespace {

using Kind = EngineDecision::Kind;
const QueuePolicies takes_back{.within_queue = PreemptionPolicy::LowerPriority, .reclaim = PreemptionPolicy::Any};

EngineQueue team(std::string name, QueuePolicies policies) { return {.name = std::move(name), .policies = policies, .groups = {{{"cpu", "gpu"}, {"h100"}}}}; }
NodeSpec owns(std::string name, std::string parent, Amount gpus, bool leaf = true) {
  return {.name = std::move(name), .parent = std::move(parent), .leaf = leaf, .quotas = {{{"h100", "gpu"}, {gpus, unlimited, unlimited}}, {{"h100", "cpu"}, {100, unlimited, unlimited}}}};
}
EngineClass asks(std::string queue, Amount gpus, std::int64_t priority = 0) { return {.queue = std::move(queue), .priority = priority, .pod_sets = {{.total = {{"gpu", gpus}}, .barred = {}}}}; }

struct Told {
  std::vector<std::uint64_t> admitted, promised, preempted;
  std::vector<VictimReason> reasons;
};
Told drained(ContinuousEngine& engine) {
  std::vector<EngineDecision> out;
  engine.drain(out);
  Told told;
  for (const EngineDecision& d : out) {
    if (d.kind == Kind::Admitted) told.admitted.push_back(engine.uid(d.job).low);
    if (d.kind == Kind::Promised) told.promised.push_back(engine.uid(d.job).low);
    if (d.kind == Kind::Preempted) told.preempted.push_back(engine.uid(d.job).low), told.reasons.push_back(d.reason);
  }
  return told;
}
using Uids = std::vector<std::uint64_t>;

TEST(ContinuousPreemption, ALenderTakesBackWhatItLentAndStartsWhenItIsFree) {
  ContinuousEngine engine({.nodes = {owns("a", "all", 6), owns("b", "all", 5)}, .queues = {team("a", takes_back), team("b", takes_back)}});
  std::map<std::uint64_t, JobId> jobs;
  for (std::uint64_t i = 1; i <= 9; ++i) jobs[i] = engine.submit(engine.define(asks("b", 1)), {0, i}, static_cast<std::int64_t>(i));
  EXPECT_EQ(drained(engine).admitted.size(), 9u);  // 4 of them on what a owns
  jobs[20] = engine.submit(engine.define(asks("a", 4)), {0, 20}, 20);
  const Told told = drained(engine);
  EXPECT_EQ(told.preempted, (Uids{9, 8}));  // the latest first, no more than needed
  EXPECT_EQ(told.reasons, (std::vector{VictimReason::InCohortReclamation, VictimReason::InCohortReclamation}));
  EXPECT_EQ(told.promised, Uids{20});
  EXPECT_EQ(told.admitted, Uids{});
  EXPECT_FALSE(engine.running(jobs[20]));
  engine.leave(jobs[9]);
  EXPECT_EQ(drained(engine).admitted, Uids{});
  jobs[30] = engine.submit(engine.define(asks("b", 1)), {0, 30}, 30);  // what was freed is promised
  EXPECT_EQ(drained(engine).admitted, Uids{});
  engine.leave(jobs[8]);
  EXPECT_EQ(drained(engine).admitted, Uids{20});
  // b never takes back what a owns.
  EXPECT_EQ(engine.victims_of(engine.define(asks("b", 1))).size(), 0u);
}

TEST(ContinuousPreemption, APromiseThatIsTakenBackFreesWhatItHad) {
  ContinuousEngine engine({.nodes = {owns("a", "all", 6), owns("b", "all", 0)}, .queues = {team("a", takes_back), team("b", takes_back)}});
  const JobId borrower = engine.submit(engine.define(asks("b", 6)), {0, 1}, 1);
  EXPECT_EQ(drained(engine).admitted, Uids{1});
  const JobId owner = engine.submit(engine.define(asks("a", 2)), {0, 2}, 2);
  EXPECT_EQ(drained(engine).preempted, Uids{1});
  const JobId other = engine.submit(engine.define(asks("b", 4)), {0, 3}, 3);
  EXPECT_EQ(drained(engine).promised, Uids{3});  // what the victim had and the owner does not need
  engine.leave(owner);
  EXPECT_EQ(drained(engine).admitted, Uids{});
  engine.leave(borrower);
  EXPECT_EQ(drained(engine).admitted, Uids{3});
  EXPECT_TRUE(engine.running(other));
}

TEST(ContinuousPreemption, WithinAQueueTheLowerPriorityAlone) {
  ContinuousEngine engine({.nodes = {owns("q", "", 4)}, .queues = {team("q", takes_back)}});
  for (std::uint64_t i = 1; i <= 4; ++i) engine.submit(engine.define(asks("q", 1, i == 3 ? 5 : 10)), {0, i}, static_cast<std::int64_t>(i));
  EXPECT_EQ(drained(engine).admitted.size(), 4u);
  engine.submit(engine.define(asks("q", 1, 10)), {0, 9}, 9);
  EXPECT_EQ(drained(engine).preempted, Uids{3});
  engine.submit(engine.define(asks("q", 1, 10)), {0, 10}, 10);
  EXPECT_EQ(drained(engine).preempted, Uids{});
}

TEST(ContinuousPreemption, OfEqualPriorityWhoHasSavedItsWorkLastGoesFirst) {
  for (const bool told : {false, true}) {
    ContinuousEngine engine({.nodes = {owns("a", "all", 6), owns("b", "all", 0)}, .queues = {team("a", takes_back), team("b", takes_back)}});
    std::map<std::uint64_t, JobId> jobs;
    for (std::uint64_t i = 1; i <= 3; ++i) jobs[i] = engine.submit(engine.define(asks("b", 2, i == 3 ? 5 : 0)), {0, i}, static_cast<std::int64_t>(i));
    EXPECT_EQ(drained(engine).admitted.size(), 3u);
    if (told) engine.saved(jobs[2], 100), engine.saved(jobs[1], 700), engine.saved(jobs[3], 900);
    engine.submit(engine.define(asks("a", 2)), {0, 20}, 20);
    EXPECT_EQ(drained(engine).preempted, told ? Uids{1} : Uids{2}) << "3 has more priority, whatever it has saved";
    if (!told) continue;
    engine.saved(jobs[1], 5);  // it stops: nothing
    ContinuousEngine fork(engine);
    fork.submit(fork.define(asks("a", 2)), {0, 21}, 21);
    EXPECT_EQ(drained(fork).preempted, Uids{2});
  }
}

TEST(ContinuousPreemption, WhoHasJustStartedIsNobodysVictim) {
  ContinuousEngine engine({.shields = true, .nodes = {owns("a", "all", 6), owns("b", "all", 0)}, .queues = {team("a", takes_back), team("b", takes_back)}});
  const JobId borrower = engine.submit(engine.define(asks("b", 6)), {0, 1}, 1);
  EXPECT_EQ(drained(engine).admitted, Uids{1});
  EXPECT_TRUE(engine.shielded(borrower));
  engine.submit(engine.define(asks("a", 2)), {0, 2}, 2);
  EXPECT_EQ(drained(engine).preempted, Uids{});
  ContinuousEngine successor({.shields = true, .nodes = {owns("a", "all", 6), owns("b", "all", 0)}, .queues = {team("a", takes_back), team("b", takes_back)}});
  EXPECT_TRUE(successor.shielded(successor.adopt(successor.define(asks("b", 6)), {0, 1}, 1, engine.flavors_of(borrower)))) << "until its time is known";
  engine.expose(borrower);
  const Told told = drained(engine);
  EXPECT_EQ(told.preempted, Uids{1});
  EXPECT_EQ(told.promised, Uids{2});
  engine.leave(borrower);
  EXPECT_EQ(drained(engine).admitted, Uids{2});
}

// ---- beside the compatible mode's search
struct Site {
  Rng rng;
  EngineSpec spec;
  WorldSpec world;
  std::vector<EngineClass> running;
  bool partial = false;  // some take fewer pods
  bool places = false;   // nodes in racks: pods get a place
  std::vector<TopologyNode> nodes;

  Amount some(Amount most) { return static_cast<Amount>(rng.below(static_cast<std::uint64_t>(most) + 1)); }
  bool one_in(std::uint64_t n) { return rng.below(n) == 0; }
  QueuePolicies policies() {
    QueuePolicies out;
    out.within_queue = std::array{PreemptionPolicy::Never, PreemptionPolicy::LowerPriority, PreemptionPolicy::LowerOrNewerEqualPriority}[rng.below(3)];
    out.reclaim = std::array{PreemptionPolicy::Never, PreemptionPolicy::LowerPriority, PreemptionPolicy::Any}[rng.below(3)];
    out.borrow_within_cohort = one_in(3);
    if (out.borrow_within_cohort && one_in(2)) out.borrow_threshold = static_cast<std::int64_t>(rng.below(4));
    return out;
  }
  Limits limits() { return {some(8), one_in(4) ? some(6) : unlimited, one_in(4) ? some(6) : unlimited}; }

  explicit Site(std::uint64_t seed, bool fair = false) : rng(seed) {
    if (fair) {
      spec.fair = world.rules.fair = true;
      const std::uint64_t kind = rng.below(4);  // [final, initial], [final], [initial], [initial, final]
      spec.final_share = world.rules.final_share = kind != 2;
      spec.initial_share = world.rules.initial_share = kind != 1;
      spec.initial_first = world.rules.initial_first = kind >= 2;
      world.rules.check_final = true;
    }
    world.flavors.push_back({});
    world.flavors.back().node.name = "h100";
    const std::size_t cohorts = 1 + rng.below(4), queues = 2 + rng.below(4);
    const auto add = [&](std::string name, std::string parent, bool leaf) {
      NodeSpec node{.name = name, .parent = parent, .leaf = leaf, .weight = fair ? static_cast<double>(rng.below(4)) : 1};
      ResourceGroup group{{"cpu", "gpu"}, {{"h100", {}}}};
      for (const char* resource : {"cpu", "gpu"}) {
        const Limits own = leaf || one_in(3) ? limits() : Limits{};
        node.quotas.push_back({{"h100", resource}, own});
        group.flavors[0].resources.emplace_back(resource, own);
      }
      const double node_weight = node.weight;
      spec.nodes.push_back(std::move(node));
      if (!leaf) {
        CohortSpec cohort;
        cohort.name = name, cohort.parent = parent, cohort.weight = node_weight, cohort.groups = {group};
        world.cohorts.push_back(std::move(cohort));
        return;
      }
      QueueSpec queue;
      queue.name = name, queue.cohort = parent, queue.weight = node_weight, queue.groups = {group}, queue.policies = policies();
      spec.queues.push_back({.name = name, .policies = queue.policies, .groups = {{{"cpu", "gpu"}, {"h100"}}}});
      world.queues.push_back(std::move(queue));
    };
    for (std::size_t c = 0; c < cohorts; ++c) add(fmt::format("c{}", c), c == 0 ? "" : fmt::format("c{}", rng.below(c)), false);
    for (std::size_t q = 0; q < queues; ++q) add(fmt::format("q{}", q), fmt::format("c{}", rng.below(cohorts)), true);
  }
  void add_nodes() {
    places = true;
    const TopologyShape shape{.name = "t", .levels = {"rack", "kubernetes.io/hostname"}, .flavor_labels = {}, .tolerations = {}};
    spec.places = {{"h100", shape}};
    world.flavors[0].topology = "t";
    world.topologies = {shape};
    for (std::size_t n = 0; n < 2 + rng.below(5); ++n) {
      TopologyNode& node = nodes.emplace_back();
      node.name = fmt::format("n{}", n), node.ready = true;
      node.labels = {{"kubernetes.io/hostname", node.name}, {"rack", fmt::format("r{}", n / 2)}};
      node.allocatable = {{"cpu", 2 + some(6)}, {"gpu", 1 + some(5)}, {"pods", 2 + some(6)}};
    }
    world.nodes = nodes;
  }
  EngineClass placed() {
    EngineClass out{.queue = fmt::format("q{}", rng.below(spec.queues.size())), .priority = static_cast<std::int64_t>(rng.below(4)), .pod_sets = {{}}};
    PlaceAsk& ask = out.pod_sets[0].place.emplace();
    ask.count = 1 + static_cast<std::int32_t>(rng.below(3));
    ask.per_pod = {{"cpu", some(2)}, {"gpu", some(2)}};
    for (const auto& [resource, amount] : ask.per_pod) out.pod_sets[0].total.emplace_back(resource, amount * ask.count);
    if (one_in(2)) ask.ask.required = one_in(3) ? "kubernetes.io/hostname" : "rack";
    else if (one_in(2)) ask.ask.preferred = "rack";
    else ask.ask.unconstrained = ask.ask.named = true;
    return out;
  }
  EngineClass what() {
    if (places) return placed();
    EngineClass out{.queue = fmt::format("q{}", rng.below(spec.queues.size())), .priority = static_cast<std::int64_t>(rng.below(4)), .pod_sets = {{.total = {{"cpu", some(3)}, {"gpu", some(4)}}, .barred = {}}}};
    if (!partial || !one_in(2)) return out;
    EnginePodSet& pods = out.pod_sets[0];
    pods.count = 2 + static_cast<std::int32_t>(rng.below(4)), pods.least = 1;
    pods.each = {some(1), 1};
    for (std::size_t r = 0; r < 2; ++r) pods.total[r].second = pods.each[r] * pods.count;
    return out;
  }
};

void compare_with_the_compatible_mode(bool fair, bool places) {
  std::uint64_t found = 0, asked = 0;
  for (std::uint64_t seed = 1; seed <= test_rounds<std::uint64_t>(4'000, 200'000); ++seed) {
    Site site(seed, fair);
    if (places) site.add_nodes();
    ContinuousEngine engine(site.spec);
    engine.set_nodes(site.nodes);
    std::map<JobId, std::uint64_t> uids;
    const Instant start{std::chrono::seconds(1'800'000'000)};
    const auto workload = [&](const EngineClass& what, std::uint64_t uid, std::int64_t created) {
      WorkloadSpec w;
      w.space = "x", w.name = fmt::format("w{}", uid), w.uid = fmt::format("{:016x}", uid), w.priority = what.priority, w.created = start + std::chrono::seconds(created);
      return w;
    };
    for (std::uint64_t i = 0; i < 14; ++i) {  // more than fits: somebody has cut the quotas since
      const EngineClass what = site.what();
      const std::uint64_t uid = i * 7919 % 101;
      const auto created = static_cast<std::int64_t>(site.rng.below(20));
      PlacesOf where;
      if (places) {  // some share a node, and may use more of it than there is
        where.emplace_back(TopologyAssignment{.levels = {"kubernetes.io/hostname"}, .domains = {}});
        std::map<std::string, std::int32_t> on;
        for (std::int32_t pod = 0; pod < what.pod_sets[0].place->count; ++pod) ++on[fmt::format("n{}", site.rng.below(site.nodes.size()))];
        for (const auto& [node, count] : on) where[0]->domains.push_back({{node}, count});
      }
      uids[engine.adopt(engine.define(what), {0, uid}, created, {{"h100", "h100"}}, ContinuousEngine::Adopted::Running, where)] = uid;
      WorkloadSpec held = workload(what, uid, created);
      HeldPodSet pods;
      if (places) {
        pods.topology = where[0], pods.count = what.pod_sets[0].place->count;
        PodSetSpec set;
        set.name = "main", set.count = *pods.count, set.raw = set.per_pod = what.pod_sets[0].place->per_pod;
        held.pod_sets.push_back(std::move(set));
      }
      pods.name = "main";
      for (const auto& [resource, amount] : what.pod_sets[0].total) pods.flavors[resource] = "h100", pods.usage[resource] = amount;
      held.admission = Admission{what.queue, {pods}};
      held.reserved = {true, "QuotaReserved", start + std::chrono::seconds(100 + i)};
      site.world.workloads.push_back(std::move(held));
    }
    const EngineClass what = site.what();
    WorkloadSpec asker = workload(what, 999, 10);
    site.world.workloads.push_back(asker);
    const std::string queue = what.queue;
    World world = build_world(site.world);

    const ClassId c = engine.define(what);
    const JobId job = engine.submit(c, {0, 999}, 10);
    Need need{.workload = static_cast<WorkloadId>(world.workloads.size() - 1), .queue = world.queue_named(queue), .uses = {}, .contested = {}, .places = {}, .placed = {}};
    const NodeId leaf = world.queues[need.queue].node;
    bool may = true;
    for (const auto& [resource, amount] : what.pod_sets[0].total) {
      const Column column = world.ledger.column(leaf, "h100", resource);
      need.uses.push_back({column, amount});
      if (amount <= world.ledger.available(leaf, column)) continue;
      need.contested.push_back(column);
      may = may && amount <= world.ledger.potential(leaf, column) &&
            (world.ledger.limits(leaf, column).nominal >= amount || world.queues[need.queue].spec.policies.borrow_within_cohort ||
             (fair && world.queues[need.queue].spec.policies.reclaim != PreemptionPolicy::Never) || world.ledger.borrow_level(leaf, column, amount).below_root);
    }
    std::set<std::pair<std::string, VictimReason>> want, got;
    std::vector<FlavorQuestion> questions;
    if (places) {
      const PlaceAsk& ask = *what.pod_sets[0].place;
      FlavorQuestion& question = questions.emplace_back();
      question.flavor = "h100", question.topology = world.flavors[0].topology.get();
      question.pod_sets.push_back({.name = "main", .ask = ask.ask, .implied = false, .count = ask.count, .per_pod = amounts_of(ask.per_pod, *world.placement_resources), .needs = {}, .conflict = {}, .current = {}});
      const auto found_place = [&](bool empty) {
        const auto answers = find_for_workload(questions, {.pod_sets = {}, .simulate_empty = empty, .unhealthy_node = {}, .assumed = nullptr}, {});
        return std::all_of(answers.begin(), answers.end(), [](const FlavorAnswer& answer) { return answer.reason.none(); });
      };
      if (!need.contested.empty() || !found_place(false)) {
        need.contested.clear();  // all that has to do with places
        for (const Use& use : need.uses) need.contested.push_back(use.column);
        need.placed = [found_place] { return found_place(false); };
        may = may && found_place(true);
      }
    }
    if (may && !need.contested.empty())
      for (const Victim& victim : find_victims(world, need)) want.emplace(world.workloads[victim.workload].spec.uid, victim.reason);
    for (const auto& [victim, reason] : engine.victims_of(c)) got.emplace(fmt::format("{:016x}", uids.at(victim)), reason);
    ASSERT_EQ(got, want) << "seed " << seed;
    found += want.size();
    ++asked;
    engine.leave(job);
  }
  EXPECT_GT(found, asked / 10);
}

TEST(ContinuousPreemption, TheVictimsAreThoseOfTheCompatibleMode) { compare_with_the_compatible_mode(false, false); }
TEST(ContinuousPreemption, TheVictimsByShareAreThoseOfTheCompatibleMode) { compare_with_the_compatible_mode(true, false); }
TEST(ContinuousPreemption, AndSoAreThoseForAPlace) { compare_with_the_compatible_mode(false, true); }
TEST(ContinuousPreemption, AndThoseForAPlaceByShare) { compare_with_the_compatible_mode(true, true); }

// What a job takes: each site has one flavor.
std::vector<Use> uses_of(const ContinuousEngine& engine, const Ledger& ledger, ClassId what) {
  std::vector<Use> out;
  const EngineClass& asked = engine.what(what);
  for (const EnginePodSet& pods : asked.pod_sets)
    for (const auto& [resource, amount] : pods.total)
      if (const Column column = ledger.column(ledger.leaf(asked.queue), "h100", resource); column != no_column) out.push_back({column, amount});
  return out;
}

// Of those that are stopped for one job, from `at` on: of each other queue there is one that may be the last, which borrows still when the others have gone. (A job has no halves: the last one may use what is its queue's own.)
bool takes_what_is_borrowed(const ContinuousEngine& engine, Ledger& ledger, const std::vector<EngineDecision>& out, std::size_t at) {
  std::map<NodeId, std::vector<std::vector<Use>>> gone;
  for (std::size_t i = at; i < out.size() && out[i].kind == Kind::Preempted && out[i].by == out[at].by; ++i)
    if (out[i].reason != VictimReason::InClusterQueue) gone[ledger.leaf(engine.what(out[i].kind_of_job).queue)].push_back(uses_of(engine, ledger, out[i].kind_of_job));
  return std::all_of(gone.begin(), gone.end(), [&](const auto& of_queue) {
    const auto& [leaf, jobs] = of_queue;
    for (std::size_t last = 0; last < jobs.size(); ++last) {
      const Ledger::Trial trial(ledger);
      for (std::size_t i = 0; i < jobs.size(); ++i)
        if (i != last) ledger.remove(leaf, jobs[i]);
      for (Column c = 0; c < ledger.width(leaf); ++c)
        if (ledger.borrowing(leaf, c)) return true;
    }
    return false;
  });
}

// Nobody uses what is not there, a promise is kept once those before it have gone, and nobody loses to another queue what its own quota covers.
TEST(ContinuousPreemption, RandomHistoriesKeepThePromises) {
  std::uint64_t preempted = 0, after_a_while = 0;
  const auto seeds = test_rounds<std::uint64_t>(2'000, 1'000'000);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    Site site(seed, seed % 2 == 0);
    site.partial = seed % 3 == 0;
    site.spec.shields = seed % 5 == 0;
    if (seed % 4 == 0) site.add_nodes();
    ContinuousEngine engine(site.spec), twin(site.spec);
    engine.set_nodes(site.nodes), twin.set_nodes(site.nodes);
    std::map<JobId, int> jobs;  // 0 waits, 1 promised, 2 runs, 3 is to stop
    std::set<JobId> safe;
    std::vector<EngineDecision> out, same;
    std::uint64_t uid = 0;
    for (int event = 0; event < 40; ++event) {
      if (site.one_in(2) || jobs.empty()) {
        const EngineClass what = site.what();
        const Uid own{0, ++uid * 7919 % 10'007};
        const JobId job = engine.submit(engine.define(what), own, event);
        ASSERT_EQ(twin.submit(twin.define(what), own, event), job);
        jobs[job] = 0;
      } else {
        const auto gone = std::next(jobs.begin(), static_cast<std::ptrdiff_t>(site.rng.below(jobs.size())));
        engine.leave(gone->first);
        twin.leave(gone->first);
        safe.erase(gone->first);
        jobs.erase(gone);
      }
      if (!safe.empty() && site.one_in(3)) {
        const JobId one = *std::next(safe.begin(), static_cast<std::ptrdiff_t>(site.rng.below(safe.size())));
        engine.expose(one), twin.expose(one);
        safe.erase(one);
      }
      if (site.one_in(3)) {
        const JobId one = std::next(jobs.begin(), static_cast<std::ptrdiff_t>(site.rng.below(std::max<std::size_t>(1, jobs.size()))))->first;
        const auto at = static_cast<std::int64_t>(site.rng.below(100));
        if (!jobs.empty()) engine.saved(one, at), twin.saved(one, at);
      }
      Ledger follows = engine.ledger();  // each decision in its turn
      out.clear(), same.clear();
      engine.drain(out);
      twin.drain(same);
      ASSERT_EQ(out.size(), same.size());
      for (std::size_t i = 0; i < out.size(); ++i) {
        const EngineDecision& d = out[i];
        ASSERT_TRUE(d.kind == same[i].kind && d.job == same[i].job && d.kind_of_job == same[i].kind_of_job);
        if (d.kind == Kind::Preempted || d.kind == Kind::Promised || (d.kind == Kind::Admitted && jobs.at(d.job) == 0)) {
          const NodeId leaf = follows.leaf(engine.what(d.kind_of_job).queue);
          const std::vector<Use> uses = uses_of(engine, follows, d.kind_of_job);
          if (d.kind == Kind::Preempted) {
            if (i == 0 || out[i - 1].kind != Kind::Preempted || out[i - 1].by != d.by) { ASSERT_TRUE(takes_what_is_borrowed(engine, follows, out, i)) << "seed " << seed << ": " << engine.what(d.kind_of_job).queue << " or another lost what is its own"; }
            follows.remove(leaf, uses);
          } else {
            follows.add(leaf, uses);
          }
        }
        if (d.kind == Kind::Admitted) {
          ASSERT_LT(jobs.at(d.job), 2);
          jobs[d.job] = 2;
          if (site.spec.shields) safe.insert(d.job);
          ASSERT_EQ(engine.shielded(d.job), site.spec.shields);
        } else if (d.kind == Kind::Promised) {
          ASSERT_EQ(jobs.at(d.job), 0);
          jobs[d.job] = 1;
        } else if (d.kind == Kind::Preempted) {
          ASSERT_EQ(jobs.at(d.job), 2) << "seed " << seed;
          ASSERT_FALSE(safe.contains(d.job)) << "seed " << seed << ": it has just started";
          jobs[d.job] = 3;
          ++preempted;
          if (site.spec.shields) ++after_a_while;
        }
      }
      for (NodeId n = 0; n < engine.in_use().size(); ++n)
        for (Column c = 0; c < engine.in_use().width(n); ++c) {
          ASSERT_GE(engine.in_use().available(n, c), 0) << "seed " << seed << " " << engine.in_use().name(n);
          ASSERT_GE(engine.ledger().available(n, c), 0) << "seed " << seed << " " << engine.ledger().name(n);
        }
      // No node is used by more than it holds: by those that run and those that have not stopped yet; and what is required is so.
      std::map<std::string, NamedAmounts> used;
      for (const auto& [job, stage] : jobs) {
        const PlacesOf where = engine.places_of(job);
        ASSERT_EQ(where.empty(), !site.places || stage == 0) << "seed " << seed;
        if (where.empty() || stage < 2) continue;
        const PlaceAsk& asked = *engine.what(engine.class_of(job)).pod_sets[0].place;
        ASSERT_EQ(pods_in(*where[0]), asked.count);
        std::set<std::string> racks;
        for (const DomainPods& domain : where[0]->domains) {
          const auto node = std::find_if(site.nodes.begin(), site.nodes.end(), [&](const TopologyNode& one) { return one.name == domain.values.back(); });
          racks.insert(node->labels.at("rack"));
          for (const auto& [resource, amount] : asked.per_pod) used[node->name][resource] += amount * domain.count;
          used[node->name]["pods"] += domain.count;
        }
        if (asked.ask.required) { ASSERT_EQ(asked.ask.required == "rack" ? racks.size() : where[0]->domains.size(), 1u) << "seed " << seed; }
      }
      for (const TopologyNode& node : site.nodes)
        for (const auto& [resource, amount] : used[node.name]) ASSERT_LE(amount, node.allocatable.at(resource)) << "seed " << seed << " " << node.name;
    }
    for (auto job = jobs.begin(); job != jobs.end();) {
      const bool stops = job->second == 3;
      if (stops) engine.leave(job->first);
      job = stops ? jobs.erase(job) : std::next(job);
    }
    out.clear();
    engine.drain(out);
    for (const EngineDecision& d : out) {
      if (d.kind == Kind::Admitted) jobs[d.job] = 2;
      if (d.kind == Kind::Promised && jobs.at(d.job) == 0) jobs[d.job] = 1;
      if (d.kind == Kind::Preempted) jobs[d.job] = 3;
    }
    const bool stopping = std::any_of(jobs.begin(), jobs.end(), [](const auto& one) { return one.second == 3; });
    const bool promised = std::any_of(jobs.begin(), jobs.end(), [](const auto& one) { return one.second == 1; });
    ASSERT_TRUE(stopping || !promised) << "seed " << seed << ": a promise is not kept";
  }
  EXPECT_GT(preempted, seeds / 5);
  EXPECT_GT(after_a_while, 10u);
}

// Something is kept for the first of a queue. Once all that ran then, and all that may go before it, have left, it has its quota, whoever else has come meanwhile; use stays within quota, and what is another queue's own it gets as ever.
TEST(ContinuousPreemption, AJobThatIsKeptForStartsWhenThoseBeforeItHaveLeft) {
  std::uint64_t kept = 0, held_back = 0, own = 0;
  for (std::uint64_t seed = 1; seed <= test_rounds<std::uint64_t>(3'000, 1'000'000); ++seed) {
    Site site(seed, seed % 2 == 0);
    site.partial = seed % 3 == 0;
    if (seed % 4 == 0) site.add_nodes();
    ContinuousEngine engine(site.spec);
    engine.set_nodes(site.nodes);
    std::map<JobId, EngineClass> there;
    std::set<JobId> runs, stops, before;  // before: all who may have what it waits for
    std::vector<EngineDecision> out;
    std::optional<JobId> target;
    std::uint64_t uid = 0;
    bool over = false;
    std::set<JobId> promised;
    const auto follow = [&] {
      out.clear();
      Ledger follows = engine.ledger();  // each decision in its turn
      engine.drain(out);
      for (const EngineDecision& d : out) {
        const NodeId leaf = d.kind == Kind::Waits ? no_node : follows.leaf(engine.what(d.kind_of_job).queue);
        if (d.kind == Kind::Preempted) stops.insert(d.job), runs.erase(d.job), follows.remove(leaf, uses_of(engine, follows, d.kind_of_job));
        if (d.kind != Kind::Admitted && d.kind != Kind::Promised) continue;
        if (d.kind == Kind::Promised || promised.erase(d.job) == 0) follows.add(leaf, uses_of(engine, follows, d.kind_of_job));
        if (d.kind == Kind::Promised) promised.insert(d.job);
        if (d.kind == Kind::Admitted) runs.insert(d.job);
        if (target && d.job == *target) over = true;
        if (!target || over) continue;
        const EngineClass &gets = engine.what(engine.class_of(d.job)), &wants = there.at(*target);
        bool within = gets.queue != wants.queue;
        for (const auto& [resource, amount] : gets.pod_sets[0].total)
          if (const Column c = follows.column(leaf, "h100", resource); amount > 0) within = within && !follows.borrowing(leaf, c);
        if (within) ++own;
        if (gets.priority > wants.priority || within) before.insert(d.job);  // others may start on what it does not miss, and run on
      }
    };
    const auto submit = [&](bool behind) {
      EngineClass what = site.what();
      if (behind) what.priority = std::min(what.priority, there.at(*target).priority);
      ++uid;
      const JobId job = engine.submit(engine.define(what), {0, uid}, static_cast<std::int64_t>(uid));
      there[job] = what;
      return job;
    };
    for (int i = 0; i < 14; ++i) submit(false), follow();
    for (const JobId job : std::set(stops)) engine.leave(job), stops.erase(job), there.erase(job);
    follow();
    const auto firsts = engine.firsts();
    if (firsts.empty()) continue;
    target = firsts[site.rng.below(firsts.size())];
    ASSERT_TRUE(engine.keep_for(*target)) << "seed " << seed;
    ++kept;
    std::set<JobId> old;
    for (const auto& [job, what] : there)
      if (!engine.flavors_of(job).empty()) old.insert(job);
    // They end one after the other, and for each of them two others come.
    for (int round = 0; round < 60 && !over; ++round) {
      const std::size_t had = runs.size();
      if (round < 20) submit(true), submit(true);
      follow();
      if (over) break;
      if (runs.size() == had) ++held_back;
      std::set<JobId> gone = stops;
      if (!old.empty()) gone.insert(*old.begin());
      else for (const JobId job : before) gone.insert(job);
      for (const JobId job : gone) {
        if (there.erase(job) > 0) engine.leave(job), promised.erase(job);
        old.erase(job), runs.erase(job), stops.erase(job), before.erase(job);
      }
      follow();
      for (NodeId n = 0; n < engine.in_use().size(); ++n)
        for (Column c = 0; c < engine.in_use().width(n); ++c) {
          ASSERT_GE(engine.in_use().available(n, c), 0) << "seed " << seed << " " << engine.in_use().name(n);
          ASSERT_GE(engine.ledger().available(n, c), 0) << "seed " << seed << " " << engine.ledger().name(n);
        }
    }
    ASSERT_TRUE(over) << "seed " << seed << ": it waits for " << static_cast<int>(engine.wait(engine.class_of(*target)).rule) << ", " << engine.wait(engine.class_of(*target)).missing;
  }
  EXPECT_GT(kept, 50u);
  EXPECT_GT(held_back, kept / 10);
  EXPECT_GT(own, 5u);
}

// What a drain leaves waiting could not have pre-empted anybody: else the next event, whatever it is, would set off what was left undone. (But for what docs/design/025 names: an admission moves shares, and a large job that borrows a part of
// its use becomes a candidate as a whole. That is seen at the next release; rarely.)
void nobody_waits_who_may_preempt(bool fair) {
  std::uint64_t asked = 0, missed = 0;
  const auto seeds = test_rounds<std::uint64_t>(500, 50'000);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    Site site(seed, fair);
    site.partial = seed % 3 == 0;
    site.spec.shields = seed % 4 == 0;
    for (EngineQueue& queue : site.spec.queues) queue.strict_fifo = false;
    ContinuousEngine engine(site.spec);
    std::map<JobId, ClassId> waiting;
    std::set<JobId> all, stops;
    std::vector<EngineDecision> out;
    for (int event = 0; event < 40; ++event) {
      if (!stops.empty() && site.one_in(2)) {
        const JobId job = *std::next(stops.begin(), static_cast<std::ptrdiff_t>(site.rng.below(stops.size())));
        engine.leave(job);
        stops.erase(job), all.erase(job);
      } else if (site.one_in(2) || all.empty()) {
        const ClassId what = engine.define(site.what());
        const JobId job = engine.submit(what, {0, static_cast<std::uint64_t>(event) * 7919 % 101}, event);
        waiting[job] = what, all.insert(job);
      } else {
        const JobId job = *std::next(all.begin(), static_cast<std::ptrdiff_t>(site.rng.below(all.size())));
        if (engine.shielded(job)) {
          engine.expose(job);
        } else {
          engine.leave(job);
          waiting.erase(job), stops.erase(job), all.erase(job);
        }
      }
      out.clear();
      engine.drain(out);
      for (const EngineDecision& d : out) {
        if (d.kind == Kind::Admitted || d.kind == Kind::Promised) waiting.erase(d.job);
        if (d.kind == Kind::Preempted) stops.insert(d.job);
      }
      for (const auto& [job, what] : waiting) {
        ContinuousEngine fork(engine);
        ++asked;
        if (!fork.victims_of(what).empty()) ++missed;
      }
    }
  }
  EXPECT_GT(asked, 2 * seeds);
  EXPECT_LE(missed, asked / 500 + 3) << "of " << asked;  // of the few that are asked where memory is watched, three may be among the first
}
TEST(ContinuousPreemption, NobodyWaitsWhoMayPreempt) { nobody_waits_who_may_preempt(false); }
TEST(ContinuousPreemption, NobodyWaitsWhoMayPreemptByShare) { nobody_waits_who_may_preempt(true); }

// Who was pre-empted asks again at once, as jobs do. Sooner or later there is peace: nobody takes from another what that one takes back.
TEST(ContinuousPreemption, ThereIsNoEndlessChange) {
  std::uint64_t preempted = 0;
  for (std::uint64_t seed = 1; seed <= test_rounds<std::uint64_t>(1'000, 1'000'000); ++seed) {
    Site site(seed, seed % 4 != 0);
    site.partial = seed % 3 == 0;
    ContinuousEngine engine(site.spec);
    std::vector<EngineDecision> out;
    for (std::uint64_t i = 0; i < 16; ++i) {
      engine.submit(engine.define(site.what()), {0, i * 7919 % 101}, static_cast<std::int64_t>(site.rng.below(20)));
      engine.drain(out);
    }
    int rounds = 0;
    std::set<std::pair<Uid, Uid>> took;  // from whom
    for (; rounds < 200; ++rounds) {
      std::vector<EngineDecision> stop;
      for (const EngineDecision& d : out)
        if (d.kind == Kind::Preempted) {
          stop.push_back(d);
          took.emplace(engine.uid(d.by), engine.uid(d.job));
          ASSERT_FALSE(took.contains({engine.uid(d.job), engine.uid(d.by)})) << "seed " << seed << ": it takes back from who took from it";
        }
      out.clear();
      if (stop.empty()) break;
      preempted += stop.size();
      for (const EngineDecision& d : stop) {
        const Uid uid = engine.uid(d.job);
        engine.leave(d.job);
        engine.submit(d.kind_of_job, uid, static_cast<std::int64_t>(uid.low));
      }
      engine.drain(out);
    }
    ASSERT_LT(rounds, 200) << "seed " << seed;
  }
  EXPECT_GT(preempted, 100u / 5);
}

}  // namespace
}  // namespace fairlead::governance
