// SPDX-License-Identifier: Apache-2.0
#include "api/instance_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairlead::api {
namespace {

using testing::HasSubstr;

kube::Json node_with(const char* pods) { return kube::Json::object({{"status", kube::Json::object({{"allocatable", kube::Json::object({{"pods", pods}})}})}}); }

TEST(MostPods, AreThoseOfTheTableOrAValueOfOurs) {
  struct Row {
    const char* type;
    int most;
    bool documented;
  };
  for (const Row& row : {Row{"ml.p5.48xlarge", 49, true}, Row{"ml.g5.xlarge", 14, true}, Row{"ml.c5.large", 9, true}, Row{"ml.t3.medium", 5, true}, Row{"ml.c6i.large", 9, false}, Row{"ml.c6i.2xlarge", 14, false}, Row{"ml.r6i.4xlarge", 29, false}, Row{"ml.p5en.48xlarge", 49, false}}) {
    const InstanceType* type = find_instance_type(row.type);
    ASSERT_NE(type, nullptr) << row.type;
    EXPECT_EQ(most_pods(*type), row.most) << row.type;
    EXPECT_EQ(type->max_pods > 0, row.documented) << row.type;
  }
  // Our rule is that of the rows that are documented, but for a few.
  int documented = 0, alike = 0;
  for (InstanceType type : instance_types()) {
    if (type.max_pods == 0) continue;
    ++documented;
    const int said = type.max_pods;
    type.max_pods = 0;
    alike += most_pods(type) == said;
  }
  EXPECT_EQ(documented, 57);
  EXPECT_EQ(alike, 53);
}

TEST(MostPods, AreHeldAgainstWhatTheNodeTakes) {
  const InstanceType& g5 = *find_instance_type("ml.g5.xlarge");
  EXPECT_EQ(why_too_many_pods(g5, node_with("14")), "");
  EXPECT_EQ(why_too_many_pods(g5, node_with("9")), "");
  EXPECT_EQ(why_too_many_pods(g5, kube::Json::object()), "") << "who places pods takes that for none";
  EXPECT_THAT(why_too_many_pods(g5, node_with("15")), HasSubstr("ml.g5.xlarge holds 14 pods at most; this machine's kubelet takes 15: set maxPods: 14"));
  EXPECT_THAT(why_too_many_pods(*find_instance_type("ml.c6i.large"), node_with("110")), HasSubstr("9 pods at most (a value of Fairlead's: HyperPod documents none)"));
}

}  // namespace
}  // namespace fairlead::api
