// SPDX-License-Identifier: Apache-2.0
// Random histories of the compatible cycle: what must hold whatever comes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/rng.h"
#include "base/test_rounds.h"
#include "governance/plan/cycle.h"

namespace fairlead::governance {
namespace {

const std::vector<std::string> resources{"cpu", "gpu"};

WorldSpec random_spec(Rng& rng) {
  WorldSpec spec;
  spec.rules.fair = rng.below(2) == 0;
  spec.rules.check_final = rng.below(2) == 0;
  spec.rules.gates.recompute_overlaps = rng.below(4) != 0;
  spec.admissions_count = false;
  for (const char* name : {"one", "two"}) spec.flavors.push_back({.node = {.name = name, .labels = {}, .taints = {}}, .tolerations = {}, .topology = {}});
  const auto group = [&](bool limits) {
    ResourceGroup result{.resources = resources, .flavors = {}};
    for (const FlavorSpec& flavor : spec.flavors) {
      QueueFlavor quotas{.name = flavor.node.name, .resources = {}};
      for (const std::string& resource : resources) {
        Limits amount{.nominal = static_cast<Amount>(rng.below(9))};
        if (limits && rng.below(3) == 0) amount.borrow = static_cast<Amount>(rng.below(6));
        if (limits && rng.below(3) == 0) amount.lend = static_cast<Amount>(rng.below(6));
        quotas.resources.emplace_back(resource, amount);
      }
      result.flavors.push_back(std::move(quotas));
    }
    return result;
  };
  const std::size_t cohorts = rng.below(4);
  for (std::size_t i = 0; i < cohorts; ++i) {
    CohortSpec cohort{.name = "c" + std::to_string(i), .parent = i == 0 ? "" : "c" + std::to_string(rng.below(i)), .weight = static_cast<double>(rng.below(3)), .groups = {}};
    if (rng.below(2) == 0) cohort.groups.push_back(group(i != 0));
    spec.cohorts.push_back(std::move(cohort));
  }
  const std::size_t queues = 1 + rng.below(5);
  for (std::size_t i = 0; i < queues; ++i) {
    QueueSpec queue{.name = "q" + std::to_string(i), .weight = static_cast<double>(rng.below(3))};
    queue.cohort = cohorts == 0 || rng.below(6) == 0 ? "" : "c" + std::to_string(rng.below(cohorts));
    queue.strict_fifo = rng.below(3) == 0;
    queue.namespaces = *kube::LabelSelector::parse("");
    queue.groups.push_back(group(!queue.cohort.empty()));
    const PreemptionPolicy policies[] = {PreemptionPolicy::Never, PreemptionPolicy::LowerPriority, PreemptionPolicy::LowerOrNewerEqualPriority, PreemptionPolicy::Any};
    queue.policies.within_queue = policies[rng.below(3)];
    queue.policies.reclaim = policies[rng.below(2) == 0 ? 3 : rng.below(2)];
    queue.policies.borrow_within_cohort = !spec.rules.fair && queue.policies.reclaim != PreemptionPolicy::Never && rng.below(3) == 0;
    if (rng.below(2) == 0) queue.policies.borrow_threshold = static_cast<std::int64_t>(rng.below(3));
    queue.policies.next_if_preempting = rng.below(2) == 0;
    queue.policies.next_if_borrowing = rng.below(2) == 0;
    spec.local_queues.push_back({.space = "space", .name = "l" + std::to_string(i), .queue = queue.name});
    spec.queues.push_back(std::move(queue));
  }
  const std::size_t workloads = 4 + rng.below(24);
  for (std::size_t i = 0; i < workloads; ++i) {
    WorkloadSpec workload{.space = "space", .name = "w" + std::to_string(i), .uid = "u" + std::to_string(1000 + i), .local_queue = "l" + std::to_string(rng.below(queues))};
    workload.priority = static_cast<std::int64_t>(rng.below(4));
    workload.created = Instant{} + std::chrono::seconds(rng.below(6));
    for (std::size_t p = 0; p < 1 + rng.below(2); ++p) {
      PodSetSpec pod_set{.name = "p" + std::to_string(p), .count = static_cast<std::int32_t>(1 + rng.below(3))};
      for (const std::string& resource : resources) pod_set.per_pod[resource] = static_cast<Amount>(rng.below(4));
      if (rng.below(4) == 0) pod_set.min_count = 1;
      pod_set.shape = pod_set.name;
      for (const auto& [name, amount] : pod_set.per_pod) pod_set.shape += name + std::to_string(amount);
      workload.pod_sets.push_back(std::move(pod_set));
    }
    spec.workloads.push_back(std::move(workload));
  }
  return spec;
}

void set_up(Engine& engine, WorldSpec spec) {
  engine.spaces["space"] = {};
  for (const LocalQueueSpec& local : spec.local_queues) engine.local_queues[local.key()] = local;
  engine.world = build_world(std::move(spec));
  engine.start();
}

// A decision without ids: to compare engines that numbered things differently.
std::string told(const World& world, const Decision& decision) {
  std::string text = world.workloads[decision.workload].spec.name + " " + std::to_string(static_cast<int>(decision.kind)) + " " + decision.reason + " " + decision.message;
  std::vector<std::string> victims;
  for (const Victim& victim : decision.victims) victims.push_back(world.workloads[victim.workload].spec.name);
  std::sort(victims.begin(), victims.end());
  for (const std::string& victim : victims) text += " -" + victim;
  for (const PodSetFlavors& one : decision.assignment.pod_sets) {
    text += " " + std::to_string(one.count);
    for (const FlavorChoice& choice : one.flavors) text += ":" + world.flavors[choice.flavor].name;
  }
  return text;
}

std::vector<std::string> all_told(const World& world, const std::vector<Decision>& decisions) {
  std::vector<std::string> texts;
  for (const Decision& decision : decisions) texts.push_back(told(world, decision));
  std::sort(texts.begin(), texts.end());
  return texts;
}

// Once victims have stopped: Kueue may give out in a cycle what its victims still hold.
void expect_no_overuse(World& world, std::uint64_t seed) {
  const WorldTrial trial(world);
  for (WorkloadId w = 0; w < world.workloads.size(); ++w)
    if (world.workloads[w].counted && world.workloads[w].spec.evicted.is) world.take_usage(w);
  for (NodeId node = 0; node < world.ledger.size(); ++node)
    for (Column c = 0; c < world.ledger.width(node); ++c) ASSERT_GE(world.ledger.available(node, c), 0) << "seed " << seed << ", " << world.ledger.name(node);
}

// What was counted step by step is what the held workloads sum up to.
void expect_counted_right(const World& world, std::uint64_t seed) {
  std::map<std::pair<NodeId, Column>, Amount> sums;
  for (const Queue& queue : world.queues)
    for (const WorkloadId w : queue.held)
      for (const Use& use : world.workloads[w].held) sums[{queue.node, use.column}] += use.amount;
  for (const Queue& queue : world.queues)
    for (Column c = 0; c < world.ledger.width(queue.node); ++c) {
      const Amount sum = sums[{queue.node, c}];
      ASSERT_EQ(world.ledger.usage(queue.node, c), sum) << "seed " << seed << ", " << queue.spec.name;
    }
}

// Who loses work to another queue uses more than its own quota of something. (Not of what the victim uses: Kueue's rule asks for any contested resource.)
void expect_own_quota_is_safe(const World& world, const std::vector<Decision>& decisions, std::uint64_t seed) {
  for (const Decision& decision : decisions) {
    if (decision.kind != Decision::Kind::Preempt) continue;
    for (const Victim& victim : decision.victims) {
      const Workload& loser = world.workloads[victim.workload];
      if (loser.queue == decision.queue) continue;
      const NodeId node = world.queues[loser.queue].node;
      bool borrows = false;
      for (Column c = 0; c < world.ledger.width(node); ++c) borrows = borrows || world.ledger.borrowing(node, c);
      ASSERT_TRUE(borrows) << "seed " << seed << ": " << loser.spec.name << " of " << world.queues[loser.queue].spec.name;
    }
  }
}

TEST(CycleProperty, QuotasHoldAndOrderOfInputDecidesNothing) {
  const int rounds = test_rounds(300, 1'000'000);
  int admitted = 0, preempted = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t seed = 0x6379636c + static_cast<std::uint64_t>(round);
    Rng rng(seed);
    const WorldSpec spec = random_spec(rng);
    WorldSpec shuffled = spec;
    for (std::size_t i = shuffled.workloads.size(); i > 1; --i) std::swap(shuffled.workloads[i - 1], shuffled.workloads[rng.below(i)]);
    std::reverse(shuffled.queues.begin(), shuffled.queues.end());
    std::reverse(shuffled.cohorts.begin(), shuffled.cohorts.end());
    Engine engine{.world = {}, .spaces = {}, .local_queues = {}, .history = UsageHistory(), .second_pass = {}};
    Engine other{.world = {}, .spaces = {}, .local_queues = {}, .history = UsageHistory(), .second_pass = {}};
    set_up(engine, spec);
    set_up(other, shuffled);
    for (int step = 0; step < 12; ++step) {
      const std::vector<Decision> decisions = run_cycle(engine);
      ASSERT_EQ(all_told(engine.world, decisions), all_told(other.world, run_cycle(other))) << "seed " << seed << ", step " << step;
      expect_no_overuse(engine.world, seed);
      expect_counted_right(engine.world, seed);
      // Where victims are chosen anew within a cycle, what others were promised in it counts as borrowed, too.
      if (!spec.rules.gates.recompute_overlaps) expect_own_quota_is_safe(engine.world, decisions, seed);
      if (HasFatalFailure()) return;
      // Victims stop; now and then something ends.
      std::set<std::string> gone;
      for (const Workload& w : engine.world.workloads)
        if (w.counted && (w.spec.evicted.is || rng.below(10) == 0)) gone.insert(w.spec.name);
      for (const Decision& decision : decisions) {
        admitted += decision.kind == Decision::Kind::Admit;
        preempted += static_cast<int>(decision.kind == Decision::Kind::Preempt ? decision.victims.size() : 0);
      }
      for (Engine* each : {&engine, &other})
        for (WorkloadId w = 0; w < each->world.workloads.size(); ++w)
          if (!each->world.workloads[w].deleted && gone.contains(each->world.workloads[w].spec.name)) each->remove(w);
    }
  }
  EXPECT_GT(admitted, rounds);  // these histories are not empty
  EXPECT_GT(preempted, rounds / 10);
}

}  // namespace
}  // namespace fairlead::governance
