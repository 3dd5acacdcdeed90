// SPDX-License-Identifier: Apache-2.0
#include "node/plan/probe.h"

#include <gtest/gtest.h>

namespace fairlead::node {
namespace {

struct Case {
  const char* name;
  const char* container;
  std::vector<std::pair<std::size_t, bool>> results;
  ProbeHealth want;
};
class Probes : public testing::TestWithParam<Case> {};
TEST_P(Probes, Decide) {
  ProbeState state(probes_of(*kube::parse_json(GetParam().container)));
  for (const auto& [probe, success] : GetParam().results)
    if (state.wanted(probe)) state.record(probe, success);
  EXPECT_EQ(state.health(), GetParam().want);
}
const char* const readiness = R"({"readinessProbe": {"exec": {"command": ["x"]}, "failureThreshold": 2, "successThreshold": 2}})";
const char* const liveness = R"({"livenessProbe": {"exec": {"command": ["x"]}, "failureThreshold": 2}})";
const char* const all =
    R"({"startupProbe": {"exec": {"command": ["x"]}, "failureThreshold": 3}, "readinessProbe": {"exec": {"command": ["x"]}}, "livenessProbe": {"exec": {"command": ["x"]}, "failureThreshold": 1}})";
INSTANTIATE_TEST_SUITE_P(Kinds, Probes,
                         testing::Values(Case{"none_is_ready", "{}", {}, {true, true, false}},
                                         Case{"readiness_begins_with_no", readiness, {}, {true, false, false}},
                                         Case{"one_success_of_two_is_not_enough", readiness, {{0, true}}, {true, false, false}},
                                         Case{"two_are", readiness, {{0, true}, {0, true}}, {true, true, false}},
                                         Case{"one_failure_is_forgiven", readiness, {{0, true}, {0, true}, {0, false}}, {true, true, false}},
                                         Case{"two_are_not", readiness, {{0, true}, {0, true}, {0, false}, {0, false}}, {true, false, false}},
                                         Case{"liveness_begins_with_yes", liveness, {}, {true, true, false}},
                                         Case{"failures_must_follow_each_other", liveness, {{0, false}, {0, true}, {0, false}}, {true, true, false}},
                                         Case{"two_failures_restart", liveness, {{0, false}, {0, false}}, {true, true, true}},
                                         Case{"before_start_nothing_else_counts", all, {{2, false}, {1, true}}, {false, false, false}},
                                         Case{"after_start_it_does", all, {{0, true}, {1, true}}, {true, true, false}},
                                         Case{"liveness_after_start", all, {{0, true}, {2, false}}, {true, false, true}},
                                         Case{"a_start_that_never_comes_restarts", all, {{0, false}, {0, false}, {0, false}}, {false, false, true}}),
                         [](const auto& row) { return row.param.name; });

// A new agent of a node with the probes of `all`: what was told holds until it is refuted.
// How a container that comes up within a second is ready then, and one that never is costs no more than its period says.
TEST(Probes, ReadinessIsAskedForEachSecondWhileItHasNeverBeen) {
  using namespace std::chrono_literals;
  const kube::Json container = *kube::parse_json(R"({"readinessProbe": {"exec": {"command": ["x"]}, "periodSeconds": 5}, "livenessProbe": {"exec": {"command": ["x"]}, "periodSeconds": 7}})");
  ProbeState state(probes_of(container));
  for (int i = 0; i < 4; ++i) {
    state.record(0, false);
    EXPECT_EQ(state.pause(0), 1s) << i;
  }
  state.record(0, false);
  EXPECT_EQ(state.pause(0), 5s) << "a period has gone by";
  EXPECT_EQ(state.pause(1), 7s) << "others are as they were";
  ProbeState ready(probes_of(container));
  ready.record(0, true);
  EXPECT_EQ(ready.pause(0), 5s);
  ready.record(0, false);
  EXPECT_EQ(ready.pause(0), 5s) << "it was ready once";
  ProbeState kept(probes_of(container));
  kept.resume(true, true);
  kept.record(0, false);
  EXPECT_EQ(kept.pause(0), 5s) << "of an agent that begins anew";
}

TEST(Probes, ToldVerdictsHoldUntilRefuted) {
  ProbeState state(probes_of(*kube::parse_json(all)));
  state.resume(true, true);
  EXPECT_EQ(state.health(), (ProbeHealth{.started = true, .ready = true}));
  EXPECT_FALSE(state.wanted(0));  // it has started once
  EXPECT_TRUE(state.wanted(1));
  for (int i = 0; i < 2; ++i) state.record(1, false);
  EXPECT_TRUE(state.health().ready);
  state.record(1, false);
  EXPECT_FALSE(state.health().ready);

  ProbeState fresh(probes_of(*kube::parse_json(all)));
  fresh.resume(false, true);  // ready without a start is not believed
  EXPECT_EQ(fresh.health(), (ProbeHealth{.started = false, .ready = false}));
}

TEST(ProbeSpecs, ReadPortsPathsAndDefaults) {
  const auto probes =
      probes_of(*kube::parse_json(R"({"ports": [{"name": "web", "containerPort": 8080}], "readinessProbe": {"httpGet": {"port": "web", "path": "ok"}},
                                                      "livenessProbe": {"tcpSocket": {"port": 22}, "periodSeconds": 3}})"));
  ASSERT_EQ(probes.size(), 2U);
  EXPECT_EQ(probes[0].port, 8080);
  EXPECT_EQ(probes[0].path, "/ok");
  EXPECT_EQ(probes[0].period, std::chrono::seconds(10));
  EXPECT_EQ(probes[1].port, 22);
  EXPECT_TRUE(probes[1].path.empty());
  EXPECT_EQ(probes[1].period, std::chrono::seconds(3));
}

}  // namespace
}  // namespace fairlead::node
