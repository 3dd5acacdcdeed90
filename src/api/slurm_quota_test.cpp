// SPDX-License-Identifier: Apache-2.0
#include "api/slurm_quota.h"

#include <gmock/gmock.h>

namespace fairlead::api {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

SlurmQuota read(const std::string& quota) {
  auto parsed = kube::parse_yaml("{metadata: {name: demo, namespace: slurm}, spec: {extensions: {quota: " + quota + "}}}");
  EXPECT_TRUE(parsed) << parsed.error().message;
  return read_slurm_quota(parsed->at(0));
}

TEST(SlurmQuotas, AccountsHaveQueues) {
  const SlurmQuota quota = read("{accounts: [{account: Vision, team: vision}, {account: '*', queue: rest, priorityClass: low}]}");
  EXPECT_TRUE(quota.on);
  EXPECT_THAT(quota.problems, IsEmpty());
  EXPECT_EQ(quota.line_of("vision")->space, "hyperpod-ns-vision");
  EXPECT_EQ(quota.line_of("vision")->queue, "hyperpod-ns-vision-localqueue");
  for (const char* other : {"", "speech", "*"}) {
    ASSERT_NE(quota.line_of(other), nullptr) << other;
    EXPECT_EQ(quota.line_of(other)->space + "/" + quota.line_of(other)->queue, "slurm/rest") << other;
  }
  EXPECT_EQ(read("{accounts: [{account: vision, queue: q}]}").line_of(""), nullptr);
  EXPECT_FALSE(read("null").on);
}

TEST(SlurmQuotas, WhatIsWrongIsNamedWithItsField) {
  struct Row { const char* quota; const char* problem; };
  for (const Row row : {Row{"{}", "spec.extensions.quota.accounts: a list is expected"}, Row{"{accounts: [{queue: q}]}", "accounts[0].account"}, Row{"{accounts: [{account: a}]}", "accounts[0].queue"},
                        Row{"{accounts: [{account: a, queue: q}, {account: A, queue: q}]}", "\"a\" is there twice"}, Row{"{accounts: [{account: a, team: t, queue: q}]}", "accounts[0].team"},
                        Row{"{accounts: [{account: a, queue: q, que: q}]}", "accounts[0].que: there is no such field"}, Row{"{accounts: [], hold: true}", "spec.extensions.quota.hold: there is no such field"}, Row{"{accounts: [7]}", "accounts[0].account"}}) {
    const SlurmQuota quota = read(row.quota);
    EXPECT_TRUE(quota.on) << row.quota;
    ASSERT_FALSE(quota.problems.empty()) << row.quota;
    EXPECT_THAT(quota.problems.front(), HasSubstr(row.problem));
  }
}

}  // namespace
}  // namespace fairlead::api
