// SPDX-License-Identifier: Apache-2.0
// The continuous mode on other shapes than governance_bench: deeper trees, more flavors and resources, a full site where one job ends and another comes, a gang that needs half of it, a quota that is cut, shares that come to rest, memory of
// a job. From a seed, one core. One JSON line per figure; what is decided is checked before it is timed.
//   shapes_bench [SEED]
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "governance/plan/engine.h"

namespace fairlead::governance {
namespace {

using Kind = EngineDecision::Kind;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
const char* name_of(bool fair) { return fair ? "fair" : "classical"; }

struct Shape {
  int depth = 3;  // cohorts above a queue
  std::size_t flavors = 1, resources = 3, queues = 1'000;
  Amount own = 16;
};
constexpr const char* kResources[] = {"nvidia.com/gpu", "cpu", "memory", "rdma/hca"};

struct Site {
  EngineSpec spec;
  Rng rng;
  std::vector<ClassId> classes;

  Site(std::uint64_t seed, const Shape& shape, bool fair) : rng(seed) {
    spec.fair = fair;
    std::vector<std::string> flavors, resources(kResources, kResources + shape.resources);
    for (std::size_t f = 0; f < shape.flavors; ++f) flavors.push_back(fmt::format("f{}", f));
    // Each level above the queues has a fifth of the cohorts of the one below it, and the root is one.
    std::vector<std::vector<std::string>> levels(static_cast<std::size_t>(shape.depth));
    std::size_t count = std::max<std::size_t>(1, shape.queues / 10);
    for (std::size_t level = levels.size(); level-- > 0; count = std::max<std::size_t>(1, count / 5))
      for (std::size_t i = 0; i < (level == 0 ? 1 : count); ++i) levels[level].push_back(fmt::format("l{}-{}", level, i));
    for (std::size_t level = 0; level < levels.size(); ++level)
      for (std::size_t i = 0; i < levels[level].size(); ++i)
        spec.nodes.push_back({.name = levels[level][i], .parent = level == 0 ? "" : levels[level - 1][i % levels[level - 1].size()], .leaf = false, .weight = static_cast<double>(1 + rng.below(4))});
    for (std::size_t q = 0; q < shape.queues; ++q) {
      NodeSpec leaf{.name = fmt::format("q{}", q), .parent = levels.back()[q % levels.back().size()], .leaf = true, .weight = static_cast<double>(1 + rng.below(9))};
      for (const std::string& flavor : flavors)
        for (std::size_t r = 0; r < resources.size(); ++r) leaf.quotas.push_back({{flavor, resources[r]}, {shape.own << (3 * r), unlimited, unlimited}});
      spec.nodes.push_back(std::move(leaf));
      spec.queues.push_back({.name = spec.nodes.back().name, .policies = {.within_queue = PreemptionPolicy::LowerPriority, .reclaim = PreemptionPolicy::Any}, .groups = {{resources, flavors}}});
    }
  }
  EngineClass asks(std::size_t queue, Amount gpus, std::int64_t priority = 0) const {
    EngineClass out{.queue = spec.queues[queue].name, .priority = priority, .pod_sets = {{}}};
    for (std::size_t r = 0; r < spec.queues[queue].groups[0].resources.size(); ++r) out.pod_sets[0].total.emplace_back(kResources[r], gpus << (3 * r));
    return out;
  }
  void define(ContinuousEngine& engine) {
    for (std::size_t q = 0; q < spec.queues.size(); ++q)
      for (int kind = 0; kind < 8; ++kind) classes.push_back(engine.define(asks(q, Amount{1} << (kind % 4), kind / 4 * 50)));
  }
  ClassId any() { return classes[rng.below(classes.size())]; }
};

void check(const ContinuousEngine& engine) {
  for (NodeId n = 0; n < engine.in_use().size(); ++n)
    for (Column c = 0; c < engine.in_use().width(n); ++c) INVARIANT(engine.in_use().available(n, c) >= 0);
}

// A backlog of which half has room.
void drain(std::uint64_t seed, Shape shape, std::size_t pending, bool fair) {
  shape.own = static_cast<Amount>(std::max<std::size_t>(2, pending * 15 / 8 / shape.queues / shape.flavors));
  Site site(seed, shape, fair);
  for (EngineQueue& queue : site.spec.queues) queue.policies = {};
  ContinuousEngine engine(site.spec);
  site.define(engine);
  for (std::size_t i = 0; i < pending; ++i) engine.submit(site.any(), {site.rng.next(), i}, static_cast<std::int64_t>(i));
  std::vector<EngineDecision> out;
  out.reserve(2 * pending);
  const double begin = now();
  engine.drain(out);
  const double took = now() - begin;
  check(engine);
  fmt::print("{{\"what\": \"drain\", \"order\": \"{}\", \"depth\": {}, \"flavors\": {}, \"resources\": {}, \"pending\": {}, \"queues\": {}, \"decisions_per_second\": {:.0f}, \"admitted\": {}}}\n", name_of(fair), shape.depth, shape.flavors, shape.resources, pending,
             shape.queues, static_cast<double>(out.size()) / took, engine.running());
}

struct Times {
  std::vector<double> all;
  void add(double begin) { all.push_back(now() - begin); }
  std::string text() {
    std::sort(all.begin(), all.end());
    return fmt::format("\"p50_us\": {:.1f}, \"p99_us\": {:.1f}, \"worst_us\": {:.1f}", 1e6 * all[all.size() / 2], 1e6 * all[all.size() * 99 / 100], 1e6 * all.back());
  }
};

// What follows from one event, with the pre-empted stopped at once and asking again.
struct Follow {
  ContinuousEngine& engine;
  std::vector<JobId> running;
  std::vector<EngineDecision> out;
  std::size_t preempted = 0, decided = 0;
  void settle() {
    for (int round = 0; round < 200; ++round) {
      out.clear();
      engine.drain(out);
      decided += out.size();
      std::vector<EngineDecision> stops;
      for (const EngineDecision& d : out) {
        if (d.kind == Kind::Admitted) running.push_back(d.job);
        if (d.kind == Kind::Preempted) stops.push_back(d);
      }
      if (stops.empty()) return;
      preempted += stops.size();
      for (const EngineDecision& d : stops) {
        std::erase(running, d.job);
        const Uid uid = engine.uid(d.job);
        engine.leave(d.job);
        engine.submit(d.kind_of_job, uid, static_cast<std::int64_t>(uid.low));
      }
    }
  }
};

// A full site: one ends and another comes. With pre-emption everybody whom the rules let take back does so at once, and who was stopped asks again.
void churn(std::uint64_t seed, std::size_t pending, bool fair, bool preempts) {
  Site site(seed, {.depth = 3, .queues = 100, .own = 100}, fair);
  if (!preempts)
    for (EngineQueue& queue : site.spec.queues) queue.policies = {};
  const int rounds = preempts ? 500 : 20'000;
  ContinuousEngine engine(site.spec);
  site.define(engine);
  Follow follow{engine, {}, {}};
  std::uint64_t uid = 0;
  const auto submit = [&] { ++uid; engine.submit(site.any(), {0, uid}, static_cast<std::int64_t>(uid)); };
  for (std::size_t i = 0; i < pending; ++i) submit();
  follow.settle();
  const std::size_t began_with = follow.preempted;
  Times times;
  for (int round = 0; round < rounds; ++round) {
    const std::size_t at = site.rng.below(follow.running.size());
    const JobId gone = follow.running[at];
    follow.running[at] = follow.running.back();
    follow.running.pop_back();
    const double begin = now();
    engine.leave(gone);
    submit();
    follow.settle();
    times.add(begin);
  }
  check(engine);
  const NodeId root = engine.in_use().cohort("l0-0");
  const double used = static_cast<double>(engine.in_use().usage(root, 0)) / static_cast<double>(engine.in_use().subtree(root, 0));
  fmt::print("{{\"what\": \"churn of a full site\", \"order\": \"{}\", \"preemption\": {}, \"waiting\": {}, \"running\": {}, {}, \"gpus_in_use\": {:.3f}, \"preempted_per_event\": {:.2f}}}\n", name_of(fair), preempts, engine.waiting(), engine.running(), times.text(), used,
             static_cast<double>(follow.preempted - began_with) / rounds);
}

// Small jobs fill the site and come on; a gang asks for half of it. With a reservation it starts when what ran has ended; without one it never does.
void hero(std::uint64_t seed, bool fair) {
  for (const bool kept : {false, true}) {
    Site site(seed, {.depth = 1, .queues = 20, .own = 0}, fair);  // all of it is idle, nobody's own
    for (EngineQueue& queue : site.spec.queues) queue.policies = {};
    for (std::size_t r = 0; r < 3; ++r) site.spec.nodes.front().quotas.push_back({{"f0", kResources[r]}, {Amount{1'000} << (3 * r), unlimited, unlimited}});
    ContinuousEngine engine(site.spec);
    Follow follow{engine, {}, {}};
    std::vector<ClassId> small;
    for (std::size_t q = 0; q < 20; ++q) small.push_back(engine.define(site.asks(q, 1)));
    std::uint64_t uid = 0;
    const auto submit = [&] { ++uid; engine.submit(small[site.rng.below(small.size())], {0, uid}, static_cast<std::int64_t>(uid)); };
    for (int i = 0; i < 3'000; ++i) submit();
    follow.settle();
    const std::size_t ran = follow.running.size();
    const JobId gang = engine.submit(engine.define(site.asks(0, 500)), {1, 1}, 0);
    follow.settle();
    if (kept) INVARIANT(engine.keep_for(gang));
    Times times;
    std::size_t events = 0;
    for (; events < 5 * ran && !engine.running(gang); ++events) {
      const JobId gone = follow.running.front();  // the oldest
      follow.running.erase(follow.running.begin());
      const double begin = now();
      engine.leave(gone);
      submit();
      follow.settle();
      times.add(begin);
    }
    INVARIANT(engine.running(gang) == kept);
    fmt::print("{{\"what\": \"a gang of half the site\", \"order\": \"{}\", \"kept_for\": {}, \"ran_then\": {}, \"starts_after_ends\": {}, {}}}\n", name_of(fair), kept, ran, engine.running(gang) ? fmt::to_string(events) : "null", times.text());
  }
}

// All quotas are cut to half while 10,000 run and 10,000 wait: what runs goes on, nothing new starts.
void cut(std::uint64_t seed, bool fair) {
  Site site(seed, {.depth = 3, .queues = 1'000, .own = 38}, fair);
  for (EngineQueue& queue : site.spec.queues) queue.policies = {};
  ContinuousEngine engine(site.spec);
  site.define(engine);
  for (std::uint64_t i = 0; i < 20'000; ++i) engine.submit(site.any(), {0, i}, static_cast<std::int64_t>(i));
  std::vector<EngineDecision> out;
  engine.drain(out);
  const std::size_t ran = engine.running();
  EngineSpec less = site.spec;
  for (NodeSpec& node : less.nodes)
    for (auto& [column, limits] : node.quotas) limits.nominal /= 2;
  out.clear();
  const double begin = now();
  engine.configure(less);
  engine.drain(out);
  const double took = now() - begin;
  INVARIANT(engine.running() == ran);
  fmt::print("{{\"what\": \"quotas are cut to half\", \"order\": \"{}\", \"running\": {}, \"waiting\": {}, \"milliseconds\": {:.1f}}}\n", name_of(fair), ran, engine.waiting(), 1e3 * took);
}

// Teams of weights 1 to 9 own nothing and share what is idle; each asks for all of it. How far each is from its part once some have ended: in jobs.
void converge(std::uint64_t seed) {
  constexpr std::size_t teams = 50;
  constexpr Amount idle = 2'000;
  EngineSpec spec{.fair = true, .nodes = {{.name = "all", .parent = "", .leaf = false}, {.name = "idle", .parent = "all", .leaf = true, .quotas = {{{"h200", "gpu"}, {idle, unlimited, unlimited}}}}}};
  Rng rng(seed);
  double weights = 0;
  for (std::size_t q = 0; q < teams; ++q) {
    spec.nodes.push_back({.name = fmt::format("q{}", q), .parent = "all", .leaf = true, .weight = static_cast<double>(1 + rng.below(9)), .quotas = {{{"h200", "gpu"}, {0, unlimited, unlimited}}}});
    weights += spec.nodes.back().weight;
    spec.queues.push_back({.name = spec.nodes.back().name, .policies = {.within_queue = PreemptionPolicy::Never, .reclaim = PreemptionPolicy::Any}, .groups = {{{"gpu"}, {"h200"}}}});
  }
  ContinuousEngine engine(spec);
  std::vector<ClassId> one;
  for (std::size_t q = 0; q < teams; ++q) one.push_back(engine.define({.queue = fmt::format("q{}", q), .pod_sets = {{.total = {{"gpu", 1}}, .barred = {}}}}));
  Follow follow{engine, {}, {}};
  std::uint64_t uid = 0;
  const auto submit = [&](std::size_t team) { ++uid; engine.submit(one[team], {0, uid}, static_cast<std::int64_t>(uid)); };
  for (Amount i = 0; i < idle; ++i) submit(0);  // the first has it all before the others come
  follow.settle();
  for (std::size_t q = 1; q < teams; ++q)
    for (Amount i = 0; i < idle / 2; ++i) submit(q);
  const double begin = now();
  follow.settle();
  const double took = now() - begin;
  double gap = 0;
  for (std::size_t q = 0; q < teams; ++q) {
    const NodeSpec& node = spec.nodes[q + 2];
    gap = std::max(gap, std::abs(static_cast<double>(engine.in_use().usage(engine.in_use().leaf(node.name), 0)) - static_cast<double>(idle) * node.weight / weights));
  }
  check(engine);
  fmt::print("{{\"what\": \"shares come to rest\", \"teams\": {}, \"jobs\": {}, \"preempted\": {}, \"milliseconds\": {:.1f}, \"largest_gap_jobs\": {:.2f}}}\n", teams, idle, follow.preempted, 1e3 * took, gap);
}

// Heap of a job that waits, and of one that runs, with all that it takes in classes, queues and heaps.
void memory(std::uint64_t seed, std::size_t jobs) {
  for (const bool runs : {false, true}) {
    Site site(seed, {.depth = 3, .queues = 100, .own = runs ? 1'000'000 : 0}, true);
    ContinuousEngine engine(site.spec);
    site.define(engine);
    std::vector<EngineDecision> out;
    out.reserve(jobs + 10'000);
    engine.drain(out);
    const std::size_t before = ::mallinfo2().uordblks;
    for (std::size_t i = 0; i < jobs; ++i) engine.submit(site.any(), {site.rng.next(), i}, static_cast<std::int64_t>(i));
    engine.drain(out);
    INVARIANT(runs ? engine.running() == jobs : engine.waiting() == jobs);
    fmt::print("{{\"what\": \"memory of a job\", \"state\": \"{}\", \"jobs\": {}, \"bytes\": {:.0f}}}\n", runs ? "runs" : "waits", jobs, static_cast<double>(::mallinfo2().uordblks - before) / static_cast<double>(jobs));
  }
}

}  // namespace
}  // namespace fairlead::governance

int main(int argc, char** argv) {
  using namespace fairlead::governance;
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  for (const bool fair : {false, true})
    for (const int depth : {1, 3, 6})
      for (const auto& [flavors, resources] : {std::pair<std::size_t, std::size_t>{1, 1}, {3, 4}}) drain(seed, {.depth = depth, .flavors = flavors, .resources = resources}, 10'000, fair);
  for (const bool fair : {false, true})
    for (const bool preempts : {false, true}) churn(seed, 10'000, fair, preempts);
  for (const bool fair : {false, true}) hero(seed, fair);
  for (const bool fair : {false, true}) cut(seed, fair);
  converge(seed);
  memory(seed, 100'000);
}
