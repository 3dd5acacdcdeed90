// SPDX-License-Identifier: Apache-2.0
#include "iam/decide.h"

#include "base/test_rounds.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>

namespace fairlead::iam {
namespace {

using testing::HasSubstr;
using Verdict = StatementView::Verdict;

Document document(const std::string& text, PolicyKind kind = PolicyKind::Identity, const std::string& name = "policy/test") {
  auto read = read_policy(text, kind);
  EXPECT_TRUE(read) << read.error().message;
  return {name, read ? std::move(*read) : Policy{}};
}
Document from_file(const std::string& name, PolicyKind kind) {
  std::ifstream in(std::string(SOURCE_DIR) + "/tests/data/policies/" + name);
  EXPECT_TRUE(in.good()) << name;
  return document({std::istreambuf_iterator<char>(in), {}}, kind, name);
}
Bundle bundle(const std::string& statements, PolicyKind kind = PolicyKind::Identity) {
  std::vector<Document> all;
  all.push_back(document(fmt::format(R"({{"Version":"2012-10-17","Statement":[{}]}})", statements), kind));
  return {std::move(all), kind};
}
std::string statement(const std::string& effect, const std::string& action, const std::string& resource, const std::string& more = "") { return fmt::format(R"({{"Effect":"{}","Action":"{}","Resource":"{}"{}}})", effect, action, resource, more); }

Call call(const std::string& who, const std::string& action, const std::string& resource = "*") {
  Call out{.caller = *read_caller(who), .action = action, .resource = resource, .resource_account = {}, .keys = {}};
  fill_keys(out);
  return out;
}

// About something of account 111122223333, a bucket for example.
Call call_at_home(const std::string& who, const std::string& action, const std::string& resource) {
  Call out{.caller = *read_caller(who), .action = action, .resource = resource, .resource_account = "111122223333", .keys = {}};
  fill_keys(out);
  return out;
}

const std::string ada = "arn:aws:iam::111122223333:user/ada", role = "arn:aws:iam::111122223333:role/caller-role", session = "arn:aws:sts::111122223333:assumed-role/caller-role/s1", stranger = "arn:aws:iam::444455556666:user/eve";

TEST(Decide, TheDocumentsOfVolumes) {
  std::vector<Document> both;
  both.push_back(from_file("attach-volume.json", PolicyKind::Identity));
  const Bundle attach(std::move(both), PolicyKind::Identity);
  const Attached attached{.identity = &attach};
  const std::string cluster = "arn:aws:sagemaker:us-east-1:111122223333:cluster/abc", volume = "arn:aws:ec2:us-east-1:111122223333:volume/vol-0123456789abcdef0";
  EXPECT_TRUE(decide(call(role, "sagemaker:AttachClusterNodeVolume", cluster), attached).allowed());
  EXPECT_TRUE(decide(call(role, "SageMaker:attachclusternodevolume", cluster), attached).allowed());
  EXPECT_TRUE(decide(call(role, "ec2:AttachVolume", volume), attached).allowed());
  EXPECT_TRUE(decide(call(role, "eks:DescribeCluster", "arn:aws:eks:us-east-1:111122223333:cluster/my-cluster-name"), attached).allowed());
  EXPECT_FALSE(decide(call(role, "eks:DescribeCluster", "arn:aws:eks:us-east-1:111122223333:cluster/other"), attached).allowed());
  EXPECT_FALSE(decide(call(role, "sagemaker:DetachClusterNodeVolume", cluster), attached).allowed());
  EXPECT_FALSE(decide(call(role, "ec2:AttachVolume", "arn:aws:ec2:eu-west-1:111122223333:volume/vol-0123456789abcdef0"), attached).allowed());
  EXPECT_FALSE(decide(call(role, "ec2:DescribeVolumes"), attached).allowed());  // the document says DescribeVolume, which is another action

  std::vector<Document> driver;
  driver.push_back(from_file("csi-driver.json", PolicyKind::Identity));
  const Bundle csi(std::move(driver), PolicyKind::Identity);
  EXPECT_TRUE(decide(call(role, "sagemaker:DetachClusterNodeVolume", cluster), {.identity = &csi}).allowed());
  EXPECT_FALSE(decide(call(role, "sagemaker:DeleteCluster", cluster), {.identity = &csi}).allowed());
}

TEST(Decide, TheKeyOfACustomerIsLentUnderItsConditionsOnly) {
  std::vector<Document> one;
  one.push_back(from_file("customer-key.json", PolicyKind::Resource));
  const Bundle key(std::move(one), PolicyKind::Resource);
  const Attached attached{.resource = &key, .resource_must_allow = true};
  const std::string arn = "arn:aws:kms:us-east-1:111122223333:key/k";
  const auto grant = [&](const std::string& who) {
    Call out = call(who, "kms:CreateGrant", arn);
    out.keys.set("kms:ViaService", {"ec2.us-east-1.amazonaws.com"});
    out.keys.set("kms:EncryptionContextKeys", {"aws:ebs:id"});
    out.keys.set("kms:GrantIsForAWSResource", {"true"});
    out.keys.set("kms:GrantOperations", {"Decrypt"});
    return out;
  };
  EXPECT_TRUE(decide(grant(session), attached).allowed());
  EXPECT_TRUE(decide(grant(role), attached).allowed());
  EXPECT_TRUE(decide(call(session, "kms:DescribeKey", arn), attached).allowed());
  EXPECT_FALSE(decide(grant(ada), attached).allowed());
  EXPECT_FALSE(decide(call(session, "kms:Decrypt", arn), attached).allowed());
  for (const auto& [name, values] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"kms:ViaService", {"s3.us-east-1.amazonaws.com"}}, {"kms:ViaService", {}}, {"kms:CallerAccount", {"444455556666"}}, {"kms:EncryptionContextKeys", {"other"}}, {"kms:EncryptionContextKeys", {}}, {"kms:GrantIsForAWSResource", {"false"}}, {"kms:GrantOperations", {"Decrypt", "Encrypt"}}}) {
    Call changed = grant(session);
    changed.keys.set(name, values);
    EXPECT_FALSE(decide(changed, attached).allowed()) << name;
  }
  // The caller's own policies alone do not open a key.
  const Bundle all = bundle(statement("Allow", "*", "*"));
  EXPECT_FALSE(decide(call(ada, "kms:Decrypt", arn), {.identity = &all, .resource = &key, .resource_must_allow = true}).allowed());
}

