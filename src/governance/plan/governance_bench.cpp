// SPDX-License-Identifier: Apache-2.0
// The continuous mode of task governance alone, without serialisation: decisions per second while a backlog drains, a release in a storm of what does not fit, churn at saturation, owners who take back what others run on, rebuild after a restart.
// Three resources of one flavor, trees of depth 3 (root, cohorts of 25 queues, queues), 24 classes in each queue, from a seed. One JSON line per figure.
// What one more job would change, on a fork of the engine; the engine run forward until 10,000 waiting jobs have started and ended.
//   governance_bench [SEED]
//   governance_bench --foresee [SEED]       these two alone
//   governance_bench --write DIR [SEED]     the trees, classes and jobs of "drain" and "takes back" as JSON files, for another engine on the same events
#include <fmt/format.h>

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>

#include "base/rng.h"
#include "governance/plan/engine.h"
#include "governance/plan/forecast.h"

namespace fairlead::governance {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Site {
  EngineSpec spec;
  std::vector<ClassId> classes;
  Rng rng;

  // Each queue owns `own` of each resource and may borrow.
  Site(std::uint64_t seed, std::size_t queues, bool fair, Amount own) : rng(seed) {
    spec.fair = fair;
    const auto quota = [&](const char* resource, Amount amount) { return std::pair(FlavorResource{"h100", resource}, Limits{amount, unlimited, unlimited}); };
    spec.nodes.push_back({.name = "site", .parent = "", .leaf = false});
    for (std::size_t q = 0; q < queues; ++q) {
      const std::string cohort = fmt::format("cohort-{}", q / 25);
      if (q % 25 == 0) spec.nodes.push_back({.name = cohort, .parent = "site", .leaf = false, .weight = static_cast<double>(1 + rng.below(4))});
      spec.nodes.push_back({.name = fmt::format("team-{}", q), .parent = cohort, .leaf = true, .weight = static_cast<double>(1 + rng.below(9)),
                            .quotas = {quota("cpu", 16 * own), quota("memory", 128 * own), quota("nvidia.com/gpu", own)}});
      spec.queues.push_back({.name = fmt::format("team-{}", q), .groups = {{{"cpu", "memory", "nvidia.com/gpu"}, {"h100"}}}});
    }
  }
  std::vector<EngineClass> kinds() const {
    std::vector<EngineClass> out;
    for (const EngineQueue& queue : spec.queues)
      for (int kind = 0; kind < 24; ++kind) {
        const Amount gpus = Amount{1} << (kind % 4);
        out.push_back({.queue = queue.name, .priority = kind % 3 * 50, .pod_sets = {{.total = {{"cpu", 8 * gpus + kind / 4}, {"memory", 64 * gpus}, {"nvidia.com/gpu", gpus}}, .barred = {}}}});
      }
    return out;
  }
  void define(ContinuousEngine& engine) {
    for (const EngineClass& kind : kinds()) classes.push_back(engine.define(kind));
  }
  ClassId any() { return classes[rng.below(classes.size())]; }
};
// Half of what is asked is there, and more than what one queue has is asked of some: it is borrowed on all levels.
Amount half_of(std::size_t pending, std::size_t queues) { return static_cast<Amount>(std::max<std::size_t>(2, pending * 15 / 8 / queues)); }
std::vector<std::pair<ClassId, Uid>> jobs_for(Site& site, std::size_t count) {
  std::vector<std::pair<ClassId, Uid>> jobs;
  for (std::size_t i = 0; i < count; ++i) {
    const ClassId kind = site.any();
    jobs.emplace_back(kind, Uid{site.rng.next(), i});
  }
  return jobs;
}

void drain(std::uint64_t seed, std::size_t pending, std::size_t queues, bool fair) {
  Site site(seed, queues, fair, half_of(pending, queues));
  ContinuousEngine engine(site.spec);
  site.define(engine);
  const std::size_t empty = engine.bytes();
  const auto jobs = jobs_for(site, pending);
  double begin = now();
  for (std::size_t i = 0; i < pending; ++i) engine.submit(jobs[i].first, jobs[i].second, static_cast<std::int64_t>(i));
  const double submitting = now() - begin;
  const std::size_t bytes = engine.bytes() - empty;
  std::vector<EngineDecision> out;
  out.reserve(2 * pending);
  begin = now();
  engine.drain(out);
  const double took = now() - begin;
  std::printf("%s\n", fmt::format("{{\"what\": \"drain\", \"order\": \"{}\", \"pending\": {}, \"queues\": {}, \"decisions_per_second\": {:.0f}, \"seconds\": {:.6f}, \"admitted\": {}, \"submits_per_second\": {:.0f}, \"bytes_per_job\": {:.0f}}}",
                                   fair ? "fair" : "classical", pending, queues, static_cast<double>(out.size()) / took, took, engine.running(), static_cast<double>(pending) / submitting,
                                   static_cast<double>(bytes) / static_cast<double>(pending))
                          .c_str());
}

// All is taken, `pending` jobs of few classes wait: one job ends, then what follows is decided. And the same with a new job for each that ends.
void storm(std::uint64_t seed, std::size_t pending, std::size_t queues, bool fair) {
  Site site(seed, queues, fair, 16);
  ContinuousEngine engine(site.spec);
  site.define(engine);
  std::vector<JobId> running;
  std::vector<EngineDecision> out;
  for (std::size_t i = 0; i < pending; ++i) engine.submit(site.classes[site.rng.below(200)], {1, i}, static_cast<std::int64_t>(i));
  engine.drain(out);
  for (const EngineDecision& d : out)
    if (d.kind == EngineDecision::Kind::Admitted) running.push_back(d.job);
  std::vector<double> times;
  std::size_t decisions = 0;
  const double begin = now();
  for (std::size_t round = 0; round < 20'000; ++round) {
    const std::size_t at = site.rng.below(running.size());
    const double start = now();
    engine.leave(running[at]);
    running[at] = running.back();
    running.pop_back();
    out.clear();
    engine.drain(out);
    times.push_back(now() - start);
    decisions += out.size();
    for (const EngineDecision& d : out)
      if (d.kind == EngineDecision::Kind::Admitted) running.push_back(d.job);
    engine.submit(site.classes[site.rng.below(200)], {2, round}, static_cast<std::int64_t>(pending + round));
  }
  const double took = now() - begin;
  std::sort(times.begin(), times.end());
  std::printf("%s\n", fmt::format("{{\"what\": \"one ends, {} wait in 200 classes\", \"order\": \"{}\", \"queues\": {}, \"p50_us\": {:.2f}, \"p99_us\": {:.2f}, \"worst_us\": {:.1f}, \"decisions_per_second\": {:.0f}}}", pending,
                                   fair ? "fair" : "classical", queues, 1e6 * times[times.size() / 2], 1e6 * times[times.size() * 99 / 100], 1e6 * times.back(), static_cast<double>(decisions) / took)
                          .c_str());
}

// The start of a day: 50 teams own 10,000 GPUs, 50 others run 10,000 jobs on them. The owners come back with jobs of `each` GPUs.
EngineSpec lenders_and_borrowers(bool fair) {
  const QueuePolicies policies{.within_queue = PreemptionPolicy::LowerPriority, .reclaim = PreemptionPolicy::Any};
  EngineSpec spec;
  spec.fair = fair;
  for (int q = 0; q < 100; ++q) {
    spec.nodes.push_back({.name = fmt::format("team-{}", q), .parent = "site", .leaf = true, .quotas = {{{"h100", "gpu"}, {q < 50 ? 200 : 0, unlimited, unlimited}}}});
    spec.queues.push_back({.name = spec.nodes.back().name, .policies = policies, .groups = {{{"gpu"}, {"h100"}}}});
  }
  return spec;
}
EngineClass gpus_of(int queue, Amount amount) { return {.queue = fmt::format("team-{}", queue), .priority = 0, .pod_sets = {{.total = {{"gpu", amount}}, .barred = {}}}}; }
void reclaim(Amount each, bool fair) {
  ContinuousEngine engine(lenders_and_borrowers(fair));
  const auto gpus = [&](int q, Amount amount) { return engine.define(gpus_of(q, amount)); };
  for (std::uint64_t i = 0; i < 10'000; ++i) engine.submit(gpus(50 + static_cast<int>(i % 50), 1), {1, i}, static_cast<std::int64_t>(i));
  std::vector<EngineDecision> out;
  engine.drain(out);
  std::vector<ClassId> owners;
  for (int q = 0; q < 50; ++q) owners.push_back(gpus(q, each));
  std::vector<double> times;
  std::size_t victims = 0;
  for (std::uint64_t round = 0; round < static_cast<std::uint64_t>(10'000 / each); ++round) {
    const double start = now();
    engine.submit(owners[round % 50], {2, round}, 20'000);
    out.clear();
    engine.drain(out);
    times.push_back(now() - start);
    for (const EngineDecision& d : std::vector(out))
      if (d.kind == EngineDecision::Kind::Preempted) {
        ++victims;
        engine.leave(d.job);
      }
    out.clear();
    engine.drain(out);
  }
  double sum = 0;
  for (const double one : times) sum += one;
  const std::size_t rounds = times.size();
  std::sort(times.begin(), times.end());
  std::printf("%s\n", fmt::format("{{\"what\": \"an owner takes back {} of 10,000 that run\", \"order\": \"{}\", \"decisions\": {}, \"victims\": {}, \"decisions_per_second\": {:.0f}, \"p50_us\": {:.1f}, \"p99_us\": {:.1f}, \"worst_us\": {:.1f}}}", each, fair ? "fair" : "classical", rounds, victims,
                                   static_cast<double>(rounds) / sum, 1e6 * times[rounds / 2], 1e6 * times[rounds * 99 / 100], 1e6 * times.back())
                          .c_str());
}

void rebuild(std::uint64_t seed, std::size_t each) {
  Site site(seed, 1'000, true, static_cast<Amount>(each * 15 / 4 / 1'000));
  const double begin = now();
  ContinuousEngine engine(site.spec);
  site.define(engine);
  for (std::size_t i = 0; i < each; ++i) engine.adopt(site.any(), {3, i}, static_cast<std::int64_t>(i), {{"h100", "h100", "h100"}});
  for (std::size_t i = 0; i < each; ++i) engine.submit(site.any(), {4, i}, static_cast<std::int64_t>(i));
  std::vector<EngineDecision> out;
  engine.drain(out);
  std::printf("%s\n", fmt::format("{{\"what\": \"rebuild of {} that run and {} that wait\", \"seconds\": {:.3f}}}", each, each, now() - begin).c_str());
}

// CPU time of this thread: what other work on the machine takes is not counted.
double cpu_now() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// One more job, any of the site's classes: whom it stops, whether it starts. Half of the site runs, half waits.
void one_job(std::uint64_t seed, std::size_t jobs, bool fair) {
  Site site(seed, 100, fair, static_cast<Amount>(std::max<std::size_t>(2, jobs * 15 / 8 / 100)));
  for (EngineQueue& queue : site.spec.queues) queue.policies = {.within_queue = PreemptionPolicy::LowerPriority, .reclaim = PreemptionPolicy::Any};
  ContinuousEngine engine(site.spec);
  site.define(engine);
  for (std::size_t i = 0; i < jobs; ++i) engine.submit(site.any(), {site.rng.next(), i}, static_cast<std::int64_t>(i));
  std::vector<EngineDecision> out;
  engine.drain(out);
  // Until nobody is being stopped.
  for (int round = 0; round < 1'000 && std::any_of(out.begin(), out.end(), [](const EngineDecision& d) { return d.kind == EngineDecision::Kind::Preempted; }); ++round) {
    for (const EngineDecision& d : out)
      if (d.kind == EngineDecision::Kind::Preempted) engine.leave(d.job);
    out.clear();
    engine.drain(out);
  }
  std::vector<double> forks, questions;
  std::size_t starts = 0, stops = 0;
  constexpr int rounds = 300;
  for (int round = 0; round < rounds; ++round) {
    const ClassId what = site.any();
    double begin = cpu_now();
    ContinuousEngine fork(engine);
    forks.push_back(cpu_now() - begin);
    begin = cpu_now();
    out.clear();
    const JobId job = fork.submit(what, {~0ULL, ~0ULL}, static_cast<std::int64_t>(2 * jobs));
    fork.drain(out);
    questions.push_back(cpu_now() - begin);
    for (const EngineDecision& d : out) starts += d.kind != EngineDecision::Kind::Waits && d.kind != EngineDecision::Kind::Preempted && d.job == job, stops += d.kind == EngineDecision::Kind::Preempted;
  }
  std::sort(forks.begin(), forks.end());
  std::sort(questions.begin(), questions.end());
  std::printf("%s\n", fmt::format("{{\"what\": \"what one job changes\", \"order\": \"{}\", \"jobs\": {}, \"running\": {}, \"starts\": {}, \"stops\": {}, \"fork_p50_us\": {:.1f}, \"fork_p99_us\": {:.1f}, \"question_p50_us\": {:.1f}, \"question_p99_us\": {:.1f}}}",
                                   fair ? "fair" : "classical", jobs, engine.running(), starts, stops, 1e6 * forks[rounds / 2], 1e6 * forks[rounds * 99 / 100], 1e6 * questions[rounds / 2], 1e6 * questions[rounds * 99 / 100])
                          .c_str());
}

// Run times between a minute and a day; all end as late as they may. Jobs of so many classes, spread over the queues.
void ahead(std::uint64_t seed, std::size_t pending, std::size_t kinds, bool fair) {
  Site site(seed, 100, fair, static_cast<Amount>(std::max<std::size_t>(2, pending * 15 / 8 / 100 / 4)));
  ContinuousEngine engine(site.spec);
  site.define(engine);
  std::vector<ForecastJob> jobs;
  for (std::size_t i = 0; i < pending; ++i) {
    const ClassId what = site.classes[site.rng.below(kinds) * site.classes.size() / kinds];
    const Span time{.least = std::chrono::seconds(60), .most = std::chrono::seconds(60 + site.rng.below(86'340))};
    jobs.push_back({.job = engine.submit(what, {site.rng.next(), i}, static_cast<std::int64_t>(i)), .created = static_cast<std::int64_t>(i), .left = time, .again = time, .asks = what});
  }
  std::vector<EngineDecision> out;
  engine.drain(out);
  const std::size_t running = engine.running();
  std::vector<double> times;
  std::size_t starts = 0;
  std::int64_t last = 0;
  for (int round = 0; round < 5; ++round) {
    const double begin = cpu_now();
    const auto when = forecast(engine, jobs, {.ends = Ends::Latest, .seed = 0}).starts;
    times.push_back(cpu_now() - begin);
    starts = 0;
    for (const auto& one : when)
      if (one) ++starts, last = std::max(last, *one);
  }
  std::sort(times.begin(), times.end());
  std::printf("%s\n", fmt::format("{{\"what\": \"forecast\", \"order\": \"{}\", \"jobs\": {}, \"classes\": {}, \"running\": {}, \"start\": {}, \"last_start_hours\": {:.1f}, \"p50_ms\": {:.1f}, \"worst_ms\": {:.1f}}}", fair ? "fair" : "classical", pending, kinds, running, starts,
                                   static_cast<double>(last) / 3600, 1e3 * times[times.size() / 2], 1e3 * times.back())
                          .c_str());
}

void forecasts(std::uint64_t seed) {
  for (const bool fair : {false, true})
    for (const std::size_t kinds : {std::size_t{200}, std::size_t{2'400}}) ahead(seed, 10'000, kinds, fair);
}

void foresee(std::uint64_t seed) {
  for (const bool fair : {false, true})
    for (const std::size_t jobs : {std::size_t{1'000}, std::size_t{10'000}, std::size_t{100'000}}) one_job(seed, jobs, fair);
  forecasts(seed);
}

// ---- the same for another engine
std::string amounts(const std::vector<std::pair<std::string, Amount>>& all) {
  std::string out;
  for (const auto& [resource, amount] : all) out += fmt::format("{}\"{}\": {}", out.empty() ? "" : ", ", resource, amount);
  return "{" + out + "}";
}
void write_site(std::FILE* to, const EngineSpec& spec, std::span<const EngineClass> classes) {
  fmt::print(to, "{{\"fair\": {}, \"nodes\": [", spec.fair);
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    const NodeSpec& node = spec.nodes[i];
    std::vector<std::pair<std::string, Amount>> nominal;
    for (const auto& [at, limits] : node.quotas) nominal.emplace_back(at.resource, limits.nominal);
    fmt::print(to, "{}{{\"name\": \"{}\", \"parent\": \"{}\", \"leaf\": {}, \"weight\": {}, \"nominal\": {}}}", i == 0 ? "" : ",\n", node.name, node.parent, node.leaf, node.weight, amounts(nominal));
  }
  fmt::print(to, "], \"classes\": [");
  for (std::size_t i = 0; i < classes.size(); ++i) fmt::print(to, "{}{{\"queue\": \"{}\", \"priority\": {}, \"requests\": {}}}", i == 0 ? "" : ",\n", classes[i].queue, classes[i].priority, amounts(classes[i].pod_sets.front().total));
}
bool write_drain(const std::string& folder, std::uint64_t seed, std::size_t pending, std::size_t queues, bool fair) {
  Site site(seed, queues, fair, half_of(pending, queues));
  ContinuousEngine engine(site.spec);
  site.define(engine);
  std::FILE* to = std::fopen(fmt::format("{}/drain-{}-{}-{}.json", folder, pending, queues, fair ? "fair" : "classical").c_str(), "we");
  if (to == nullptr) return false;
  write_site(to, site.spec, site.kinds());
  fmt::print(to, "], \"reclaim\": false, \"jobs\": [");
  std::unordered_map<ClassId, std::size_t> place;
  for (std::size_t i = 0; i < site.classes.size(); ++i) place.emplace(site.classes[i], i);
  const auto jobs = jobs_for(site, pending);
  for (std::size_t i = 0; i < jobs.size(); ++i) fmt::print(to, "{}[{}, \"{:016x}{:016x}\"]", i == 0 ? "" : ",", place.at(jobs[i].first), jobs[i].second.high, jobs[i].second.low);
  fmt::print(to, "]}}\n");
  return std::fclose(to) == 0;
}
// The first 50 classes run, 200 jobs of each, before one of the others comes at a time.
bool write_reclaim(const std::string& folder, Amount each, bool fair) {
  std::FILE* to = std::fopen(fmt::format("{}/reclaim-{}-{}.json", folder, each, fair ? "fair" : "classical").c_str(), "we");
  if (to == nullptr) return false;
  std::vector<EngineClass> classes;
  for (int q = 50; q < 100; ++q) classes.push_back(gpus_of(q, 1));
  for (int q = 0; q < 50; ++q) classes.push_back(gpus_of(q, each));
  write_site(to, lenders_and_borrowers(fair), classes);
  fmt::print(to, "], \"reclaim\": true, \"jobs\": [");
  for (int i = 0; i < 10'000; ++i) fmt::print(to, "{}[{}, \"{:016x}{:016x}\"]", i == 0 ? "" : ",", i % 50, 1, i);
  fmt::print(to, "]}}\n");
  return std::fclose(to) == 0;
}
int write_all(const std::string& folder, std::uint64_t seed) {
  bool ok = true;
  for (const bool fair : {false, true}) {
    for (const std::size_t pending : {std::size_t{1'000}, std::size_t{10'000}, std::size_t{100'000}})
      for (const std::size_t queues : {std::size_t{100}, std::size_t{1'000}, std::size_t{5'000}}) ok = ok && write_drain(folder, seed, pending, queues, fair);
    for (const Amount each : {1, 50}) ok = ok && write_reclaim(folder, each, fair);
  }
  if (!ok) std::perror(folder.c_str());
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace fairlead::governance

int main(int argc, char** argv) {
  using namespace fairlead::governance;
  if (argc > 2 && std::string_view(argv[1]) == "--write") return write_all(argv[2], argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
  if (argc > 1 && std::string_view(argv[1]) == "--forecast") return forecasts(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1), 0;
  if (argc > 1 && std::string_view(argv[1]) == "--foresee") return foresee(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1), 0;
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  for (const std::size_t pending : {std::size_t{1'000}, std::size_t{10'000}, std::size_t{100'000}})
    for (const std::size_t queues : {std::size_t{100}, std::size_t{1'000}, std::size_t{5'000}})
      for (const bool fair : {false, true}) drain(seed, pending, queues, fair);
  for (const bool fair : {false, true}) storm(seed, 100'000, 100, fair);
  for (const bool fair : {false, true})
    for (const Amount each : {1, 50}) reclaim(each, fair);
  rebuild(seed, 100'000);
  foresee(seed);
}
