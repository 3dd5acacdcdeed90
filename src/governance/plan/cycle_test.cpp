// SPDX-License-Identifier: Apache-2.0
// Behaviours that the recorded cases do not show: reasons with numbers, usage history, partial counts, strict queues, lost objects.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "governance/plan/cycle.h"
#include "governance/plan/kueue_read.h"
#include "governance/plan/partial.h"

namespace fairlead::governance {
namespace {

struct Site {
  WorldSpec spec;
  Engine engine{.world = {}, .spaces = {{"space", {}}}, .local_queues = {}, .history = UsageHistory(), .second_pass = {}};

  Site() {
    spec.admissions_count = false;
    spec.flavors.push_back({.node = {.name = "h100", .labels = {}, .taints = {}}, .tolerations = {}, .topology = {}});
  }
  QueueSpec& queue(const std::string& name, Limits gpus, const std::string& cohort = "all") {
    QueueSpec queue{.name = name, .cohort = cohort};
    queue.namespaces = *kube::LabelSelector::parse("");
    queue.groups.push_back({.resources = {"gpu"}, .flavors = {{.name = "h100", .resources = {{"gpu", gpus}}}}});
    spec.local_queues.push_back({.space = "space", .name = name, .queue = name});
    spec.queues.push_back(std::move(queue));
    return spec.queues.back();
  }
  WorkloadSpec& workload(const std::string& name, const std::string& queue, Amount gpus, std::int64_t priority = 0) {
    WorkloadSpec workload{.space = "space", .name = name, .uid = name, .local_queue = queue, .priority = priority};
    workload.created = Instant{} + std::chrono::seconds(spec.workloads.size());
    workload.pod_sets.push_back({.name = "main", .count = 1, .per_pod = {{"gpu", gpus}}, .shape = std::to_string(gpus)});
    spec.workloads.push_back(std::move(workload));
    return spec.workloads.back();
  }
  void holds(WorkloadSpec& w) {
    w.reserved = {.is = true, .reason = "QuotaReserved", .since = w.created};
    w.admission = Admission{.queue = w.local_queue, .pod_sets = {{.name = "main", .flavors = {{"gpu", "h100"}}, .usage = {{"gpu", w.pod_sets[0].per_pod["gpu"]}}, .count = 1, .topology = {}}}};
  }
  void start() {
    for (const LocalQueueSpec& local : spec.local_queues) engine.local_queues[local.key()] = local;
    engine.world = build_world(std::move(spec));
    engine.start();
  }
  std::string name(WorkloadId w) const { return engine.world.workloads[w].spec.name; }
};

TEST(Cycle, TheReasonTellsWhichLimitWhereAndByHowMuch) {
  Site site;
  site.queue("a", {.nominal = 6});
  site.queue("b", {.nominal = 5, .borrow = 2});
  site.holds(site.workload("a1", "a", 2));
  site.holds(site.workload("b1", "b", 4));
  site.workload("b2", "b", 4);
  site.start();
  const std::vector<Decision> decisions = run_cycle(site.engine);
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(decisions[0].kind, Decision::Kind::Wait);
  EXPECT_EQ(decisions[0].reason, "WaitingForQuota");
  ASSERT_EQ(decisions[0].assignment.pod_sets[0].reasons.size(), 1U);
  const Why& why = decisions[0].assignment.pod_sets[0].reasons[0];
  EXPECT_EQ(why.kind, Why::Kind::NeedsMore);
  EXPECT_EQ(why.missing, 1);
  EXPECT_EQ(site.engine.world.ledger.name(why.node), "b");  // its own borrowing limit
  EXPECT_EQ(decisions[0].message, "couldn't assign flavors to pod set main: insufficient unused quota for gpu in flavor h100, 1 more needed");
}

TEST(Cycle, WhoHoldsWhatIsMissing) {
  Site site;
  site.queue("a", {.nominal = 6});
  site.queue("b", {.nominal = 5});
  site.queue("c", {.nominal = 0});
  site.holds(site.workload("c1", "c", 7));
  site.workload("b1", "b", 5);
  site.start();
  const std::vector<Decision> decisions = run_cycle(site.engine);
  const Why& why = decisions[0].assignment.pod_sets[0].reasons[0];
  const Ledger& ledger = site.engine.world.ledger;
  EXPECT_EQ(ledger.name(why.node), "all");
  const auto borrowers = borrowers_of(ledger, ledger.leaf("b"), 0);
  ASSERT_EQ(borrowers.size(), 1U);
  EXPECT_EQ(ledger.name(borrowers[0].first), "c");
  EXPECT_EQ(borrowers[0].second, 7);
}

TEST(Cycle, ALenderTakesItsQuotaBackFromTheBorrower) {
  Site site;
  site.queue("a", {.nominal = 6}).policies.reclaim = PreemptionPolicy::Any;
  site.queue("b", {.nominal = 5});
  site.holds(site.workload("b1", "b", 5));
  site.holds(site.workload("b2", "b", 3, 9));
  site.workload("a1", "a", 6);
  site.start();
  const std::vector<Decision> first = run_cycle(site.engine);
  ASSERT_EQ(first[0].kind, Decision::Kind::Preempt);
  std::set<std::string> victims;
  for (const Victim& victim : first[0].victims) victims.insert(site.name(victim.workload));
  EXPECT_EQ(victims, std::set<std::string>{"b1"});  // the lower priority, and enough
  site.engine.remove(first[0].victims[0].workload);
  const std::vector<Decision> second = run_cycle(site.engine);
  EXPECT_EQ(second[0].kind, Decision::Kind::Admit);
}

TEST(Cycle, AHeadBlocksAStrictQueueAndIsPassedInAnother) {
  for (const bool strict : {true, false}) {
    Site site;
    site.queue("a", {.nominal = 4}, "").strict_fifo = strict;
    site.workload("large", "a", 9, 5);
    site.workload("small", "a", 1);
    site.start();
    run_cycle(site.engine);
    const std::vector<Decision> second = run_cycle(site.engine);
    EXPECT_EQ(site.name(second[0].workload), strict ? "large" : "small");
  }
}

TEST(Cycle, EqualsOfWhatDoesNotFitAreParkedUnseen) {
  Site site;
  site.queue("a", {.nominal = 4}, "");
  for (const char* name : {"w1", "w2", "w3"}) site.workload(name, "a", 9);
  site.workload("other", "a", 1);
  site.start();
  run_cycle(site.engine);
  EXPECT_EQ(site.engine.pending.parked(0).size(), 3U);
  EXPECT_EQ(site.engine.pending.active(0).size(), 1U);
}

TEST(Cycle, AQueueInACycleOfCohortsOrWithAnUnknownFlavorIsLeftAlone) {
  Site site;
  site.queue("a", {.nominal = 4}, "x");
  site.spec.cohorts.push_back({.name = "x", .parent = "y", .groups = {}});
  site.spec.cohorts.push_back({.name = "y", .parent = "x", .groups = {}});
  site.queue("b", {.nominal = 4}, "").groups[0].flavors[0].name = "gone";
  site.queue("c", {.nominal = 4}, "");
  for (const char* queue : {"a", "b", "c"}) site.workload(std::string(queue) + "1", queue, 1);
  site.start();
  const std::vector<Decision> decisions = run_cycle(site.engine);
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(site.name(decisions[0].workload), "c1");
  EXPECT_EQ(decisions[0].kind, Decision::Kind::Admit);
}

TEST(Cycle, AnAdmissionThatCannotBeWrittenGivesItsQuotaBack) {
  Site site;
  site.queue("a", {.nominal = 4}, "");
  site.workload("w", "a", 4);
  site.start();
  run_cycle(site.engine, [](WorkloadId) { return std::string("the API is away"); });
  EXPECT_EQ(site.engine.world.ledger.usage(0, 0), 0);
  EXPECT_EQ(site.engine.pending.active(0).size(), 1U);
  EXPECT_EQ(run_cycle(site.engine)[0].kind, Decision::Kind::Admit);
  EXPECT_EQ(site.engine.world.ledger.usage(0, 0), 4);
}

TEST(UsageHistory, DecaysByHalfLivesAndPenaltiesCountAtOnce) {
  UsageHistory history({.half_life_seconds = 10, .sampling_seconds = 10, .resource_weights = {{"memory", 0}}});
  history.set("s/a", {{"cpu", 8}, {"memory", 1e12}});
  EXPECT_DOUBLE_EQ(history.use("s/a", 1), 8);
  history.decay("s/a", {{"cpu", 4}}, 10);
  EXPECT_DOUBLE_EQ(history.use("s/a", 2), 3);  // (8/2 + 4/2) over the weight
  history.push_penalty("s/a", "w", {{"cpu", 6}});
  history.push_penalty("s/a", "w", {{"cpu", 6}});  // once for each workload
  EXPECT_DOUBLE_EQ(history.use("s/a", 1), 9);
  history.drop_penalty("s/a", "w");
  EXPECT_DOUBLE_EQ(history.use("s/a", 1), 6);
  EXPECT_TRUE(std::isinf(history.use("s/b", 0)));
  EXPECT_DOUBLE_EQ(history.use("s/none", 1), 0);
}

TEST(KueueRead, AmountsArePrintedAsKubernetesDoes) {
  EXPECT_EQ(amount_text("cpu", 1500), "1500m");
  EXPECT_EQ(amount_text("cpu", 9000), "9");
  EXPECT_EQ(amount_text("memory", 10485760), "10Mi");
  EXPECT_EQ(amount_text("memory", 0), "0");
  EXPECT_EQ(amount_text("memory", 1500), "1500");
  EXPECT_EQ(amount_text("gpu", 2000), "2k");
  EXPECT_EQ(amount_text("gpu", unlimited), "<unlimited>");
}

}  // namespace
}  // namespace fairlead::governance
