// SPDX-License-Identifier: Apache-2.0
#include "slurm/control/active_check_controller.h"

#include <gmock/gmock.h>

#include "api/node_set.h"
#include "kube/fenced_api.h"
#include "kube/tiny_api.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::IsEmpty;

struct Row {
  const char *name, *spec;
  bool cluster;
  const char* reason;
};
class ActiveChecks : public testing::TestWithParam<Row> {};
TEST_P(ActiveChecks, AreNeverSilentlyWithoutEffect) {
  const Json check = kube::parse_yaml(std::string("{metadata: {name: c, namespace: lab, generation: 4}, spec: {slurmClusterRefName: demo, ") + GetParam().spec + "}}")->at(0);
  const Json told = told_active_check(check, GetParam().cluster, Instant(std::chrono::hours(500'000)));
  EXPECT_EQ((*kube::find_condition(told, "Scheduled"))["reason"].string(), GetParam().reason);
  EXPECT_EQ(told["status"]["observedGeneration"].integer(), 4);
  EXPECT_EQ(told_active_check(told, GetParam().cluster, Instant(std::chrono::hours(500'001))), told);
}
INSTANTIATE_TEST_SUITE_P(Rows, ActiveChecks,
                         testing::Values(Row{"works_later", "checkType: slurmJob, slurmJobSpec: {sbatchScript: '#!/bin/sh'}, suspend: false", true, "NotInEffect"}, Row{"suspended", "suspend: true, runAfterCreation: false", true, "Suspended"},
                                         Row{"suspended_but_once", "suspend: true, runAfterCreation: true", true, "NotInEffect"}, Row{"no_cluster", "suspend: false", false, "NoCluster"},
                                         Row{"no_script", "checkType: slurmJob, suspend: false", true, "NothingToRun"}),
                         [](const auto& row) { return row.param.name; });

TEST(ActiveCheckController, TellsWithinWhatItDeclares) {
  ManualClock clock{Instant(std::chrono::hours(500'000))};
  kube::TinyApi api;
  kube::CheckedApi checked{api, kube::full_access(ActiveCheckController(api, clock))};
  ActiveCheckController controller(checked, clock);
  controller.start(api);
  ASSERT_TRUE(api.create(api::kActiveChecks, kube::parse_yaml("{metadata: {name: c, namespace: lab}, spec: {slurmClusterRefName: demo, suspend: false}}")->at(0)));
  ASSERT_TRUE(controller.reconcile({"lab", "c"}));
  EXPECT_EQ((*kube::find_condition(api.all("activechecks").at({"lab", "c"}), "Scheduled"))["reason"].string(), "NoCluster");
  EXPECT_THAT(checked.refusals(), IsEmpty());
  ASSERT_TRUE(controller.reconcile({"lab", "gone"}));
}

}  // namespace
}  // namespace fairlead::slurm
