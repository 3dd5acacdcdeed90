// SPDX-License-Identifier: Apache-2.0
#include "base/test_rounds.h"
#include "slurm/plan/size.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "base/rng.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::HasSubstr;

const Instant kStart = *parse_time("2026-03-01T00:00:00Z");

SlurmNode record(const std::string& name, std::vector<std::string> state, int given = 0) {
  return {.name = name, .state = std::move(state), .cpus = given, .total = {4, 1024, 1}, .given = {given, 0, 0}, .partitions = {"main"}, .features = {"worker"}};
}

// A cluster as the plan sees it, changed step by step.
struct World {
  SizeInput in;
  explicit World(int min, int max, int serving = 0, int asked = 1) {
    SizeSet set{.name = "worker", .size = asked};
    set.rules = api::SlurmAutoscale{.min = min, .max = max};
    in.sets.push_back(std::move(set));
    in.now = kStart;
    in.view = SlurmView{.at = kStart, .has_queue = true};
    for (int i = 0; i < max; ++i) put(i, i < serving);
  }
  static std::string name(int i) { return fmt::format("worker-{}", i); }
  void put(int i, bool serves, int given = 0) {
    auto& set = in.sets[0];
    in.view->nodes[name(i)] = serves ? record(name(i), given == 0 ? std::vector<std::string>{"IDLE"} : std::vector<std::string>{given < 4 ? "MIXED" : "ALLOCATED"}, given) : record(name(i), {"DOWN", "NOT_RESPONDING"});
    if (serves) set.pods.insert(i), set.ready.insert(i);
    else set.pods.erase(i), set.ready.erase(i);
  }
  SlurmQueued& wait(std::string id, int nodes, int cpus = 0, std::string reason = "ReqNodeNotAvail, UnavailableNodes:worker-[0-3]") {
    in.view->queue.push_back({.id = std::move(id), .user = "ada", .reason = std::move(reason), .nodes = nodes, .room = {cpus ? cpus : nodes, 0, 0}, .partitions = {"main"}});
    return in.view->queue.back();
  }
  SizePlan plan(std::chrono::seconds later = {}) {
    in.now += later;
    in.view->at += later;
    SizePlan out = plan_size(in);
    in.memory = out.memory;
    EXPECT_EQ(plan_size(in).sizes, out.sizes) << "asked again at once: " << out.message;
    return out;
  }
  int size(std::chrono::seconds later = {}) { return plan(later).sizes.at("worker"); }
  void all_come() {
    for (int i = 0; i < size(); ++i)
      if (!in.sets[0].ready.contains(i)) put(i, true);
  }
};

TEST(Size, NothingFollowsTheQueueUnlessAsked) {
  World world(0, 4);
  world.in.sets[0].rules.reset();
  EXPECT_TRUE(plan_size(world.in).sizes.empty());
  EXPECT_TRUE(plan_size(world.in).memory.is_null());
}

TEST(Size, WorkersComeForAJobAllOfThemAtOnce) {
  World world(0, 4);
  EXPECT_EQ(world.size(), 0);
  world.wait("7", 2);
  EXPECT_EQ(world.size(), 2);
  EXPECT_THAT(world.plan().message, HasSubstr("workers come for job 7 of ada (2 nodes, 2 CPUs)"));
  world.wait("8", 1, 8);  // CPUs of two workers
  EXPECT_EQ(world.size(), 4);
}

TEST(Size, NeverForPartOfAJob) {
  World world(0, 4);
  world.wait("7", 5);
  const auto plan = world.plan();
  EXPECT_EQ(plan.sizes.at("worker"), 0);
  EXPECT_FALSE(plan.well);
  EXPECT_THAT(plan.message, HasSubstr("job 7 of ada (5 nodes, 5 CPUs)"));
  world.wait("8", 1);
  EXPECT_EQ(world.size(), 1);  // what fits is not held up by what never can
}

