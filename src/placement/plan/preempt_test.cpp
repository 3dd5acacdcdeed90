// SPDX-License-Identifier: Apache-2.0
// Who makes room for whom. One node of 4 CPUs unless a row says otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "placement/plan/place.h"

namespace fairlead::placement {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Node node(const std::string& name, std::int64_t cpus = 4) {
  Node out{.name = name, .uid = "u-" + name};
  out.ready = true;
  out.labels = {{"kubernetes.io/hostname", name}};
  out.allocatable = {.cpu = {cpus * 1000}, .memory = {std::int64_t{1} << 40}, .pods = 100, .extended = {}};
  return out;
}
Pod pod(const std::string& name, std::int64_t priority, std::int64_t cpus, const std::string& on = "", int age = 0) {
  Pod out{.key = {"d", name}, .uid = "u-" + name};
  out.priority = priority;
  out.created = Instant(std::chrono::hours(1'000) - std::chrono::hours(age));
  out.requests = {.cpu = {cpus * 1000}, .memory = {}, .pods = 1, .extended = {}};
  out.node = on;
  out.labels = {{"name", name}};
  return out;
}
std::vector<std::string> victims(const Plan& plan) {
  std::vector<std::string> out;
  for (const Preempt& one : plan.preempts)
    for (const auto& victim : one.victims) out.push_back(one.node + ":" + victim.pod.name);
  return out;
}
Budget budget(const std::string& label, std::int64_t allowed) {
  auto selector = kube::LabelSelector::parse("name=" + label);
  INVARIANT(selector);
  return {.space = "d", .selector = *selector, .allowed = allowed};
}

TEST(Preemption, OfNobodyWhenThereIsRoom) {
  const Plan plan = plan_placement(Snapshot{.nodes = {node("a")}, .pods = {pod("low", 0, 2, "a"), pod("high", 9, 2)}});
  EXPECT_THAT(victims(plan), IsEmpty());
  EXPECT_EQ(plan.places.size(), 1U);
}

TEST(Preemption, OnlyOfThoseWhoMustGo) {
  const Plan plan = plan_placement(Snapshot{.nodes = {node("a")}, .pods = {pod("low", 0, 1, "a"), pod("mid", 1, 1, "a"), pod("big", 2, 2, "a"), pod("high", 9, 1)}});
  EXPECT_THAT(victims(plan), ElementsAre("a:low"));
  ASSERT_EQ(plan.waits.size(), 1U);
  EXPECT_EQ(plan.waits[0].why, "0/1 nodes are available: 1 Insufficient cpu.");
  EXPECT_EQ(plan.waits[0].preemption, "");
}

struct Refusal {
  const char* name;
  std::vector<Pod> pods;
  std::string want;
};
class NoRoom : public testing::TestWithParam<Refusal> {};
TEST_P(NoRoom, IsMadeAndTheReasonSaysWhy) {
  const Plan plan = plan_placement(Snapshot{.nodes = {node("a")}, .pods = GetParam().pods});
  EXPECT_THAT(victims(plan), IsEmpty());
  ASSERT_EQ(plan.waits.size(), 1U);
  EXPECT_EQ(plan.waits[0].preemption, GetParam().want);
}
Pod with(Pod pod, void (*change)(Pod&)) {
  change(pod);
  return pod;
}
INSTANTIATE_TEST_SUITE_P(Table, NoRoom, testing::Values(
    Refusal{"equals_stay", {pod("other", 9, 4, "a"), pod("high", 9, 1)}, "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."},
    Refusal{"too_big_for_the_node", {pod("low", 0, 4, "a"), pod("high", 9, 5)}, "preemption: 0/1 nodes are available: 1 Insufficient cpu."},
    Refusal{"the_node_is_not_for_it", {pod("low", 0, 4, "a"), with(pod("high", 9, 1), [](Pod& p) { p.node_selector = {{"x", "y"}}; })}, "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."},
    Refusal{"it_never_does", {pod("low", 0, 4, "a"), with(pod("high", 9, 1), [](Pod& p) { p.may_preempt = false; })}, "preemption: not eligible due to preemptionPolicy=Never."},
    Refusal{"room_is_being_made", {with(pod("low", 0, 4, "a"), [](Pod& p) { p.deleting = true; }), with(pod("high", 9, 1), [](Pod& p) { p.nominated = "a"; })}, "preemption: not eligible due to a terminating pod on the nominated node."}),
    [](const auto& row) { return row.param.name; });

TEST(Preemption, ChoosesTheLeastLoss) {
  struct Row {
    const char* name;
    std::vector<Pod> pods;
    std::vector<Budget> budgets;
    std::string want;
  };
  const std::vector<Row> rows = {
      {"lower priority", {pod("x", 5, 4, "a"), pod("y", 3, 4, "b")}, {}, "b:y"},
      {"a budget weighs more than priority", {pod("x", 5, 4, "a"), pod("y", 3, 4, "b")}, {budget("y", 0)}, "a:x"},
      {"a budget that allows it does not", {pod("x", 5, 4, "a"), pod("y", 3, 4, "b")}, {budget("y", 1)}, "b:y"},
      {"fewer", {pod("x", 3, 2, "a"), pod("x2", 3, 2, "a"), pod("y", 3, 4, "b")}, {}, "b:y"},
      {"the younger", {pod("x", 3, 4, "a", 1), pod("y", 3, 4, "b", 5)}, {}, "a:x"},
      {"then by name", {pod("x", 3, 4, "a"), pod("y", 3, 4, "b")}, {}, "a:x"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    std::vector<Pod> pods = row.pods;
    pods.push_back(pod("high", 9, 4));
    EXPECT_THAT(victims(plan_placement(Snapshot{.nodes = {node("a"), node("b")}, .pods = pods, .budgets = row.budgets})), ElementsAre(row.want));
  }
}

TEST(Preemption, TwoDoNotCountOnTheSameRoomAndNobodyTakesIt) {
  const Plan plan = plan_placement(Snapshot{.nodes = {node("a"), node("b")}, .pods = {pod("x", 0, 4, "a"), pod("y", 0, 4, "b"), pod("high", 9, 3), pod("high2", 9, 3), pod("small", 5, 1), pod("big", 5, 2)}});
  EXPECT_THAT(victims(plan), ElementsAre("a:x", "b:y"));
  // What is left beside the nominated ones is for others, once the victims are gone; they do not drive anybody out twice.
  Snapshot later{.nodes = {node("a"), node("b")}, .pods = {pod("high", 9, 3), pod("high2", 9, 3), pod("small", 5, 1), pod("big", 5, 2)}};
  later.pods[0].nominated = "a";
  later.pods[1].nominated = "b";
  const Plan placed = plan_placement(later);
  ASSERT_EQ(placed.places.size(), 3U) << print(placed);
  EXPECT_EQ(placed.places[0].node, "a");
  EXPECT_EQ(placed.places[1].node, "b");
  EXPECT_EQ(placed.places[2].pod.name, "small");
}

TEST(Preemption, MakesRoomForPortsAndForThoseWhoMustBeAlone) {
  Pod port = pod("x", 0, 0, "a"), wants = pod("high", 9, 0);
  port.host_ports = wants.host_ports = {{"TCP", 80}};
  EXPECT_THAT(victims(plan_placement(Snapshot{.nodes = {node("a")}, .pods = {port, wants}})), ElementsAre("a:x"));
  Pod alone = pod("high", 9, 0);
  auto all = kube::LabelSelector::parse("");
  ASSERT_TRUE(all);
  alone.apart.push_back({.selector = *all, .spaces = {}, .topology_key = "kubernetes.io/hostname", .space_selector = std::nullopt});
  EXPECT_THAT(victims(plan_placement(Snapshot{.nodes = {node("a")}, .pods = {pod("x", 0, 0, "a"), pod("y", 1, 0, "a"), alone}})), ElementsAre("a:x", "a:y"));
}

// Random clusters: what leaves is less important, is on the node, and makes the pod fit; nobody leaves for nothing.
TEST(PreemptionProperty, VictimsAreFewerThanAllAndEnough) {
  int preempted = 0;
  for (std::uint64_t seed = 0; seed < 2'000; ++seed) {
    Rng rng(seed);
    Snapshot snapshot;
    for (int i = 0; i < 3; ++i) snapshot.nodes.push_back(node("n" + std::to_string(i), static_cast<std::int64_t>(rng.below(5))));
    for (int i = 0; i < 9; ++i) {
      const bool waits = rng.below(3) == 0;
      snapshot.pods.push_back(pod("p" + std::to_string(i), static_cast<std::int64_t>(rng.below(4)), static_cast<std::int64_t>(rng.below(3)), waits ? "" : "n" + std::to_string(rng.below(3)),
                                  static_cast<int>(rng.below(4))));
    }
    const Plan plan = plan_placement(snapshot);
    SCOPED_TRACE(testing::Message() << "seed " << seed << '\n' << print(plan));
    EXPECT_EQ(plan, plan_placement(snapshot));
    std::map<std::string, const Pod*> pods;
    for (const Pod& one : snapshot.pods) pods[one.key.name] = &one;
    std::map<std::string, std::int64_t> free;
    for (const Node& one : snapshot.nodes) free[one.name] = one.allocatable.cpu.value;
    for (const Pod& one : snapshot.pods)
      if (!one.node.empty()) free[one.node] -= one.requests.cpu.value;
    for (const Place& place : plan.places) free[place.node] -= pods.at(place.pod.name)->requests.cpu.value;
    std::set<std::string> gone;
    for (const Preempt& preempt : plan.preempts) {
      ++preempted;
      const Pod& high = *pods.at(preempt.pod.name);
      for (const auto& victim : preempt.victims) {
        const Pod& low = *pods.at(victim.pod.name);
        EXPECT_LT(low.priority, high.priority);
        EXPECT_EQ(low.node, preempt.node);
        EXPECT_TRUE(gone.insert(low.key.name).second) << "leaves twice";
        free[preempt.node] += low.requests.cpu.value;
      }
      free[preempt.node] -= high.requests.cpu.value;
      // A node that somebody over-committed by hand may stay so for the sake of pods that leave for others.
      EXPECT_TRUE(high.requests.cpu.value == 0 || free[preempt.node] >= 0 || preempt.victims.empty());
    }
  }
  EXPECT_GT(preempted, 200);
}

}  // namespace
}  // namespace fairlead::placement
