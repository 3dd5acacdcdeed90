// SPDX-License-Identifier: Apache-2.0
#include "iam/policy.h"

#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

namespace fairlead::iam {
namespace {

using testing::HasSubstr;

std::string file(const std::string& name) {
  std::ifstream in(std::string(SOURCE_DIR) + "/tests/data/policies/" + name);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Policy, DocumentsThatVolumesNeedAreReadAsTheyAreWritten) {
  for (const char* name : {"attach-volume.json", "detach-volume.json", "csi-driver.json"}) {
    const auto read = read_policy(file(name), PolicyKind::Identity);
    ASSERT_TRUE(read) << name << ": " << read.error().message;
    EXPECT_TRUE(read->variables);
    EXPECT_GE(read->statements.size(), 2u);
  }
  const auto attach = read_policy(file("attach-volume.json"), PolicyKind::Identity);
  EXPECT_EQ(attach->statements[2].actions, (std::vector<std::string>{"ec2:attachvolume", "ec2:describevolume"}));  // an action that nobody knows is no error
  const auto key = read_policy(file("customer-key.json"), PolicyKind::Resource);
  ASSERT_TRUE(key) << key.error().message;
  EXPECT_EQ(key->id, "customer-key");
  ASSERT_EQ(key->statements[1].conditions.size(), 5u);
  EXPECT_EQ(key->statements[1].conditions[2].quantifier, Quantifier::ForAnyValue);
  EXPECT_EQ(key->statements[1].conditions[3].values, std::vector<std::string>{"true"});  // a boolean counts as its text
  EXPECT_FALSE(read_policy(file("customer-key.json"), PolicyKind::Identity));
}

TEST(Policy, OneStatementAndOneTextNeedNoList) {
  const auto read = read_policy(R"({"Statement":{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"NumericLessThan":{"aws:MultiFactorAuthAge":3600}}}})", PolicyKind::Identity);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_FALSE(read->variables);  // no Version: as 2008-10-17
  EXPECT_EQ(read->statements[0].conditions[0].values, std::vector<std::string>{"3600"});
}

TEST(Policy, WhatIsNotInTheGrammarIsRefusedWithItsPlace) {
  struct Case {
    const char* text;
    PolicyKind kind;
    const char* says;
  };
  const auto one = [](const std::string& more) { return R"({"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":"*")" + more + "}]}"; };
  const std::string operation = one(R"(,"Condition":{"StringSounds":{"aws:username":"a"}})"), unknown = one(R"(,"Resources":"*")"), twice = one(R"(,"Effect":"Deny")"), both = one(R"(,"NotAction":"s3:*")"),
                    principal = one(R"(,"Principal":"*")"), number = one(R"(,"Condition":{"NumericEquals":{"s3:max-keys":"ten"}})"), range = one(R"(,"Condition":{"IpAddress":{"aws:SourceIp":"10.0.0.0/33"}})"),
                    date = one(R"(,"Condition":{"DateLessThan":{"aws:CurrentTime":"tomorrow"}})"), null = one(R"(,"Condition":{"NullIfExists":{"aws:username":"true"}})"), boolean = one(R"(,"Condition":{"Bool":{"aws:SecureTransport":"yes"}})"),
                    quantifiers = one(R"(,"Condition":{"ForAllValues:ForAnyValue:StringEquals":{"aws:TagKeys":"a"}})"), none = one(R"(,"Condition":{"StringNotEquals":{"aws:SourceVpc":[]}})"),
                    arn = one(R"(,"Condition":{"ArnLike":{"aws:SourceArn":"cluster/x"}})");
  const Case cases[] = {
      {"{", PolicyKind::Identity, "a policy document is JSON"},
      {"[]", PolicyKind::Identity, "an object with Version and Statement"},
      {R"({"Version":"2012-10-17"})", PolicyKind::Identity, "Statement: a statement, or a list of them"},
      {R"({"Version":"2012-10-18","Statement":[]})", PolicyKind::Identity, "Version: 2012-10-17 or 2008-10-17"},
      {R"({"Versions":"x","Statement":[]})", PolicyKind::Identity, "Versions: unknown"},
      {R"({"Statement":[{"Effect":"allow","Action":"*","Resource":"*"}]})", PolicyKind::Identity, "Statement[0].Effect: Allow or Deny"},
      {R"({"Statement":[{"Action":"*","Resource":"*"}]})", PolicyKind::Identity, "Statement[0].Effect: Allow or Deny"},
      {R"({"Statement":[{"Effect":"Allow","Resource":"*"}]})", PolicyKind::Identity, "Action or NotAction is expected"},
      {R"({"Statement":[{"Effect":"Allow","Action":"*"}]})", PolicyKind::Identity, "Resource or NotResource is expected"},
      {R"({"Statement":[{"Effect":"Allow","Action":[],"Resource":"*"}]})", PolicyKind::Identity, "Statement[0].Action: at least one"},
      {R"({"Statement":[{"Effect":"Allow","Action":["s3:Get*",7],"Resource":"*"}]})", PolicyKind::Identity, "Statement[0].Action[1]: a text"},
      {R"({"Statement":[{"Effect":"Allow","Action":"GetObject","Resource":"*"}]})", PolicyKind::Identity, "SERVICE:ACTION"},
      {R"({"Statement":[{"Effect":"Allow","Action":"*","Resource":"bucket/*"}]})", PolicyKind::Identity, "an ARN or \"*\""},
      {R"({"Statement":[{"Effect":"Allow","Action":"*"}]})", PolicyKind::Resource, "Principal or NotPrincipal is expected"},
      {R"({"Statement":[{"Effect":"Allow","Action":"*","Principal":{"AWS":"arn:aws:iam::111122223333:role/*"}}]})", PolicyKind::Resource, "a principal is named whole"},
      {R"({"Statement":[{"Effect":"Allow","Action":"*","Principal":{"Azure":"x"}}]})", PolicyKind::Resource, "Principal.Azure: unknown"},
      {R"({"Statement":[{"Effect":"Allow","Action":"*","Principal":"ada"}]})", PolicyKind::Resource, "\"ada\""},
      {R"({"Statement":[{"Effect":"Allow","Action":"*","NotPrincipal":{"AWS":"111122223333"}}]})", PolicyKind::Resource, "it goes with Deny only"},
      {operation.c_str(), PolicyKind::Identity, "\"StringSounds\" is no condition operator"},
      {unknown.c_str(), PolicyKind::Identity, "Statement[0].Resources: unknown"},
      {twice.c_str(), PolicyKind::Identity, "stands there twice"},
      {both.c_str(), PolicyKind::Identity, "exclude one another"},
      {principal.c_str(), PolicyKind::Identity, "it names no principal"},
      {number.c_str(), PolicyKind::Identity, "\"ten\": a number is expected"},
      {range.c_str(), PolicyKind::Identity, "\"10.0.0.0/33\": an address or range"},
      {date.c_str(), PolicyKind::Identity, "\"tomorrow\": a time"},
      {null.c_str(), PolicyKind::Identity, "it has no IfExists"},
      {boolean.c_str(), PolicyKind::Identity, "\"yes\": true or false"},
      {quantifiers.c_str(), PolicyKind::Identity, "no condition operator"},
      {none.c_str(), PolicyKind::Identity, "at least one is expected"},
      {arn.c_str(), PolicyKind::Identity, "\"cluster/x\": an ARN"},
  };
  for (const Case& of : cases) {
    const auto read = read_policy(of.text, of.kind);
    ASSERT_FALSE(read) << of.text;
    EXPECT_EQ(read.error().code, Code::Invalid);
    EXPECT_THAT(read.error().message, HasSubstr(of.says)) << of.text;
  }
  EXPECT_FALSE(read_policy(std::string(most_policy_bytes + 1, ' '), PolicyKind::Identity));
}

TEST(Policy, WhoWasDeletedIsReadAndNobody) {
  const auto read = read_policy(R"({"Statement":{"Effect":"Allow","Principal":{"AWS":["AIDACKCEVSQ6C2EXAMPLE","111122223333"]},"Action":"kms:*"}})", PolicyKind::Resource);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->statements[0].principals.size(), 2u);
}

TEST(Policy, Globs) {
  for (const auto& [pattern, text, yes] : {std::tuple("*", "", true), {"", "", true}, {"", "a", false}, {"a*", "a", true}, {"a?", "a", false}, {"*b", "aab", true}, {"a*b*c", "axbxbc", true}, {"a*b*c", "axbxb", false}, {"**", "x", true}, {"?", "", false}, {"caf?", "caf\u00e9", true}, {"a?c", "a\u00e9c", true}, {"??", "\u00e9", false}, {"*b", "a", false}})
    EXPECT_EQ(glob_matches(pattern, text), yes) << pattern << " " << text;
}

}  // namespace
}  // namespace fairlead::iam
