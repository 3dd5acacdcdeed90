// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "cli/quota_picture.h"

namespace fairlead::cli {
namespace {

using kube::Json;

Json yaml(const char* text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return parsed->at(0);
}

TEST(ExplainPicture, SaysWhoseLimitWhoHoldsItAndWhatHelps) {
  const Json view = yaml(R"(
namespace: team-b
name: job-b2-1
owner: job/b2
queue: team-b
priority: 0
state: Waiting
position: 1
waitsFor: '5m cpu in pool-cpu: borrowingLimit of ClusterQueue team-b (25m)'
missing: [{flavor: pool-cpu, resource: cpu, asked: 40m, available: 35m, missing: 5m, never: false, limit: {kind: ClusterQueue, name: team-b, field: borrowingLimit, amount: 25m}, notLent: [{kind: ClusterQueue, name: team-c, amount: 10m}]}]
heldBy: [{namespace: team-b, name: job-b1-1, owner: job/b1, queue: team-b, priority: 0, amount: 40m, borrowed: 2m}]
heldByMore: 3
wouldStartIt:
- {ending: [{namespace: team-b, name: job-b1-1, owner: job/b1}]}
- {changes: [{kind: ClusterQueue, name: team-b, field: 'spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit', from: 25m, to: 30m, about: cpu in pool-cpu}]}
- {changes: [{kind: ClusterQueue, name: team-b, field: spec.preemption.reclaimWithinCohort, from: Never, to: Any}], stops: [{namespace: team-a, name: x}, {namespace: team-a, name: z}]}
)");
  EXPECT_EQ(draw_explanation(view, {.width = 80, .unicode = false}),
            "job/b2 in team-b waits for 5m cpu in pool-cpu: borrowingLimit of ClusterQueue team-b (25m)\n"
            "Position 1 of ClusterQueue team-b, priority 0\n"
            "\n"
            "  FLAVOR    RESOURCE  ASKS  LEFT  MISSING  LIMIT\n"
            "  pool-cpu  cpu        40m   35m       5m  borrowingLimit 25m of team-b\n"
            "  - ClusterQueue team-c has 10m idle that it does not lend\n"
            "\n"
            "Who holds it\n"
            "  team-b/b1  40m  team-b  2m of it borrowed\n"
            "  and 3 smaller ones\n"
            "\n"
            "It would get its quota if\n"
            "  - team-b/b1 ends\n"
            "  - borrowingLimit of cpu in pool-cpu in ClusterQueue team-b: 30m instead of 25m\n"
            "  - spec.preemption.reclaimWithinCohort in ClusterQueue team-b: Any instead of\n"
            "    Never (this stops team-a/x and team-a/z)\n");
}

TEST(ExplainPicture, OneThatRuns) {
  const Json view = yaml(R"(
namespace: b
name: w
queue: b
priority: 3
state: Running
has: [{resource: cpu, flavor: f0, amount: '4', borrowed: '3'}]
couldBeTakenBy: [{queue: a, forItsOwnQuota: true}, {queue: b, forItsOwnQuota: false, priorityAbove: 3}]
)");
  EXPECT_EQ(draw_explanation(view, {.width = 80, .unicode = false}),
            "workload/w in b has its quota of ClusterQueue b, priority 3\n"
            "\n"
            "  f0  cpu  4  3 of it borrowed\n"
            "\n"
            "Could be taken by new work of\n"
            "  - ClusterQueue a, which gets its own quota back\n"
            "  - ClusterQueue b, of a priority above 3\n");
}

TEST(ExplainPicture, NamesTheFieldThatIsWrong) {
  EXPECT_EQ(draw_explanation(yaml("{namespace: b, name: w, queue: '', priority: 0, state: NotQueued, message: LocalQueue door doesn't exist, wrong: {kind: Workload, namespace: b, name: w, field: spec.queueName, from: door}}"), {.width = 80, .unicode = false}),
            "workload/w in b stands in no queue: LocalQueue door doesn't exist\n"
            "Look at Workload b/w: spec.queueName is door\n");
}

TEST(ExplainPicture, NamesCannotMoveTheCursor) {
  const Json view = yaml("{namespace: b, name: w, owner: \"job/\\e[2J\", queue: \"q\\e[1m\", priority: 0, state: Waiting, position: 1, waitsFor: \"x\\ez\", heldBy: [{namespace: a, name: \"\\e\", queue: \"\\e\", amount: '1'}], ahead: [{namespace: a, name: \"\\e\"}], wouldStartIt: [{ending: [{namespace: a, name: \"\\e\"}]}]}");
  EXPECT_EQ(draw_explanation(view, {.width = 80, .unicode = false}).find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace fairlead::cli