TEST(Size, TheComponentsOfOneJobComeTogether) {
  World world(0, 4);
  world.wait("7+0", 2, 8);
  world.wait("7+1", 3, 12);
  EXPECT_EQ(world.size(), 0);
  world.in.view->queue.back().nodes = 2;
  world.in.view->queue.back().room = {8, 0, 0};
  EXPECT_EQ(world.size(), 4);
}

struct Reason { const char* name; const char* text; int want; };
class SizeReason : public testing::TestWithParam<Reason> {};
TEST_P(SizeReason, OnlyJobsThatWaitForWorkersBringAny) {
  World world(0, 4);
  world.wait("7", 2, 0, GetParam().text);
  EXPECT_EQ(world.size(), GetParam().want);
}
INSTANTIATE_TEST_SUITE_P(Reasons, SizeReason,
                         testing::Values(Reason{"resources", "Resources", 2}, Reason{"priority", "Priority", 2}, Reason{"down", "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", 2}, Reason{"not_looked_at", "None", 0},
                                         Reason{"dependency", "Dependency", 0}, Reason{"begin", "BeginTime", 0}, Reason{"held", "JobHeldUser", 0}, Reason{"held_by_admin", "JobHeldAdmin", 0}, Reason{"association", "AssocGrpNodeLimit", 0},
                                         Reason{"qos", "QOSMaxJobsPerUserLimit", 0}, Reason{"licences", "Licenses", 0}, Reason{"reservation", "Reservation", 0}, Reason{"maintenance", "ReqNodeNotAvail, Reserved for maintenance", 0},
                                         Reason{"array", "JobArrayTaskLimit", 0}, Reason{"partition", "PartitionDown", 0}, Reason{"too_large", "PartitionConfig", 0}),
                         [](const auto& row) { return row.param.name; });

TEST(Size, AJobOfAReservationBringsNone) {
  World world(0, 4);
  world.wait("7", 2).reservation = "night";
  EXPECT_EQ(world.size(), 0);
}

TEST(Size, AnArrayBringsAsManyAsMayRunAtOnce) {
  World world(0, 8);
  world.wait("7_[0-5%2]", 1, 4);
  EXPECT_EQ(world.size(), 2);
  world.in.view->queue.clear();
  world.wait("8_[1-9:4,20]", 1, 4);  // 1, 5, 9 and 20
  EXPECT_EQ(world.size(), 4);
}

TEST(Size, WhatAWorkerDoesNotHaveBringsNone) {
  World world(0, 4);
  world.wait("7", 1).features = "a100";
  EXPECT_EQ(world.size(), 0);
  world.in.view->queue[0].features = "worker|a100";
  EXPECT_EQ(world.size(), 1);
  world.in.view->queue[0].features = "[rack1|rack2]";
  EXPECT_THAT(world.plan().message, HasSubstr("not understood"));
  world.in.view->queue[0].features.clear();
  world.in.view->queue[0].partitions = {"other"};
  EXPECT_THAT(world.plan().message, HasSubstr("raise max"));
}

TEST(Size, ExcludedAndRequestedWorkersCount) {
  World world(0, 4);
  world.wait("7", 1).excluded = {"worker-0"};
  EXPECT_EQ(world.size(), 2);
  world.in.view->queue[0].excluded.clear();
  world.in.view->queue[0].requested = {"worker-3"};
  EXPECT_EQ(world.size(), 4);
}

TEST(Size, ExclusiveJobsTakeWholeWorkers) {
  World world(0, 4, 1);
  world.put(0, true, 1);
  world.wait("7", 1);
  EXPECT_EQ(world.size(), 1);  // three CPUs are free there
  world.in.view->queue[0].exclusive = true;
  EXPECT_EQ(world.size(), 2);
}

TEST(Size, AnIdleWorkerGoesAfterAWhileAndABusyOneNever) {
  World world(0, 4, 3);
  EXPECT_EQ(world.size(), 3);
  world.put(1, true, 4);
  EXPECT_EQ(world.size(9min), 3);
  EXPECT_EQ(world.size(2min), 2);  // worker-2 was idle for 11 minutes; worker-0 stays since worker-1 is busy
  EXPECT_EQ(world.size(24h), 2);
  world.put(1, true, 0);
  EXPECT_EQ(world.size(1min), 2);
  EXPECT_EQ(world.size(11min), 0);
}