TEST(Decide, DenyWinsWhereverItStands) {
  const Bundle allow = bundle(statement("Allow", "s3:*", "*")), deny = bundle(statement("Deny", "s3:Delete*", "arn:aws:s3:::data/*", R"(,"Sid":"Keep")")), everybody = bundle(R"({"Effect":"Deny","Principal":"*","Action":"s3:DeleteObject","Resource":"*"})", PolicyKind::Resource),
               open = bundle(R"({"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"*"})", PolicyKind::Resource);
  const Call wanted = call_at_home(ada, "s3:DeleteObject", "arn:aws:s3:::data/x");
  EXPECT_TRUE(decide(wanted, {.identity = &allow}).allowed());
  const Decision denied = decide(wanted, {.identity = &deny, .resource = &open});
  EXPECT_EQ(denied.outcome, Outcome::ExplicitDeny);
  EXPECT_EQ(denied.reason, "denied by policy/test, statement Keep");
  EXPECT_EQ(decide(wanted, {.identity = &allow, .boundary = &deny}).outcome, Outcome::ExplicitDeny);
  EXPECT_EQ(decide(wanted, {.identity = &allow, .session = &deny}).outcome, Outcome::ExplicitDeny);
  EXPECT_EQ(decide(wanted, {.identity = &allow, .resource = &everybody}).outcome, Outcome::ExplicitDeny);
  EXPECT_EQ(decide(wanted, {}).reason, "no statement allows it");
  EXPECT_EQ(decide(call_at_home("111122223333", "s3:DeleteObject", "arn:aws:s3:::data/x"), {}).outcome, Outcome::Allowed);
  EXPECT_EQ(decide(call_at_home("111122223333", "s3:DeleteObject", "arn:aws:s3:::data/x"), {.identity = &deny}).outcome, Outcome::ExplicitDeny);
}

