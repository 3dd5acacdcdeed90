// SPDX-License-Identifier: Apache-2.0
#include "iam/simulate.h"

#include <gmock/gmock.h>

namespace fairlead::iam {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Simulate, SaysTheDecisionAndEachStatement) {
  const auto policy = read_policy(R"({"Version":"2012-10-17","Statement":[{"Sid":"Read","Effect":"Allow","Action":"s3:Get*","Resource":"*"},{"Effect":"Deny","Action":"s3:GetObject","Resource":"arn:aws:s3:::keep/*"}]})", PolicyKind::Identity);
  ASSERT_TRUE(policy);
  const Bundle bundle({{"a.json", *policy}}, PolicyKind::Identity);
  Call call{.caller = *read_caller("arn:aws:iam::111122223333:user/ada"), .action = "s3:GetObject", .resource = "arn:aws:s3:::b/x", .resource_account = "111122223333", .keys = {}};
  fill_keys(call);
  EXPECT_EQ(kube::print_json(simulate(call, {.identity = &bundle})),
            R"({"action":"s3:GetObject","resource":"arn:aws:s3:::b/x","caller":"arn:aws:iam::111122223333:user/ada","decision":"allowed","reason":"allowed by a.json, statement Read","statements":[)"
            R"({"from":"identity","document":"a.json","statement":1,"sid":"Read","effect":"Allow","verdict":"applies"},)"
            R"({"from":"identity","document":"a.json","statement":2,"effect":"Deny","verdict":"otherResource","detail":"it is about other resources"}]})");
}

TEST(Simulate, KeysAndRolesAskTheirOwnPolicy) {
  EXPECT_TRUE(resource_must_allow("KMS:Decrypt"));
  EXPECT_TRUE(resource_must_allow("sts:AssumeRoleWithWebIdentity"));
  for (const char* action : {"sts:TagSession", "sts:SetSourceIdentity", "sts:SetContext"}) EXPECT_TRUE(resource_must_allow(action));
  EXPECT_FALSE(resource_must_allow("sts:GetCallerIdentity"));
}

TEST(Simulate, Doubts) {
  const auto said = [](const std::string& text, PolicyKind kind) {
    const auto policy = read_policy(text, kind);
    EXPECT_TRUE(policy) << policy.error().message;
    return doubts(*policy, kind);
  };
  EXPECT_THAT(said(R"({"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"s3:*","Resource":"*","Condition":{"StringEquals":{"aws:UserName":"a"}}}})", PolicyKind::Identity), ElementsAre());
  EXPECT_THAT(said(R"({"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"s3:*","Resource":"*","Condition":{"StringEquals":{"aws:UserNmae":"a"}}}})", PolicyKind::Identity), ElementsAre(HasSubstr("aws:UserNmae is known")));
  EXPECT_THAT(said(R"({"Statement":{"Sid":"Home","Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::${aws:username}"}})", PolicyKind::Identity), ElementsAre(HasSubstr("statement Home: its ${...}")));
  EXPECT_THAT(said(R"({"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"*","Resource":"*"}})", PolicyKind::Identity), ElementsAre(HasSubstr("everything on everything")));
  EXPECT_THAT(said(R"({"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":"*","Action":"s3:*"}})", PolicyKind::Resource), ElementsAre(HasSubstr("lets everybody in")));
}

}  // namespace
}  // namespace fairlead::iam