TEST(Size, ChecksNeitherKeepAWorkerNorBringOne) {
  World world(0, 4, 1);
  EXPECT_EQ(world.size(), 1);
  world.wait("7", 2).user = "nobody";
  EXPECT_EQ(world.size(5min), 1);
  world.put(0, true, 1);
  world.in.view->jobs.push_back({.id = "8", .user = "nobody", .state = "RUNNING", .nodes = {"worker-0"}});
  EXPECT_EQ(world.size(6min), 1);  // never while anything runs there
  world.put(0, true);
  world.in.view->jobs.clear();
  EXPECT_EQ(world.size(1s), 0);
}

TEST(Size, AJobThatWouldUseAnIdleWorkerKeepsIt) {
  World world(0, 4, 2);
  EXPECT_EQ(world.size(), 2);
  EXPECT_EQ(world.size(9min), 2);
  world.wait("7", 2, 8, "Priority");
  EXPECT_EQ(world.size(1h), 2);
  world.in.view->queue.clear();
  EXPECT_EQ(world.size(5min), 2);  // the waiting began anew
  EXPECT_EQ(world.size(11min), 0);
}

TEST(Size, WhatDoesNotComeIsGivenBackAndTriedAgainLater) {
  World world(0, 4);
  world.wait("7", 3, 12);
  EXPECT_EQ(world.size(), 3);
  world.put(0, true);
  EXPECT_EQ(world.size(9min), 3);
  const auto plan = world.plan(2min);  // worker-1 and worker-2 found no machine
  EXPECT_EQ(plan.sizes.at("worker"), 0);
  EXPECT_EQ(plan.reason, "NotPlaced");
  EXPECT_THAT(plan.message, HasSubstr("tried again at 2026-03-01T00:21:00Z"));
  world.put(0, false);
  EXPECT_EQ(world.size(5min), 0);
  world.wait("8", 1, 4);
  EXPECT_EQ(world.size(), 1);  // what could be placed may be used
  world.put(0, true);
  EXPECT_EQ(world.size(6min), 4);  // now, beside the one for job 8
  EXPECT_EQ(world.size(11min), 1);
  EXPECT_THAT(world.plan().message, HasSubstr("tried again at 2026-03-01T00:53:00Z"));  // twice as long
}

TEST(Size, TheFirstJobIsNotStarvedByWhatIsBusy) {
  World world(0, 2, 1);
  world.put(0, true, 4);
  world.wait("7", 2, 8, "Resources");
  world.wait("8", 1, 4, "Priority");
  EXPECT_EQ(world.size(), 2);  // both of its workers, so that Slurm plans for it
}

TEST(Size, SilenceChangesNothing) {
  World world(1, 4, 3);
  EXPECT_EQ(world.size(), 3);
  world.in.view.reset();
  const auto plan = plan_size(world.in);
  EXPECT_EQ(plan.sizes.at("worker"), 3);
  EXPECT_FALSE(plan.well);
  world.in.view = SlurmView{.at = kStart};  // a companion that tells no queue
  EXPECT_EQ(plan_size(world.in).sizes.at("worker"), 3);
}

TEST(Size, StartsFromWhatRunsWithinTheBounds) {
  EXPECT_EQ(World(0, 4, 3).size(), 3);
  EXPECT_EQ(World(0, 2, 0, 9).size(), 0);
  EXPECT_EQ(World(2, 4).size(), 2);
  World shrunk(0, 4, 4);
  EXPECT_EQ(shrunk.size(), 4);
  shrunk.in.sets[0].rules->max = 2;
  EXPECT_EQ(shrunk.size(), 2);
}

TEST(Size, AWorkerThatAPersonDrainedCountsForNothing) {
  World world(0, 4, 2);
  world.in.view->nodes["worker-0"].state = {"IDLE", "DRAIN"};
  world.in.view->nodes["worker-0"].reason = "bad disk";
  world.wait("7", 2, 8);
  EXPECT_EQ(world.size(), 3);
}

