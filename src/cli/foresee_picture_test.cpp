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
const Look ascii{.width = 100, .unicode = false};

TEST(EtaPicture, ARangeAndWhatItComesFrom) {
  const Json view = yaml(R"(
namespace: team-b
name: job-b2-1
owner: job/b2
queue: team-b
state: Waiting
position: 1
waitsFor: '5m cpu in pool-cpu: borrowingLimit of ClusterQueue team-b (25m)'
starts: {notBefore: '2026-11-23T14:05:00Z', notBeforeSeconds: 1200, notAfter: '2026-11-23T15:30:10Z', notAfterSeconds: 6300, known: true}
possible: true
dependsOn:
- {namespace: team-b, name: x, owner: job/b1, queue: team-b, state: Running, runs: {leastSeconds: 1200, mostSeconds: 1200}, known: true, from: fairlead.dev/run-time 2h}
- {namespace: team-b, name: b3, queue: team-b, state: Waiting, runs: {leastSeconds: 0, mostSeconds: 60}, known: true, from: activeDeadlineSeconds 60}
unknown: 0
)");
  EXPECT_EQ(draw_eta(view, ascii),
            "job/b2 in team-b starts in 20m to 105m (2026-11-23 14:05 UTC to 2026-11-23 15:30 UTC)\n"
            "Position 1 of ClusterQueue team-b\n"
            "Waits for 5m cpu in pool-cpu: borrowingLimit of ClusterQueue team-b (25m)\n"
            "\n"
            "How long others run\n"
            "  team-b/b1  runs             ends in 20m     fairlead.dev/run-time 2h\n"
            "  team-b/b3  waits before it  runs up to 60s  activeDeadlineSeconds 60\n"
            "\n"
            "If nothing else is submitted, and nobody changes quotas.\n");
}

TEST(EtaPicture, WhatIsUnknownIsSaidToBe) {
  const auto first_line = [](const char* text) {
    const std::string all = draw_eta(yaml(text), ascii);
    return all.substr(0, all.find('\n'));
  };
  EXPECT_EQ(first_line("{namespace: a, name: w, state: Waiting, possible: true, starts: {notBefore: '2026-11-23T14:05:00Z', notBeforeSeconds: 0, known: false}, unknown: 1}"), "workload/w in a: when it starts is unknown");
  EXPECT_EQ(first_line("{namespace: a, name: w, state: Waiting, possible: true, starts: {notBefore: '2026-11-23T14:05:00Z', notBeforeSeconds: 60, known: false}, unknown: 1}"), "workload/w in a starts not before 2026-11-23 14:05 UTC (in 60s); how long after that is unknown");
  EXPECT_EQ(first_line("{namespace: a, name: w, state: Waiting, possible: false, starts: {known: false}, unknown: 0}"), "workload/w in a does not start, whoever ends");
  EXPECT_EQ(first_line("{namespace: a, name: w, state: Running, ends: {notBeforeSeconds: 0, known: false}}"), "workload/w in a runs; when it ends is unknown");
  EXPECT_EQ(first_line("{namespace: a, name: w, state: Running, ends: {notBeforeSeconds: 0, notAfterSeconds: 60, notAfter: '2026-11-23T14:05:00Z', known: true}}"), "workload/w in a runs, and ends within 60s (by 2026-11-23 14:05 UTC)");
  EXPECT_EQ(first_line("{namespace: a, name: w, state: NotQueued, message: \"LocalQueue x doesn't exist\"}"), "workload/w in a stands in no queue: LocalQueue x doesn't exist");
  EXPECT_EQ(first_line("{namespace: a, name: w, state: Finished}"), "workload/w in a has ended");
}

TEST(WhatIfPicture, WhoStartsWhoStopsWhoMoves) {
  const Json view = yaml(R"(
changes: [{kind: ClusterQueue, name: team-b, change: Changed}, {kind: Job, namespace: team-a, name: a2, change: Created}]
problems: [{kind: ComputeQuota, name: green, reason: OverCapacity, message: "cpu of t: 11 wanted"}]
starts: [{namespace: team-a, name: job-a2-1, owner: job/a2, queue: team-a, after: Running, onceStopped: [{namespace: team-b, name: x, owner: job/b2}]}]
stops: [{namespace: team-b, name: x, owner: job/b2, queue: team-b, before: Running, after: Waiting, position: 1, reason: InCohortReclamation, for: {namespace: team-a, name: job-a2-1, owner: job/a2}}]
waits: []
moves: [{namespace: team-b, name: b3, queue: team-b, before: Waiting, after: Waiting, positionBefore: 1, position: 2}]
leaves: [{namespace: team-b, name: b4, queue: team-b, before: Waiting}]
settled: true
)");
  EXPECT_EQ(draw_whatif(view, ascii),
            "  - With ClusterQueue team-b (changed), Job team-a/a2 (new)\n"
            "  - ComputeQuota green: OverCapacity: cpu of t: 11 wanted\n"
            "\n"
            "Would start\n"
            "  team-a/a2  team-a  new, once team-b/b2 has stopped\n"
            "\n"
            "Would be stopped\n"
            "  team-b/b2  team-b  for team-a/a2 (InCohortReclamation); then at position 1\n"
            "\n"
            "Would leave the line\n"
            "  team-b/b4  team-b  gone\n"
            "\n"
            "Would have another position\n"
            "  team-b/b3  team-b  position 2 instead of 1\n"
            "Nothing was written.\n");
}

TEST(WhatIfPicture, NoEffectIsSaid) {
  EXPECT_EQ(draw_whatif(yaml("{changes: [{kind: ClusterQueue, name: b, change: Unchanged}], problems: [], starts: [], stops: [], waits: [], moves: [], leaves: [], settled: true}"), ascii),
            "  - With ClusterQueue b (as it is)\nNobody would start, stop or have another position.\nNothing was written.\n");
}

}  // namespace
}  // namespace fairlead::cli
