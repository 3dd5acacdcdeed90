// SPDX-License-Identifier: Apache-2.0
#include "placement/plan/evict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace fairlead::placement {
namespace {

using testing::ElementsAre;

const Instant start{std::chrono::hours(1'000)};

Node node_with(const std::string& key, Effect effect = Effect::NoExecute) {
  Node node{.name = "n"};
  node.taints.push_back({key, "", effect, start});
  return node;
}
Pod pod_on(const std::string& name, std::vector<Toleration> tolerations = {}) {
  Pod pod{.key = {"d", name}, .uid = "u-" + name};
  pod.node = "n";
  pod.tolerations = std::move(tolerations);
  return pod;
}
Toleration for_seconds(const std::string& key, std::optional<std::int64_t> seconds) {
  return {.key = key, .exists = true, .value = "", .effect = Effect::NoExecute, .seconds = seconds};
}

struct Case {
  const char* name;
  std::string taint;
  std::vector<Toleration> tolerations;
  std::optional<std::chrono::seconds> leaves;  // after the taint came; none: never
};
const std::string unreachable = "node.kubernetes.io/unreachable";

class Evictions : public testing::TestWithParam<Case> {};

TEST_P(Evictions, ComeWhenPatienceEnds) {
  const Case& row = GetParam();
  const Node node = node_with(row.taint);
  const auto at = [&](std::chrono::nanoseconds after) { return plan_evictions(node, {pod_on("p", row.tolerations)}, start + after, {}); };
  if (!row.leaves) {
    EXPECT_EQ(at(std::chrono::hours(10'000)), EvictionPlan{});
    return;
  }
  const EvictionPlan due = at(*row.leaves);
  ASSERT_EQ(due.evictions.size(), 1U);
  EXPECT_EQ(due.evictions[0].uid, "u-p");
  EXPECT_THAT(due.evictions[0].why, testing::HasSubstr(row.taint));
  EXPECT_EQ(due.look_again_at, std::nullopt);
  if (row.leaves->count() > 0) {
    const EvictionPlan early = at(*row.leaves - std::chrono::nanoseconds(1));
    EXPECT_TRUE(early.evictions.empty());
    EXPECT_EQ(early.look_again_at, start + *row.leaves);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Evictions, testing::Values(
    Case{"unreachable_by_default", unreachable, {}, std::chrono::seconds(300)},
    Case{"not_ready_by_default", "node.kubernetes.io/not-ready", {}, std::chrono::seconds(300)},
    Case{"own_patience", unreachable, {for_seconds(unreachable, 10)}, std::chrono::seconds(10)},
    Case{"the_shortest_of_several", unreachable, {for_seconds(unreachable, 10), for_seconds("", 5)}, std::chrono::seconds(5)},
    Case{"no_patience", unreachable, {for_seconds(unreachable, 0)}, std::chrono::seconds(0)},
    Case{"for_ever", unreachable, {for_seconds(unreachable, std::nullopt)}, std::nullopt},
    Case{"tolerates_everything", unreachable, {{.key = "", .exists = true, .value = "", .effect = {}, .seconds = {}}}, std::nullopt},
    Case{"enormous_patience", unreachable, {for_seconds(unreachable, std::numeric_limits<std::int64_t>::max())}, std::nullopt},
    Case{"a_users_taint_at_once", "maintenance", {}, std::chrono::seconds(0)},
    Case{"another_toleration_does_not_help", "maintenance", {for_seconds(unreachable, 10)}, std::chrono::seconds(0)}),
    [](const auto& row) { return row.param.name; });

TEST(EvictionPlan, LeavesAloneWhatIsNotItsBusiness) {
  Pod finished = pod_on("finished"), dying = pod_on("dying"), elsewhere = pod_on("elsewhere");
  finished.finished = true;
  dying.deleting = true;
  elsewhere.node = "m";
  EXPECT_EQ(plan_evictions(node_with("x"), {finished, dying, elsewhere}, start, {}), EvictionPlan{});
  EXPECT_EQ(plan_evictions(node_with("x", Effect::NoSchedule), {pod_on("p")}, start, {}), EvictionPlan{});
}

TEST(EvictionPlan, TellsWhenTheNextIsDueAndSortsByName) {
  const auto plan = plan_evictions(node_with(unreachable), {pod_on("z", {for_seconds(unreachable, 5)}), pod_on("b"), pod_on("a", {for_seconds(unreachable, 5)}),
                                                            pod_on("c", {for_seconds(unreachable, 60)})}, start + std::chrono::seconds(10), {});
  std::vector<std::string> names;
  for (const Eviction& eviction : plan.evictions) names.push_back(eviction.pod.name);
  EXPECT_THAT(names, ElementsAre("a", "z"));
  EXPECT_EQ(plan.look_again_at, start + std::chrono::seconds(60));
}

}  // namespace
}  // namespace fairlead::placement