TEST(Decide, NotActionAndNotResource) {
  const Bundle but_iam = bundle(R"({"Effect":"Allow","NotAction":"iam:*","NotResource":"arn:aws:s3:::secret/*"})");
  EXPECT_TRUE(decide(call_at_home(ada, "s3:GetObject", "arn:aws:s3:::b/x"), {.identity = &but_iam}).allowed());
  EXPECT_FALSE(decide(call(ada, "iam:CreateUser", "arn:aws:iam::111122223333:user/x"), {.identity = &but_iam}).allowed());
  EXPECT_FALSE(decide(call_at_home(ada, "s3:GetObject", "arn:aws:s3:::secret/x"), {.identity = &but_iam}).allowed());
  const Bundle but_home = bundle(R"({"Effect":"Allow","Action":"s3:*","NotResource":"arn:aws:s3:::home/${aws:username}/*"})"), deny_home = bundle(R"({"Effect":"Deny","Action":"s3:*","NotResource":"arn:aws:s3:::home/${aws:username}/*"})");
  EXPECT_FALSE(decide(call_at_home(role, "s3:GetObject", "arn:aws:s3:::home/ada/x"), {.identity = &but_home}).allowed());  // a role has no user name: "not his home" says nothing
  EXPECT_EQ(decide(call_at_home(role, "s3:GetObject", "arn:aws:s3:::home/ada/x"), {.identity = &deny_home}).outcome, Outcome::ExplicitDeny);
  EXPECT_EQ(decide(call_at_home(ada, "s3:GetObject", "arn:aws:s3:::home/ada/x"), {.identity = &deny_home}).outcome, Outcome::ImplicitDeny);
}

TEST(Decide, BoundariesAndSessionsOnlyTakeAway) {
  const Bundle all = bundle(statement("Allow", "*", "*")), few = bundle(statement("Allow", "s3:Get*", "*"));
  EXPECT_TRUE(decide(call(ada, "s3:GetObject"), {.identity = &all, .boundary = &few}).allowed());
  EXPECT_THAT(decide(call(ada, "s3:PutObject"), {.identity = &all, .boundary = &few}).reason, HasSubstr("permissions boundary"));
  EXPECT_FALSE(decide(call(ada, "s3:PutObject"), {.boundary = &all}).allowed());
  EXPECT_THAT(decide(call(session, "s3:PutObject"), {.identity = &all, .session = &few}).reason, HasSubstr("session"));
  // The policy of a resource that names the user, or the very session, is not cut; one that names the role is.
  const auto names = [](const std::string& who) { return bundle(fmt::format(R"({{"Effect":"Allow","Principal":{{"AWS":"{}"}},"Action":"s3:PutObject","Resource":"*"}})", who), PolicyKind::Resource); };
  const Bundle user = names(ada), of_role = names(role), of_session = names(session);
  EXPECT_TRUE(decide(call_at_home(ada, "s3:PutObject", "arn:aws:s3:::b/x"), {.boundary = &few, .resource = &user}).allowed());
  EXPECT_FALSE(decide(call_at_home(session, "s3:PutObject", "arn:aws:s3:::b/x"), {.boundary = &few, .resource = &of_role}).allowed());
  EXPECT_TRUE(decide(call_at_home(session, "s3:PutObject", "arn:aws:s3:::b/x"), {.boundary = &few, .session = &few, .resource = &of_session}).allowed());
  EXPECT_FALSE(decide(call_at_home("arn:aws:sts::111122223333:assumed-role/caller-role/s2", "s3:PutObject", "arn:aws:s3:::b/x"), {.resource = &of_session}).allowed());
}

TEST(Decide, AccountsRolesAndServicesInPoliciesOfResources) {
  const Bundle account = bundle(R"({"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::111122223333:root"},"Action":"kms:*","Resource":"*"})", PolicyKind::Resource), foreign = bundle(R"({"Effect":"Allow","Principal":{"AWS":"444455556666"},"Action":"kms:*","Resource":"*"})", PolicyKind::Resource),
               service = bundle(R"({"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"})", PolicyKind::Resource), all = bundle(statement("Allow", "*", "*"));
  const std::string key = "arn:aws:kms:us-east-1:111122223333:key/k";
  EXPECT_THAT(decide(call(ada, "kms:Decrypt", key), {.resource = &account, .resource_must_allow = true}).reason, HasSubstr("leaves it to the caller's account"));
  EXPECT_TRUE(decide(call(ada, "kms:Decrypt", key), {.identity = &all, .resource = &account, .resource_must_allow = true}).allowed());
  EXPECT_FALSE(decide(call(stranger, "kms:Decrypt", key), {.identity = &all}).allowed());  // of another account: both have to allow
  EXPECT_FALSE(decide(call(stranger, "kms:Decrypt", key), {.resource = &foreign}).allowed());
  EXPECT_TRUE(decide(call(stranger, "kms:Decrypt", key), {.identity = &all, .resource = &foreign}).allowed());
  EXPECT_THAT(decide(call(stranger, "kms:Decrypt", key), {.identity = &all, .resource = &account}).reason, HasSubstr("another account (111122223333)"));
  EXPECT_TRUE(decide(call("ec2.amazonaws.com", "sts:AssumeRole", role), {.resource = &service, .resource_must_allow = true}).allowed());
  EXPECT_FALSE(decide(call("eks.amazonaws.com", "sts:AssumeRole", role), {.resource = &service, .resource_must_allow = true}).allowed());
  EXPECT_FALSE(decide(call("anonymous", "kms:Decrypt", key), {.identity = &all, .resource = &account}).allowed());
  // Excepted from a Deny is only who is named with all that he is.
  const Bundle but_ada = bundle(fmt::format(R"({{"Effect":"Deny","NotPrincipal":{{"AWS":["{}","111122223333"]}},"Action":"*","Resource":"*"}})", ada), PolicyKind::Resource), but_half = bundle(fmt::format(R"({{"Effect":"Deny","NotPrincipal":{{"AWS":["{}"]}},"Action":"*","Resource":"*"}})", ada), PolicyKind::Resource);
  EXPECT_TRUE(decide(call(ada, "kms:Decrypt", key), {.identity = &all, .resource = &but_ada}).allowed());
  EXPECT_FALSE(decide(call(ada, "kms:Decrypt", key), {.identity = &all, .resource = &but_half}).allowed());
  EXPECT_FALSE(decide(call(session, "kms:Decrypt", key), {.identity = &all, .resource = &but_ada}).allowed());
}

TEST(Decide, CallersAreReadOrRefused) {
  EXPECT_EQ(read_caller(session)->role_arn, role);
  EXPECT_EQ(read_caller("arn:aws-cn:sts::111122223333:assumed-role/r/s")->role_arn, "arn:aws-cn:iam::111122223333:role/r");
  EXPECT_EQ(read_caller("111122223333")->type, Caller::Type::Root);
  EXPECT_EQ(read_caller(ada)->account, "111122223333");
  for (const char* text : {"", "ada", "arn:aws:iam::1:user/x", "arn:aws:iam::111122223333:user/", "arn:aws:iam::111122223333:group/g", "arn:aws:sts::111122223333:assumed-role/r", "arn:aws:sts::111122223333:assumed-role/r/", ".amazonaws.com", "arn:"}) EXPECT_FALSE(read_caller(text)) << text;
  Call of = call(ada, "kms:Decrypt", "arn:aws:kms:us-east-1:444455556666:key/k");
  EXPECT_EQ(of.resource_account, "444455556666");
  EXPECT_EQ(*of.keys.find("aws:username"), std::vector<std::string>{"ada"});
  EXPECT_EQ(*of.keys.find("kms:calleraccount"), std::vector<std::string>{"111122223333"});
}

TEST(Decide, EachStatementSaysWhyItHasNoPart) {
  const Bundle some = bundle(statement("Allow", "s3:Put*", "*") + "," + statement("Allow", "s3:Get*", "arn:aws:s3:::b/*") + "," + statement("Allow", "s3:Get*", "*", R"(,"Condition":{"StringEquals":{"aws:userid":"x"}})") + "," +
                             statement("Deny", "s3:Get*", "*", R"(,"Condition":{"StringEquals":{"aws:UserNmae":"x"}})") + "," + statement("Allow", "s3:GetObject", "arn:aws:s3:::a/x"));
  const auto views = some.explain(call_at_home(ada, "s3:GetObject", "arn:aws:s3:::a/x"));
  ASSERT_EQ(views.size(), 5u);
  EXPECT_EQ(views[0].verdict, Verdict::OtherAction);
  EXPECT_EQ(views[1].verdict, Verdict::OtherResource);
  EXPECT_EQ(views[2].verdict, Verdict::ConditionFails);
  EXPECT_EQ(views[2].detail, "StringEquals aws:userid [x]: the call has no such key");
  EXPECT_EQ(views[3].verdict, Verdict::Applies);
  EXPECT_TRUE(views[3].unknown);
  EXPECT_EQ(views[3].detail, "StringEquals aws:UserNmae [x]: no such key is known: it cannot be told, so the Deny holds");
  EXPECT_EQ(views[4].verdict, Verdict::Applies);
}

// ---- What AWS denies, and a simpler reading allows ----

Decision of_one(const std::string& statements, const Call& of) {
  const Bundle made = bundle(statements);
  return decide(of, {.identity = &made});
}

TEST(Decide, NobodyKnowsWhoseABucketIs) {
  const Bundle own = bundle(R"({"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::sagemaker-*","Condition":{"StringEquals":{"aws:ResourceAccount":"${aws:PrincipalAccount}"}}})"), all = bundle(statement("Allow", "*", "*")),
               account = bundle(R"({"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::111122223333:root"},"Action":"s3:*","Resource":"*"})", PolicyKind::Resource);
  const std::string object = "arn:aws:s3:::sagemaker-of-somebody/x";
  EXPECT_FALSE(decide(call(ada, "s3:GetObject", object), {.identity = &own}).allowed());
  EXPECT_THAT(decide(call(ada, "s3:GetObject", object), {.identity = &all}).reason, HasSubstr("nobody knows whose it is"));
  EXPECT_TRUE(decide(call_at_home(ada, "s3:GetObject", object), {.identity = &all}).allowed());
  Call known{.caller = *read_caller(ada), .action = "s3:GetObject", .resource = object, .resource_account = "111122223333", .keys = {}};
  fill_keys(known);
  EXPECT_TRUE(decide(known, {.identity = &own}).allowed());
  EXPECT_FALSE(decide(call(stranger, "s3:GetObject", object), {.identity = &all, .resource = &account}).allowed());
  Call given{.caller = *read_caller(stranger), .action = "s3:GetObject", .resource = object, .resource_account = {}, .keys = {}};
  given.keys.set("aws:ResourceAccount", {"111122223333"});
  fill_keys(given);
  EXPECT_FALSE(decide(given, {.identity = &own}).allowed());
  EXPECT_FALSE(decide(given, {.identity = &all, .resource = &account}).allowed());
  // What belongs to AWS itself is nobody else's.
  EXPECT_TRUE(decide(call(ada, "iam:GetPolicy", "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"), {.identity = &all}).allowed());
}

TEST(Decide, AStarOfADenyReachesOverColons) {
  const std::string all = statement("Allow", "*", "*"), volume = "arn:aws:ec2:us-east-1:111122223333:volume/vol-1";
  EXPECT_EQ(of_one(all + "," + statement("Deny", "ec2:*", "arn:aws:ec2:*:volume/*"), call(ada, "ec2:DeleteVolume", volume)).outcome, Outcome::ExplicitDeny);
  EXPECT_FALSE(of_one(statement("Allow", "ec2:*", "arn:aws:ec2:*:volume/*"), call(ada, "ec2:DeleteVolume", volume)).allowed());
  EXPECT_FALSE(of_one(R"({"Effect":"Allow","Action":"ec2:*","NotResource":"arn:aws:ec2:*:volume/*"})", call(ada, "ec2:DeleteVolume", volume)).allowed());
}

TEST(Decide, ARoleWithAPathIsDeniedByItsName) {
  const std::string with_path = "arn:aws:iam::111122223333:role/aws-reserved/sso/Dev", of_session = "arn:aws:sts::111122223333:assumed-role/Dev/ada";
  const auto key = [&](const char* effect) { return bundle(fmt::format(R"({{"Effect":"Allow","Principal":{{"AWS":"111122223333"}},"Action":"kms:*","Resource":"*"}},{{"Effect":"{}","Principal":{{"AWS":"{}"}},"Action":"kms:Decrypt","Resource":"*"}})", effect, with_path), PolicyKind::Resource); };
  const Bundle denies = key("Deny"), allows = key("Allow"), all = bundle(statement("Allow", "*", "*"));
  const std::string arn = "arn:aws:kms:us-east-1:111122223333:key/k";
  EXPECT_EQ(decide(call(of_session, "kms:Decrypt", arn), {.identity = &all, .resource = &denies, .resource_must_allow = true}).outcome, Outcome::ExplicitDeny);
  EXPECT_FALSE(decide(call(of_session, "kms:Decrypt", arn), {.resource = &allows, .resource_must_allow = true}).allowed());
  Call told{.caller = *read_caller(of_session), .action = "kms:Decrypt", .resource = arn, .resource_account = {}, .keys = {}};
  told.keys.set("aws:PrincipalArn", {with_path});
  fill_keys(told);
  EXPECT_EQ(told.caller.role_arn, with_path);
  EXPECT_TRUE(decide(told, {.resource = &allows, .resource_must_allow = true}).allowed());
}

TEST(Decide, WhatEveryCallHasIsNeverMissing) {
  const std::string all = statement("Allow", "*", "*");
  EXPECT_EQ(of_one(all + "," + statement("Deny", "*", "*", R"(,"Condition":{"Bool":{"aws:SecureTransport":"false"}})"), call(ada, "s3:GetObject")).outcome, Outcome::ExplicitDeny);
  EXPECT_EQ(of_one(all + "," + statement("Deny", "*", "*", R"(,"Condition":{"Bool":{"aws:ViaAWSService":"false"}})"), call(ada, "s3:GetObject")).outcome, Outcome::ExplicitDeny);
  EXPECT_FALSE(of_one(statement("Allow", "*", "*", R"(,"Condition":{"StringNotEquals":{"aws:ResourceAccount":"1"}})"), call(ada, "s3:GetObject", "arn:aws:s3:::b/x")).allowed());
}

TEST(Decide, HostileDocumentsTakeNoLongerThanOthers) {
  // One statement with many beginnings is looked at once; what is long is not compared.
  std::string resources, patterns;
  for (int i = 1; i < 300; ++i) resources += fmt::format("{}\"arn:aws:s3:::{}*\"", i == 1 ? "" : ",", std::string(static_cast<std::size_t>(i), 'a'));
  for (int i = 0; i < 100; ++i) patterns += fmt::format("{}\"*{}b{}\"", i == 0 ? "" : ",", std::string(1023, 'a'), i);
  const Bundle made = bundle(fmt::format(R"({{"Effect":"Deny","Action":"s3:GetObject","Resource":[{}],"Condition":{{"StringLike":{{"aws:UserAgent":[{}]}}}}}})", resources, patterns));
  Call of = call(ada, "s3:GetObject", "arn:aws:s3:::" + std::string(400, 'a'));
  of.keys.set("aws:UserAgent", {std::string(most_value_bytes, 'a')});
  EXPECT_FALSE(made.find(of).denied);
  of.keys.set("aws:UserAgent", {std::string(most_value_bytes + 1, 'a')});
  EXPECT_TRUE(made.find(of).denied);
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "${aws:userid}";
  const Bundle wide = bundle(statement("Allow", "*", "*", fmt::format(R"(,"Condition":{{"StringEquals":{{"aws:userid":"{}"}}}})", many)));
  of.keys.set("aws:userid", {std::string(most_value_bytes, 'a')});
  EXPECT_FALSE(wide.find(of).allowed);
}

// ---- Properties, over random documents and calls ----

struct Chance {
  std::mt19937_64 source;
  std::size_t below(std::size_t most) { return source() % most; }
  bool once_in(std::size_t many) { return below(many) == 0; }
  template <std::size_t N>
  const char* of(const char* const (&all)[N]) { return all[below(N)]; }
};

constexpr const char* actions[] = {"s3:GetObject", "s3:PutObject", "s3:Get*", "s3:*", "*", "kms:Decrypt", "kms:De*", "sagemaker:Describe?luster"};
constexpr const char* resources[] = {"*", "arn:aws:s3:::a/x", "arn:aws:s3:::a/*", "arn:aws:s3:::${aws:username}/*", "arn:aws:kms:us-east-1:111122223333:key/k", "arn:aws:kms", "arn:aws:s3:::${aws:Nobody}/x", "arn:aws:s3:::${aws:userid}/x", "arn:aws:s3:::b/?", "arn:aws:s3:${aws:userid}::a/x", "arn:aws:*:*::a/*", "arn:aws:s3:::secret${aws:Nobody}", "arn:aws:*:a/*", "arn:aws:s3:?::a/x"};
constexpr const char* principals[] = {"\"*\"", R"({"AWS":"111122223333"})", R"({"AWS":"arn:aws:iam::111122223333:user/ada"})", R"({"AWS":"arn:aws:iam::111122223333:role/caller-role"})", R"({"AWS":["arn:aws:iam::444455556666:root","111122223333"]})", R"({"Service":"ec2.amazonaws.com"})"};
constexpr const char* operations[] = {"StringEquals", "StringNotEquals", "StringLike", "StringEqualsIfExists", "StringNotLikeIfExists", "ForAllValues:StringEquals", "ForAnyValue:StringNotEquals"};
constexpr const char* known_names[] = {"aws:username", "aws:userid", "aws:TagKeys", "aws:SourceIp"};
constexpr const char* values[] = {"ada", "a*", "*", "${aws:username}", "10.0.0.1"};
constexpr const char* callers[] = {"arn:aws:iam::111122223333:user/ada", "arn:aws:sts::111122223333:assumed-role/caller-role/s1", "arn:aws:iam::444455556666:user/eve", "ec2.amazonaws.com", "111122223333", "anonymous"};
constexpr const char* asked_actions[] = {"s3:GetObject", "S3:PUTOBJECT", "kms:Decrypt", "sagemaker:DescribeCluster", "iam:CreateUser"};
constexpr const char* asked_resources[] = {"*", "arn:aws:s3:::a/x", "arn:aws:s3:::ada/x", "arn:aws:s3:::b/y", "arn:aws:s3:${aws:userid}::a/x", "arn:aws:kms:us-east-1:111122223333:key/k"};

std::string random_statement(Chance& chance, PolicyKind kind, const char* effect) {
  const bool deny = std::string_view(effect) == "Deny";
  std::string out = fmt::format(R"({{"Effect":"{}","{}":["{}","{}"],"{}":["{}","{}"])", effect, chance.once_in(6) ? "NotAction" : "Action", chance.of(actions), chance.of(actions), chance.once_in(6) ? "NotResource" : "Resource", chance.of(resources), chance.of(resources));
  if (kind == PolicyKind::Resource) out += fmt::format(R"(,"{}":{})", deny && chance.once_in(4) ? "NotPrincipal" : "Principal", chance.of(principals));
  if (chance.once_in(2)) out += fmt::format(R"(,"Condition":{{"{}":{{"{}":["{}","{}"]}}}})", chance.of(operations), chance.once_in(5) ? "aws:Nobody" : chance.of(known_names), chance.of(values), chance.of(values));
  return out + "}";
}

struct World {
  std::optional<std::vector<Document>> identity, boundary, session, resource;
  bool must = false;
};
std::vector<Document> random_documents(Chance& chance, PolicyKind kind) {
  std::vector<Document> out;
  const std::size_t count = 1 + chance.below(2);
  for (std::size_t i = 0; i < count; ++i) {
    std::string all;
    const std::size_t statements = 1 + chance.below(3);
    for (std::size_t s = 0; s < statements; ++s) all += (s == 0 ? "" : ",") + random_statement(chance, kind, chance.once_in(4) ? "Deny" : "Allow");
    out.push_back(document(fmt::format(R"({{"Version":"{}","Statement":[{}]}})", chance.once_in(8) ? "2008-10-17" : "2012-10-17", all), kind, fmt::format("d{}", i)));
  }
  return out;
}
World random_world(Chance& chance) {
  World out;
  if (!chance.once_in(6)) out.identity = random_documents(chance, PolicyKind::Identity);
  if (chance.once_in(3)) out.boundary = random_documents(chance, PolicyKind::Identity);
  if (chance.once_in(4)) out.session = random_documents(chance, PolicyKind::Identity);
  if (chance.once_in(2)) out.resource = random_documents(chance, PolicyKind::Resource);
  out.must = chance.once_in(4);
  return out;
}
Call random_call(Chance& chance) {
  Call out{.caller = *read_caller(chance.of(callers)), .action = chance.of(asked_actions), .resource = chance.of(asked_resources), .resource_account = {}, .keys = {}};
  if (chance.once_in(2)) out.keys.set("aws:SourceIp", {"10.0.0.1"});
  if (!chance.once_in(4)) out.resource_account = "111122223333";
  if (chance.once_in(2)) out.keys.set("aws:TagKeys", {"ada", "x"});
  fill_keys(out);
  return out;
}
Decision decide_in(const World& world, const Call& of) {
  const auto made = [](const std::optional<std::vector<Document>>& documents, PolicyKind kind) { return documents ? std::optional<Bundle>(std::in_place, *documents, kind) : std::nullopt; };
  const auto identity = made(world.identity, PolicyKind::Identity), boundary = made(world.boundary, PolicyKind::Identity), of_session = made(world.session, PolicyKind::Identity), resource = made(world.resource, PolicyKind::Resource);
  const auto at = [](const std::optional<Bundle>& one) { return one ? &*one : nullptr; };
  return decide(of, {.identity = at(identity), .boundary = at(boundary), .session = at(of_session), .resource = at(resource), .resource_must_allow = world.must});
}

template <class Act>
void over_worlds(Act act) {
  const std::size_t seeds = test_rounds<std::size_t>(1500, 300'000);
  for (std::size_t seed = 1; seed <= seeds; ++seed) {
    Chance chance{std::mt19937_64(seed)};
    const World world = random_world(chance);
    for (int i = 0; i < 4; ++i) act(seed, chance, world, random_call(chance));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(DecideProperties, AnotherDenyNeverAllows) {
  std::size_t taken = 0;
  over_worlds([&](std::size_t seed, Chance& chance, const World& world, const Call& of) {
    const bool before = decide_in(world, of).allowed();
    World more = world;
    const bool at_resource = more.resource && chance.once_in(2);
    auto& where = at_resource ? more.resource : more.identity;
    if (!where) where.emplace();
    where->push_back(document(fmt::format(R"({{"Version":"2012-10-17","Statement":{}}})", random_statement(chance, at_resource ? PolicyKind::Resource : PolicyKind::Identity, "Deny")), at_resource ? PolicyKind::Resource : PolicyKind::Identity));
    const bool after = decide_in(more, of).allowed();
    EXPECT_TRUE(before || !after) << "seed " << seed;
    taken += before && !after;
  });
  EXPECT_GT(taken, 3u);
}

TEST(DecideProperties, OrderNeverMatters) {
  std::size_t allowed = 0;
  over_worlds([&](std::size_t seed, Chance& chance, const World& world, const Call& of) {
    const Outcome before = decide_in(world, of).outcome;
    World other = world;
    for (auto* documents : {&other.identity, &other.boundary, &other.session, &other.resource}) {
      if (!*documents) continue;
      std::shuffle((*documents)->begin(), (*documents)->end(), chance.source);
      for (Document& one : **documents) {
        std::shuffle(one.policy.statements.begin(), one.policy.statements.end(), chance.source);
        for (Statement& each : one.policy.statements) {
          std::shuffle(each.actions.begin(), each.actions.end(), chance.source);
          std::shuffle(each.resources.begin(), each.resources.end(), chance.source);
          std::shuffle(each.principals.begin(), each.principals.end(), chance.source);
          for (Condition& condition : each.conditions) std::shuffle(condition.values.begin(), condition.values.end(), chance.source);
        }
      }
    }
    EXPECT_EQ(decide_in(other, of).outcome, before) << "seed " << seed;
    allowed += before == Outcome::Allowed;
  });
  EXPECT_GT(allowed, 20u);
}

// The index is only faster: each bundle finds what a look at every statement finds.
TEST(DecideProperties, TheIndexFindsWhatALookAtEachStatementFinds) {
  over_worlds([&](std::size_t seed, Chance&, const World& world, const Call& of) {
    for (const auto& [documents, kind] : {std::pair(&world.identity, PolicyKind::Identity), std::pair(&world.resource, PolicyKind::Resource)}) {
      if (!*documents) continue;
      const Bundle made(**documents, kind);
      const Bundle::Found found = made.find(of);
      bool allowed = false;
      std::optional<std::pair<std::size_t, std::size_t>> denied;
      for (const StatementView& view : made.explain(of)) {
        if (view.verdict != Verdict::Applies) continue;
        if (made.documents()[view.document].policy.statements[view.statement].effect == Effect::Allow) allowed = true;
        else if (!denied) denied = std::pair(view.document, view.statement);
      }
      EXPECT_EQ(found.allowed.has_value(), allowed) << "seed " << seed;
      EXPECT_EQ(found.denied, denied) << "seed " << seed;
    }
  });
}

// A condition on a key that nobody knows takes an Allow away whole, and never makes a Deny weaker.
TEST(DecideProperties, KeysThatNobodyKnowsNeverAllow) {
  std::size_t lost = 0;
  over_worlds([&](std::size_t seed, Chance& chance, const World& world, const Call& of) {
    World without = world, blind = world;
    for (auto* documents : {&without.identity, &without.resource})
      if (*documents)
        for (Document& one : **documents) std::erase_if(one.policy.statements, [](const Statement& each) { return each.effect == Effect::Allow; });
    for (auto* documents : {&blind.identity, &blind.resource})
      if (*documents)
        for (Document& one : **documents)
          for (Statement& each : one.policy.statements) {
            if (each.effect != Effect::Allow) continue;
            const std::string operation = chance.of(operations);
            const auto read = read_policy(fmt::format(R"({{"Statement":{{"Effect":"Allow","Action":"*","Resource":"*","Condition":{{"{}":{{"aws:Nobody":"x"}}}}}}}})", operation), PolicyKind::Identity);
            each.conditions.push_back(read->statements[0].conditions[0]);
          }
    EXPECT_EQ(decide_in(blind, of).outcome, decide_in(without, of).outcome) << "seed " << seed;
    lost += decide_in(world, of).allowed() && !decide_in(blind, of).allowed();
  });
  EXPECT_GT(lost, 3u);
}

// Whom an identity provider vouches for is let in by its name alone, and by conditions on what it says.
TEST(Federated, IsLetInByItsProviderAlone) {
  const std::string of = "arn:aws:iam::111122223333:oidc-provider/kubernetes.default.svc.cluster.local";
  const auto outcome = [&](const std::string& statements, const std::string& who = "arn:aws:iam::111122223333:oidc-provider/kubernetes.default.svc.cluster.local") {
    const Bundle trust = bundle(statements, PolicyKind::Resource);
    Call asked{.caller = *read_caller(who), .action = "sts:AssumeRoleWithWebIdentity", .resource = "arn:aws:iam::111122223333:role/r", .resource_account = {}, .keys = {}};
    asked.keys.set("kubernetes.default.svc.cluster.local:sub", {"system:serviceaccount:ml:train"});
    fill_keys(asked);
    return decide(asked, {.identity = nullptr, .boundary = nullptr, .session = nullptr, .resource = &trust, .resource_must_allow = true}).outcome;
  };
  const std::string allow = R"({"Effect": "Allow", "Action": "sts:AssumeRoleWithWebIdentity", "Principal": )";
  EXPECT_EQ(outcome(allow + R"({"Federated": ")" + of + R"("}})"), Outcome::Allowed);
  EXPECT_EQ(outcome(allow + R"({"Federated": ")" + of + R"("}, "Condition": {"StringEquals": {"kubernetes.default.svc.cluster.local:sub": "system:serviceaccount:ml:train"}}})"), Outcome::Allowed);
  EXPECT_EQ(outcome(allow + R"({"Federated": ")" + of + R"("}, "Condition": {"StringEquals": {"kubernetes.default.svc.cluster.local:sub": "system:serviceaccount:ml:eval"}}})"), Outcome::ImplicitDeny);
  EXPECT_EQ(outcome(allow + R"({"Federated": ")" + of + R"("}})", "arn:aws:iam::111122223333:oidc-provider/elsewhere"), Outcome::ImplicitDeny);
  EXPECT_EQ(outcome(allow + R"({"Federated": ")" + of + R"("}})", "arn:aws:iam::111122223333:user/ada"), Outcome::ImplicitDeny);
  for (const char* const principal : {R"("*"})", R"({"AWS": "*"}})", R"({"AWS": "111122223333"}})", R"({"AWS": "arn:aws:iam::111122223333:root"}})", R"({"Service": "sts.amazonaws.com"}})"}) EXPECT_EQ(outcome(allow + principal), Outcome::ImplicitDeny) << principal;
  EXPECT_EQ(outcome(allow + R"({"Federated": ")" + of + R"("}}, {"Effect": "Deny", "Action": "*", "Principal": "*"})"), Outcome::ExplicitDeny);
  EXPECT_EQ(outcome(allow + R"({"Federated": ")" + of + R"("}}, {"Effect": "Deny", "Action": "*", "NotPrincipal": {"Federated": ")" + of + R"("}})"), Outcome::Allowed);
  EXPECT_EQ(outcome(allow + R"({"Federated": ")" + of + R"("}}, {"Effect": "Deny", "Action": "*", "NotPrincipal": {"Federated": "arn:aws:iam::111122223333:oidc-provider/elsewhere"}})"), Outcome::ExplicitDeny);
}

}  // namespace
}  // namespace fairlead::iam
