// SPDX-License-Identifier: Apache-2.0
#include "iam/condition.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace fairlead::iam {
namespace {

Truth judge_text(const std::string& operation, const std::string& key, const std::string& values, const Keys& keys) {
  const auto policy = read_policy(fmt::format(R"({{"Version":"2012-10-17","Statement":{{"Effect":"Allow","Action":"*","Resource":"*","Condition":{{"{}":{{"{}":{}}}}}}}}})", operation, key, values), PolicyKind::Identity);
  EXPECT_TRUE(policy) << policy.error().message;
  return policy ? judge(policy->statements[0].conditions[0], keys, true) : Truth::Unknown;
}

Keys some_keys() {
  Keys keys;
  keys.set("aws:UserName", {"ada"});
  keys.set("aws:PrincipalTag/team", {"Vision"});
  keys.set("aws:TagKeys", {"team", "cost"});
  keys.set("s3:max-keys", {"10"});
  keys.set("aws:CurrentTime", {"2026-11-25T12:00:00Z"});
  keys.set("aws:EpochTime", {"1795608000"});
  keys.set("aws:SourceIp", {"10.1.2.3"});
  keys.set("aws:SecureTransport", {"true"});
  keys.set("aws:SourceArn", {"arn:aws:sagemaker:us-east-1:111122223333:cluster/abc"});
  keys.set("aws:RequestTag/odd", {"a*b"});
  keys.set("aws:MultiFactorAuthAge", {"soon"});
  keys.set("aws:VpcSourceIp", {"::ffff:10.0.0.1"});
  keys.set("aws:PrincipalTag/drink", {"caf\u00e9"});
  keys.set("aws:PrincipalTag/range", {"10.0.0.0/16"});
  keys.set("aws:PrincipalTag/arn", {"arn:aws:iam"});
  keys.set("aws:PrincipalTag/none", {""});
  return keys;
}

TEST(Condition, Operators) {
  constexpr Truth yes = Truth::Yes, no = Truth::No, unknown = Truth::Unknown;
  struct Case {
    const char *operation, *key, *values;
    Truth is;
  };
  const Case cases[] = {
      {"StringEquals", "aws:username", R"("ada")", yes}, {"StringEquals", "aws:username", R"(["bob","ada"])", yes}, {"StringEquals", "AWS:USERNAME", R"("Ada")", no}, {"StringEquals", "aws:username", R"("a*")", no},
      {"StringEqualsIgnoreCase", "aws:username", R"("ADA")", yes}, {"StringNotEquals", "aws:username", R"(["bob","ada"])", no}, {"StringNotEquals", "aws:username", R"(["bob","eve"])", yes}, {"StringNotEqualsIgnoreCase", "aws:username", R"("ADA")", no},
      {"StringLike", "aws:username", R"("a?a")", yes}, {"StringNotLike", "aws:username", R"("b*")", yes}, {"StringLike", "aws:username", R"("A*")", no},
      {"StringEquals", "aws:PrincipalTag/Team", R"("Vision")", yes},
      {"NumericEquals", "s3:max-keys", "10", yes}, {"NumericEquals", "s3:max-keys", R"("10.0")", yes}, {"NumericNotEquals", "s3:max-keys", "11", yes}, {"NumericLessThan", "s3:max-keys", "10", no}, {"NumericLessThanEquals", "s3:max-keys", "10", yes},
      {"NumericGreaterThan", "s3:max-keys", "9", yes}, {"NumericGreaterThanEquals", "s3:max-keys", "11", no}, {"NumericLessThan", "s3:max-keys", R"(["1","20"])", yes},
      {"NumericLessThan", "aws:MultiFactorAuthAge", "3600", unknown}, {"NumericNotEquals", "aws:MultiFactorAuthAge", "3600", unknown},  // "soon" is no number
      {"DateGreaterThan", "aws:CurrentTime", R"("2026-11-25T11:59:59Z")", yes}, {"DateLessThan", "aws:CurrentTime", R"("2026-11-25")", no}, {"DateEquals", "aws:EpochTime", R"("2026-11-25T12:00:00Z")", yes}, {"DateNotEquals", "aws:CurrentTime", "1795608000", no},
      {"DateLessThanEquals", "aws:CurrentTime", R"("2026-11-25T12:00:00Z")", yes}, {"DateGreaterThanEquals", "aws:CurrentTime", R"("2026-11-25T13:00:00+01:00")", yes},
      {"IpAddress", "aws:SourceIp", R"("10.0.0.0/8")", yes}, {"IpAddress", "aws:SourceIp", R"("10.1.2.3")", yes}, {"NotIpAddress", "aws:SourceIp", R"(["10.0.0.0/8","::/0"])", no}, {"IpAddress", "aws:SourceIp", R"("2001:db8::/32")", no}, {"IpAddress", "aws:SourceIp", R"("0.0.0.0/0")", yes},
      {"IpAddress", "aws:SourceIp", R"("10.1.2.0/31")", no}, {"IpAddress", "aws:username", R"("10.0.0.0/8")", unknown}, {"NotIpAddress", "aws:username", R"("10.0.0.0/8")", unknown},
      {"Bool", "aws:SecureTransport", "true", yes}, {"Bool", "aws:SecureTransport", R"("false")", no}, {"Bool", "aws:username", "true", unknown},
      {"BinaryEquals", "aws:username", R"("ada")", yes},
      {"ArnLike", "aws:SourceArn", R"("arn:aws:sagemaker:*:111122223333:cluster/*")", yes}, {"ArnEquals", "aws:SourceArn", R"("arn:aws:sagemaker:*:*:cluster/a?c")", yes}, {"ArnNotLike", "aws:SourceArn", R"("arn:aws:eks:*:*:*")", yes},
      {"ArnLike", "aws:SourceArn", R"("arn:aws:*:111122223333:cluster/abc")", no},  // a star does not reach over a colon
      {"ArnLike", "aws:SourceArn", R"("arn:aws:sagemaker:*")", yes}, {"ArnNotLike", "aws:username", R"("arn:aws:eks:*:*:*")", unknown},
      {"IpAddress", "aws:VpcSourceIp", R"("10.0.0.0/8")", yes}, {"StringLike", "aws:PrincipalTag/drink", R"("caf?")", yes}, {"DateLessThan", "aws:CurrentTime", R"("9999-12-31T23:59:59Z")", yes}, {"DateGreaterThan", "aws:CurrentTime", R"(["2026-11","2027"])", yes}, {"DateLessThan", "aws:CurrentTime", R"("2026-11-25T12:01Z")", yes},
      {"IpAddress", "aws:PrincipalTag/range", R"("10.0.0.0/8")", unknown}, {"ArnNotLike", "aws:PrincipalTag/arn", R"("arn:aws:iam::*:role/x")", unknown}, {"ArnLike", "aws:PrincipalTag/arn", R"("arn:aws:iam::*:role/x")", unknown},
      {"ForAllValues:StringEquals", "aws:PrincipalTag/none", R"("team")", yes}, {"ForAnyValue:StringNotEquals", "aws:PrincipalTag/none", R"("team")", no}, {"Null", "aws:PrincipalTag/none", "true", yes},
      {"Bool", "aws:ViaAWSService", "true", unknown}, {"StringEquals", "oidc.example.org/id/x:sub", R"("system:serviceaccount:a:b")", no},
      // keys that are not there
      {"StringEquals", "aws:userid", R"("x")", no}, {"StringNotEquals", "aws:userid", R"("x")", yes}, {"StringEqualsIfExists", "aws:userid", R"("x")", yes}, {"StringEqualsIfExists", "aws:username", R"("x")", no}, {"BoolIfExists", "aws:MultiFactorAuthPresent", "true", yes},
      {"Null", "aws:userid", "true", yes}, {"Null", "aws:userid", "false", no}, {"Null", "aws:username", "true", no}, {"Null", "aws:username", R"("false")", yes},
      // keys that nobody knows: whatever is asked
      {"StringEquals", "aws:UserNmae", R"("ada")", unknown}, {"StringNotEquals", "aws:UserNmae", R"("ada")", unknown}, {"StringEqualsIfExists", "aws:UserNmae", R"("ada")", unknown}, {"Null", "aws:UserNmae", "true", unknown}, {"ForAllValues:StringEquals", "aws:UserNmae", R"("ada")", unknown},
      {"StringEquals", "aws:PrincipalTag/", R"("x")", unknown},
      // keys with several values
      {"ForAllValues:StringEquals", "aws:TagKeys", R"(["team","cost","x"])", yes}, {"ForAllValues:StringEquals", "aws:TagKeys", R"(["team"])", no}, {"ForAnyValue:StringEquals", "aws:TagKeys", R"(["team"])", yes}, {"ForAnyValue:StringEquals", "aws:TagKeys", R"(["x"])", no},
      {"ForAnyValue:StringNotEquals", "aws:TagKeys", R"(["team"])", yes}, {"ForAllValues:StringNotEquals", "aws:TagKeys", R"(["x"])", yes}, {"ForAllValues:StringNotEquals", "aws:TagKeys", R"(["team"])", no},
      {"ForAllValues:StringEquals", "kms:GrantOperations", R"("Decrypt")", yes}, {"ForAnyValue:StringEquals", "kms:GrantOperations", R"("Decrypt")", no}, {"ForAnyValue:StringNotEquals", "kms:GrantOperations", R"("Decrypt")", no}, {"ForAnyValue:StringEqualsIfExists", "kms:GrantOperations", R"("Decrypt")", yes},
      {"StringEquals", "aws:TagKeys", R"("team")", unknown}, {"StringEquals", "aws:TagKeys", R"(["team","cost"])", yes}, {"StringNotEquals", "aws:TagKeys", R"("x")", yes},  // without ForAll or ForAny: only where all agree
      // variables
      {"StringEquals", "aws:username", R"("${aws:username}")", yes}, {"StringLike", "aws:SourceArn", R"("arn:*/${aws:username, 'abc'}")", no}, {"StringEquals", "aws:username", R"("${aws:userid, 'ada'}")", yes},
      {"StringEquals", "aws:username", R"("${aws:userid}")", no}, {"StringNotEquals", "aws:username", R"("${aws:userid}")", unknown}, {"StringNotEquals", "aws:username", R"(["${aws:userid}","ada"])", no}, {"StringEquals", "aws:username", R"("${aws:UserNmae}")", unknown},
      {"StringEquals", "aws:username", R"("${aws:TagKeys}")", unknown}, {"StringLike", "aws:RequestTag/odd", R"("a${*}b")", yes}, {"StringLike", "aws:username", R"("${*}")", no}, {"StringLike", "aws:username", R"("${aws:RequestTag/odd}")", no},
  };
  const Keys keys = some_keys();
  for (const Case& of : cases) EXPECT_EQ(static_cast<int>(judge_text(of.operation, of.key, of.values, keys)), static_cast<int>(of.is)) << of.operation << " " << of.key << " " << of.values;
}

TEST(Condition, AValueOfARequestNeverBecomesAWildcardOrAnotherField) {
  Keys keys;
  keys.set("aws:username", {"*"});
  EXPECT_EQ(arn_matches("arn:aws:s3:::home/${aws:username}/*", "arn:aws:s3:::home/bob/x", keys, true), Truth::No);
  EXPECT_EQ(arn_matches("arn:aws:s3:::home/${aws:username}/*", "arn:aws:s3:::home/*/x", keys, true), Truth::Yes);
  keys.set("aws:username", {"111122223333:role/admin"});
  EXPECT_EQ(arn_matches("arn:aws:iam::${aws:username}:user/x", "arn:aws:iam::111122223333:role/admin:user/x", keys, true), Truth::No);
  EXPECT_EQ(arn_matches("arn:aws:s3:::${aws:username}", "arn:aws:s3:::${aws:username}", keys, false), Truth::Yes);  // version 2008-10-17: no variables
}

TEST(Condition, Arns) {
  const Keys keys;
  struct Case {
    const char *pattern, *arn;
    bool yes;
  };
  const Case cases[] = {{"*", "*", true},
                        {"*", "arn:aws:s3:::b", true},
                        {"arn:aws:s3:::*", "*", false},
                        {"arn:aws:s3:::b/*", "arn:aws:s3:::b/x:y/z", true},
                        {"arn:aws:s3:::b", "arn:aws:s3:::B", false},
                        {"arn:*", "arn:aws:s3:::b", true},
                        {"arn:aws:s3", "arn:aws:s3:::b", true},
                        {"arn:aws:s3", "arn:aws:s30:::b", false},
                        {"arn:aws:*:::b", "arn:aws:s3:::b", true},
                        {"arn:aws:s3:::b", "arn:aws:s3", false},
                        {"arn:aws:ec2:us-east-1:111122223333:volume/*", "arn:aws:ec2:us-east-1:111122223333:volume/vol-1", true},
                        {"arn:aws:ec2:us-east-1:111122223333:volume/*", "arn:aws:ec2:us-east-1:111122223334:volume/vol-1", false}};
  for (const Case& of : cases) EXPECT_EQ(arn_matches(of.pattern, of.arn, keys, true), of.yes ? Truth::Yes : Truth::No) << of.pattern << " " << of.arn;
}

TEST(Condition, AKeyWithoutValuesIsNotThere) {
  Keys keys;
  keys.set("aws:TagKeys", {"a"});
  keys.set("AWS:TAGKEYS", {});
  EXPECT_EQ(keys.find("aws:tagkeys"), nullptr);
}

}  // namespace
}  // namespace fairlead::iam
