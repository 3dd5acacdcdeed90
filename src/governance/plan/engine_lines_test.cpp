// SPDX-License-Identifier: Apache-2.0
// Lines of a queue (LocalQueues) that go by what they used lately.
#include <gtest/gtest.h>

#include <algorithm>

#include "governance/plan/engine.h"

namespace fairlead::governance {
namespace {

using Uids = std::vector<std::uint64_t>;

class Lines : public testing::TestWithParam<bool> {
 protected:
  Lines()
      : engine_({.fair = GetParam(),
                 .nodes = {{.name = "q", .parent = "all", .leaf = true, .quotas = {{{"h200", "gpu"}, {4, unlimited, unlimited}}}}},
                 .queues = {{.name = "q", .policies = {.within_queue = PreemptionPolicy::LowerPriority}, .groups = {{{"gpu"}, {"h200"}}}}}}) {}
  JobId submit(const std::string& line, std::uint64_t uid, std::int64_t priority = 0, Amount gpus = 1) {
    return engine_.submit(engine_.define({.queue = "q", .priority = priority, .line = line, .pod_sets = {{.total = {{"gpu", gpus}}, .barred = {}}}}), {0, uid}, static_cast<std::int64_t>(uid));
  }
  Uids drained(EngineDecision::Kind kind) {
    std::vector<EngineDecision> out;
    engine_.drain(out);
    Uids uids;
    for (const EngineDecision& one : out)
      if (one.kind == kind) uids.push_back(engine_.uid(one.job).low);
    return uids;
  }
  ContinuousEngine engine_;
};
INSTANTIATE_TEST_SUITE_P(Order, Lines, testing::Bool(), [](const auto& fair) { return fair.param ? "by_share" : "classical"; });

TEST_P(Lines, WhoUsedLessGoesFirstWhateverThePriority) {
  engine_.set_line("x/heavy", {.used = {{"gpu", 0.5}, {"cpu", 0.1}}, .per_unit = {}});
  engine_.set_line("x/light", {.used = {{"gpu", 0.1}, {"cpu", 0.4}}, .per_unit = {}});
  for (std::uint64_t i = 0; i < 4; ++i) submit("x/heavy", 10 + i, 9), submit("x/light", 20 + i);
  EXPECT_EQ(engine_.in_line("q").size(), 8u);
  EXPECT_EQ(engine_.uid(engine_.in_line("q").front()).low, 20u);
  EXPECT_EQ(drained(EngineDecision::Kind::Admitted), (Uids{20, 21, 22, 23}));
}

TEST_P(Lines, ABurstOfOneDoesNotSlipIn) {
  for (const char* line : {"x/a", "x/b"}) engine_.set_line(line, {.used = {{"gpu", 0.1}}, .per_unit = {{"gpu", 0.01}}});
  for (std::uint64_t i = 0; i < 4; ++i) submit("x/a", 10 + i);
  for (std::uint64_t i = 0; i < 4; ++i) submit("x/b", 20 + i);
  EXPECT_EQ(drained(EngineDecision::Kind::Admitted), (Uids{10, 20, 11, 21}));  // each that starts counts at once
}

TEST_P(Lines, OfNoWeightIsLastAndTheUntoldAreFirst) {
  engine_.set_line("x/last", {.last = true, .used = {}, .per_unit = {}});
  engine_.set_line("x/some", {.used = {{"gpu", 0.2}}, .per_unit = {}});
  submit("x/last", 1, 9), submit("x/some", 2), submit("x/new", 3);
  EXPECT_EQ(drained(EngineDecision::Kind::Admitted), (Uids{3, 2, 1}));
}

TEST_P(Lines, AnotherOrderCountsFromTheNextRoomOn) {
  const JobId all = submit("x/a", 1, 0, 4);
  EXPECT_EQ(drained(EngineDecision::Kind::Admitted), Uids{1});
  submit("x/a", 10), submit("x/b", 20), submit("x/a", 11), submit("x/b", 21), submit("x/c", 30);
  EXPECT_EQ(drained(EngineDecision::Kind::Admitted), Uids{});
  engine_.set_line("x/a", {.used = {{"gpu", 0.2}}, .per_unit = {}});
  engine_.set_line("x/b", {.used = {{"gpu", 0.1}}, .per_unit = {}});
  engine_.set_line("x/c", {.used = {{"gpu", 0.3}}, .per_unit = {}});
  EXPECT_EQ(drained(EngineDecision::Kind::Admitted), Uids{});
  ContinuousEngine fork(engine_);
  engine_.leave(all);
  EXPECT_EQ(drained(EngineDecision::Kind::Admitted), (Uids{20, 21, 10, 11}));
  std::swap(engine_, fork);
  engine_.leave(all);
  EXPECT_EQ(drained(EngineDecision::Kind::Admitted), (Uids{20, 21, 10, 11})) << "a fork knows it too";
}

TEST_P(Lines, WhoUsedMostLosesFirst) {
  submit("x/a", 1, 0), submit("x/b", 2, 0), submit("x/a", 3, 1), submit("x/b", 4, 1);
  EXPECT_EQ(drained(EngineDecision::Kind::Admitted).size(), 4u);
  engine_.set_line("x/a", {.used = {{"gpu", 0.4}}, .per_unit = {}});
  engine_.set_line("x/b", {.used = {{"gpu", 0.2}}, .per_unit = {}});
  submit("x/b", 9, 5, 3);
  EXPECT_EQ(drained(EngineDecision::Kind::Preempted), (Uids{1, 3, 2}));  // of one line by priority
}

}  // namespace
}  // namespace fairlead::governance
