// SPDX-License-Identifier: Apache-2.0
// Full sites: many classes of many queues wait for the same few limits, and what one job gives back would do for many of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"
#include "base/test_rounds.h"
#include "governance/plan/engine.h"
#include "governance/plan/engine_reference.h"

namespace fairlead::governance {
namespace {

using Uids = std::vector<std::uint64_t>;

struct FullSite {
  Rng rng;
  EngineSpec spec;
  std::vector<EngineClass> kinds;
  Amount some(Amount most) { return static_cast<Amount>(rng.below(static_cast<std::uint64_t>(most) + 1)); }
  bool one_in(std::uint64_t n) { return rng.below(n) == 0; }

  explicit FullSite(std::uint64_t seed) : rng(seed) {
    spec.fair = one_in(2);
    const std::size_t queues = 4 + rng.below(16), cohorts = 1 + rng.below(4);
    const bool odd = one_in(2);  // some queues are strict, have a second flavor, or keep what they own
    spec.nodes.push_back({.name = "site", .parent = "", .leaf = false});
    for (std::size_t c = 0; c < cohorts; ++c) spec.nodes.push_back({.name = fmt::format("c{}", c), .parent = c > 1 && one_in(3) ? fmt::format("c{}", rng.below(c)) : "site", .leaf = false, .weight = static_cast<double>(1 + rng.below(3))});
    for (std::size_t q = 0; q < queues; ++q) {
      const std::string name = fmt::format("q{}", q);
      NodeSpec node{.name = name, .parent = fmt::format("c{}", rng.below(cohorts)), .leaf = true, .weight = static_cast<double>(rng.below(4))};
      const Amount borrow = one_in(4) ? some(20) : unlimited, lend = odd && one_in(6) ? some(4) : unlimited;
      const bool two = odd && one_in(4);
      EngineQueue queue{.name = name, .strict_fifo = odd && one_in(8), .groups = {{{"cpu", "gpu"}, {"f0"}}}};
      if (two) queue.groups[0].flavors.push_back("f1");
      for (const std::string& flavor : queue.groups[0].flavors) {
        node.quotas.push_back({{flavor, "cpu"}, {8 + some(24), borrow, lend}});
        node.quotas.push_back({{flavor, "gpu"}, {1 + some(4), borrow, lend}});
      }
      spec.nodes.push_back(std::move(node));
      spec.queues.push_back(std::move(queue));
      for (std::uint64_t kind = 0; kind < 1 + rng.below(5); ++kind) {
        const Amount gpus = Amount{1} << rng.below(4);
        kinds.push_back({.queue = name, .priority = static_cast<std::int64_t>(rng.below(3)), .pod_sets = {{.total = {{"cpu", 4 * gpus + some(8)}, {"gpu", gpus}}, .barred = {}}}});
      }
    }
  }
};

// What it says is missing is missing, at the limit that it names. (Who has several flavors waits for each of them.)
void is_short(const ContinuousEngine& engine, ClassId id, const std::string& where) {
  const EngineWait& wait = engine.wait(id);
  if (wait.rule != EngineWait::Rule::Short) return;
  const Ledger& ledger = engine.ledger();
  const NodeId leaf = ledger.leaf(engine.what(id).queue);
  if (const Column second = ledger.column(leaf, "f1", "gpu"); second != no_column && ledger.defined(leaf, second)) return;
  bool right = false;
  for (const auto& [resource, amount] : engine.what(id).pod_sets.front().total)
    if (const Column column = ledger.column(leaf, "f0", resource); column == wait.column) {
      const Ledger::Tight tight = ledger.tight(leaf, column);
      right = tight.node == wait.node && amount - tight.available == wait.missing;
    }
  EXPECT_TRUE(right) << where << ": class " << id << " of " << engine.what(id).queue << " is told that it misses " << wait.missing;
}

TEST(FullSites, WhoGetsWhatIsGivenBackIsAsTheSlowModelSays) {
  std::uint64_t decisions = 0, together = 0;
  for (std::uint64_t seed = 1; seed <= test_rounds<std::uint64_t>(150, 20'000); ++seed) {
    FullSite site(seed);
    ContinuousEngine engine(site.spec);
    EngineReference reference(site.spec);
    std::map<std::uint64_t, JobId> present;  // by uid
    std::uint64_t uid = 0;
    const auto submit = [&](std::int64_t now) {
      const EngineClass& what = site.kinds[site.rng.below(site.kinds.size())];
      const std::uint64_t own = ++uid * 7919 % 10'007;
      present[own] = engine.submit(engine.define(what), {0, own}, now);
      reference.submit(what, {0, own}, now);
    };
    for (int i = 0; i < 80; ++i) submit(i);
    for (int event = 0; event < 40; ++event) {
      std::vector<EngineDecision> out;
      engine.drain(out);
      Uids got;
      for (const EngineDecision& decision : out)
        if (decision.kind == EngineDecision::Kind::Admitted) got.push_back(engine.uid(decision.job).low);
      const std::string where = fmt::format("site {}, event {}", seed, event);
      ASSERT_EQ(got, reference.drain()) << where;
      ASSERT_EQ(reference.compare(engine.ledger()), "") << where;
      for (const EngineDecision& decision : out)
        if (decision.kind == EngineDecision::Kind::Waits && event > 0) is_short(engine, decision.kind_of_job, where);
      decisions += got.size();
      if (event > 0 && got.size() > 1) ++together;
      // One of those that run ends, or a few in the same second; now and then others come.
      std::vector<std::uint64_t> running;
      for (const auto& [one, job] : present)
        if (engine.running(job)) running.push_back(one);
      for (std::uint64_t i = 0; i < (site.one_in(4) ? 4 : 1) && !running.empty(); ++i) {
        const std::size_t at = site.rng.below(running.size());
        engine.leave(present.at(running[at]));
        reference.leave({0, running[at]});
        present.erase(running[at]);
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(at));
      }
      if (site.one_in(2)) submit(100 + event);
    }
  }
  EXPECT_GT(decisions, 0U);
  EXPECT_GT(together, 0U);
}

// Ten queues each have a job that one end would do for: the oldest gets it, and the others are not told anything new.
TEST(FullSites, OthersAreToldNothingWhenTheFirstTakesItAll) {
  EngineSpec spec;
  spec.nodes.push_back({.name = "site", .parent = "", .leaf = false});
  for (int q = 0; q < 10; ++q) {
    const std::string name = fmt::format("q{}", q);
    spec.nodes.push_back({.name = name, .parent = "site", .leaf = true, .quotas = {{{"f", "gpu"}, {1, unlimited, unlimited}}}});
    spec.queues.push_back({.name = name, .groups = {{{"gpu"}, {"f"}}}});
  }
  ContinuousEngine engine(spec);
  const auto asks = [&](int q, Amount gpus) { return engine.define({.queue = fmt::format("q{}", q), .pod_sets = {{.total = {{"gpu", gpus}}, .barred = {}}}}); };
  const JobId all = engine.submit(asks(0, 8), {0, 1}, 0);
  const JobId rest = engine.submit(asks(0, 2), {0, 2}, 1);
  std::vector<EngineDecision> out;
  engine.drain(out);
  ASSERT_TRUE(engine.running(all) && engine.running(rest));
  std::vector<JobId> waits;
  for (int q = 1; q < 10; ++q) waits.push_back(engine.submit(asks(q, 2), {0, static_cast<std::uint64_t>(q) + 10}, 100 - q));
  out.clear();
  engine.drain(out);
  EXPECT_EQ(out.size(), 9U);  // they wait
  engine.leave(rest);
  out.clear();
  engine.drain(out);
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out.front().kind, EngineDecision::Kind::Admitted);
  EXPECT_EQ(out.front().job, waits.back());
  EXPECT_EQ(engine.wait(asks(3, 2)).missing, 2);
}

}  // namespace
}  // namespace fairlead::governance
