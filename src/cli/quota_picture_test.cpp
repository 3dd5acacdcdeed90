// SPDX-License-Identifier: Apache-2.0
#include "cli/quota_picture.h"

#include <gmock/gmock.h>

#include "api/queue_views.h"

namespace fairlead::cli {
namespace {

using kube::Json;
using testing::HasSubstr;

Json yaml(const char* text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return parsed->at(0);
}
const Json& quotas() {
  static const Json view = yaml(R"(
tree:
- kind: Cohort
  name: everybody
  pending: 1
  reserving: 3
  quotas: [{flavor: pool-cpu, resource: cpu, nominal: 110m, used: 100m, borrowed: '0', lent: '0'}]
  children:
  - {kind: ClusterQueue, name: team-a, window: night, weight: 1, share: 0, active: true, pending: 0, reserving: 1, quotas: [{flavor: pool-cpu, resource: cpu, nominal: 60m, used: 20m, borrowed: '0', lent: 30m, borrowingLimit: 30m}]}
  - {kind: ClusterQueue, name: hyperpod-ns-b-clusterqueue, team: b, weight: 0, share: 9223372036854775807, active: true, pending: 1, reserving: 2, quotas: [{flavor: pool-cpu, resource: cpu, nominal: 50m, used: 80m, borrowed: 30m, lent: '0', borrowingLimit: 30m}]}
- {kind: ClusterQueue, name: broken, active: false, reason: FlavorNotFound, pending: 0, reserving: 0, quotas: []}
)");
  return view;
}

TEST(QuotaPicture, IsATreeWithBars) {
  EXPECT_EQ(draw_quotas(quotas(), {.width = 80, .unicode = false}),
            "everybody  3 run, 1 wait\n"
            "|  pool-cpu cpu     ###################..  100m of 110m\n"
            "|- team-a  1 run  weight 1, share 0  window \"night\"\n"
            "|     pool-cpu cpu  #######~~~~~~~~~~~...    20m of 60m  30m lent may borrow 30m\n"
            "`- hyperpod-ns-b-clusterqueue  team b  2 run, 1 wait  weight 0, share endless\n"
            "      pool-cpu cpu  #############++++++++    80m of 50m  30m borrowed of 30m\n"
            "broken  0 run  FlavorNotFound\n"
            "# own use  + borrowed  ~ lent to others  . idle\n");
}

TEST(QuotaPicture, SaysWhatAWeightFollows) {
  Json view = quotas();
  view.child("tree").items()[0].child("children").items()[0].set("weight", 0.571).set("writtenWeight", 1).set("usedLately", 0.82).set("due", 0.5);
  EXPECT_THAT(draw_quotas(view, {.width = 120, .unicode = false}), testing::HasSubstr("weight 0.571 (1 as written; used 82% lately, 50% is its part), share 0"));
}

TEST(QuotaPicture, FitsIntoAnyWidth) {
  for (int width = 40; width < 140; width += 7)
    for (const bool unicode : {true, false}) {
      const std::string picture = draw_quotas(quotas(), {.width = width, .color = true, .unicode = unicode});
      for (std::size_t at = 0; at < picture.size();) {
        const auto end = picture.find('\n', at);
        EXPECT_LE(columns_of(picture.substr(at, end - at)), std::max(width, 60)) << picture;
        at = end + 1;
      }
    }
  EXPECT_EQ(draw_quotas(quotas(), {.width = 80, .unicode = false}).find('\x1b'), std::string::npos);
}

TEST(QuotaPicture, OneQueueTeamOrCohort) {
  EXPECT_EQ(api::part_of_quotas(quotas(), "team-a")["tree"].items().at(0)["name"].string(), "team-a");
  EXPECT_EQ(api::part_of_quotas(quotas(), "b")["tree"].items().at(0)["name"].string(), "hyperpod-ns-b-clusterqueue");
  EXPECT_EQ(api::part_of_quotas(quotas(), "everybody")["tree"].items().at(0)["children"].items().size(), 2U);
  EXPECT_TRUE(api::part_of_quotas(quotas(), "nobody").is_null());
  EXPECT_EQ(api::part_of_quotas(quotas(), "")["tree"].items().size(), 2U);
}

TEST(QuotaPicture, NamesCannotMoveTheCursor) {
  Json view = quotas();
  view.child("tree").items()[0].set("name", "a\x1b[2J");
  EXPECT_EQ(draw_quotas(view, {.width = 80, .unicode = false}).find('\x1b'), std::string::npos);
}

const Json& line() {
  static const Json view = yaml(R"(
workloads:
- {queue: a, position: 1, namespace: lab, name: job-x-1, owner: {kind: Job, name: x}, localQueue: door, priority: 5, created: '2026-11-22T10:00:00Z', state: Promised, waitsFor: those that were pre-empted for it to stop, asks: {cpu: '2'}}
- {queue: a, position: 2, namespace: lab, name: u, localQueue: door, priority: 0, created: '2026-11-22T09:00:00Z', state: Waiting, waitsFor: '2 cpu in f0: borrowingLimit of ClusterQueue a (3)', asks: {cpu: '2'}}
- {queue: '', namespace: other, name: lost, localQueue: gone, priority: 0, created: '2026-11-22T09:00:00Z', state: NotQueued, waitsFor: LocalQueue gone doesn't exist, asks: {}}
- {queue: a, namespace: lab, name: z, localQueue: door, priority: 0, created: '2026-11-22T09:00:00Z', since: '2026-11-22T09:59:00Z', state: Stopping, waitsFor: '', asks: {cpu: '4'}, flavors: {cpu: [f0]}}
)");
  return view;
}

TEST(QueuePicture, IsALineWithWhatEachWaitsFor) {
  const Instant now = *parse_time("2026-11-22T10:01:00Z");
  EXPECT_EQ(draw_queue(api::part_of_queue(line(), {}), now, {.width = 90, .unicode = false}),
            "#  QUEUE  WAITING     PRIO  AGE  WAITS FOR\n"
            "1  a      lab/x          5  60s  those that were pre-empted for it to stop\n"
            "2  a      lab/u          0  61m  2 cpu in f0: borrowingLimit of ClusterQueue a (3)\n"
            "-  -      other/lost     0  61m  LocalQueue gone doesn't exist\n");
  EXPECT_THAT(draw_queue(api::part_of_queue(line(), {.all = true}), now, {.width = 90, .unicode = false}), HasSubstr("\n\nQUEUE  RUNNING  PRIO  FOR  HAS\na      lab/z       0   2m  4 cpu on f0 (stopping)\n"));
}

TEST(QueuePicture, IsFiltered) {
  EXPECT_EQ(api::part_of_queue(line(), {.space = "other"})["workloads"].items().size(), 1U);
  EXPECT_EQ(api::part_of_queue(line(), {.queue = "door"})["workloads"].items().size(), 2U);
  EXPECT_EQ(api::part_of_queue(line(), {.queue = "a", .all = true})["workloads"].items().size(), 3U);
}

}  // namespace
}  // namespace fairlead::cli