TEST(Size, DamagedMemoryIsReadAsNone) {
  World world(0, 4);
  world.in.memory = Json::object({{"sets", Json::array({Json::object({{"name", "worker"}, {"size", -7}, {"missing", Json::object({{"x", "y"}})}, {"tryAgainAt", "soon"}, {"placed", "many"}})})}});
  world.wait("7", 2);
  EXPECT_EQ(world.size(), 2);
}

// Random streams of jobs on a simulated Slurm: never above max or below min, never a busy worker beyond the size, never part of a job, and every job that fits begins in the end.
TEST(SizeProperty, EveryJobThatFitsBegins) {
  for (std::uint64_t seed = 0, seeds = test_rounds<std::uint64_t>(40, 400); seed < seeds; ++seed) {
    Rng rng(seed);
    const int max = 1 + static_cast<int>(rng.below(6)), min = static_cast<int>(rng.below(static_cast<std::uint64_t>(max) + 1));
    World world(min, max, 0);
    struct Run { std::vector<int> on; int left; };
    std::map<std::string, Run> running;
    std::map<int, int> starting;  // steps until a worker that was made serves
    int id = 0, changes = 0, last = -1;
    const int busy_steps = 150, steps = 700;
    for (int step = 0; step < steps; ++step) {
      if (step < busy_steps && rng.below(3) == 0) {
        const int nodes = 1 + static_cast<int>(rng.below(static_cast<std::uint64_t>(max)));
        world.wait(std::to_string(++id), nodes, nodes * (1 + static_cast<int>(rng.below(4))), rng.below(2) ? "Resources" : "Priority");
      }
      const auto plan = world.plan(std::chrono::seconds(30));
      const int size = plan.sizes.at("worker");
      ASSERT_LE(size, max) << seed;
      ASSERT_GE(size, min) << seed;
      for (const auto& [job, run] : running)
        for (const int node : run.on) ASSERT_LT(node, size) << "seed " << seed << ": a busy worker is beyond the size: " << plan.message;
      if (size != last && step >= busy_steps) ++changes;
      last = size;
      for (int i = 0; i < max; ++i) {
        if (i >= size) world.put(i, false), starting.erase(i);
        else if (!world.in.sets[0].ready.contains(i)) {
          if (!starting.contains(i)) starting[i] = static_cast<int>(rng.below(4));
          else if (starting[i]-- == 0) world.put(i, true), starting.erase(i);
        }
      }
      // Jobs end and begin as Slurm would have it: in order, the first that does not fit holds up the others.
      for (auto at = running.begin(); at != running.end();) at = --at->second.left == 0 ? running.erase(at) : std::next(at);
      const auto given = [&](int node) { return std::count_if(running.begin(), running.end(), [&](const auto& one) { return std::find(one.second.on.begin(), one.second.on.end(), node) != one.second.on.end(); }); };
      auto& queue = world.in.view->queue;
      while (!queue.empty()) {
        std::vector<int> on;
        for (int i = 0; i < size && static_cast<int>(on.size()) < queue[0].nodes; ++i)
          if (world.in.sets[0].ready.contains(i) && given(i) == 0) on.push_back(i);
        if (static_cast<int>(on.size()) < queue[0].nodes) break;
        running[queue[0].id] = {on, 1 + static_cast<int>(rng.below(6))};
        queue.erase(queue.begin());
      }
      for (int i = 0; i < max; ++i)
        if (world.in.sets[0].ready.contains(i)) world.put(i, true, given(i) ? 4 : 0);
    }
    EXPECT_TRUE(world.in.view->queue.empty()) << "seed " << seed << ": " << world.in.view->queue.size() << " jobs never began; " << world.plan().message;
    EXPECT_EQ(last, min) << "seed " << seed << ": at rest";
    EXPECT_LE(changes, 2 * id + 2) << "seed " << seed;
  }
}

}  // namespace
}  // namespace fairlead::slurm
