// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/front.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "hyperpod/test_site.h"

namespace fairlead::hyperpod {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Front, WhoIsKnownIsServed) {
  TestSite site;
  const auto ada = site.user("ada", {everything});
  EXPECT_EQ(site.call(ada, "ListClusters").json["ClusterSummaries"].items().size(), 0U);
  const auto me = site.sts(ada, {{"Action", "GetCallerIdentity"}});
  EXPECT_EQ(me.status, 200);
  EXPECT_EQ(me.text("Arn"), "arn:aws:iam::111122223333:user/ada");
  EXPECT_EQ(me.text("Account"), "111122223333");
  EXPECT_THAT(me.text("UserId"), testing::MatchesRegex("AIDA[0-9A-F]{17}"));
}

// The code is what an SDK acts on; who is not known never learns whether a key is there.
TEST(Front, WhoIsNotKnownIsRefused) {
  TestSite site;
  const auto ada = site.user("ada", {everything});
  const auto code = [&](const Credentials& who) { return site.call(who, "ListClusters").code; };
  EXPECT_EQ(code({"AKIAAAAAAAAAAAAAAAAA", "secret", ""}), "UnrecognizedClientException");
  EXPECT_EQ(code({ada.key_id, "another", ""}), "InvalidSignatureException");
  EXPECT_EQ(code({ada.key_id, ada.secret, "a token that is none"}), "UnrecognizedClientException");
  EXPECT_EQ(code(site.key_of("ada", false)), "UnrecognizedClientException");
  EXPECT_EQ(code(site.key_of("nobody")), "UnrecognizedClientException");
  EXPECT_EQ(site.send(site.request("ListClusters", "{}")).code, "MissingAuthenticationTokenException");
  site.identity("Role", "worker", {everything});
  auto forged = api::identities::new_key("role-worker", "uid-role-worker-2");  // keys are of users alone
  site.directory.put_key(api::identities::write_key(forged, "fairlead-system"));
  EXPECT_EQ(code({forged.id, forged.secret, ""}), "UnrecognizedClientException");
  http::Request old = site.request("ListClusters", "{}");
  sign_request(old, ada, "fairlead-1", "sagemaker", site.clock.now() - 16min);
  EXPECT_EQ(site.send(old).code, "InvalidSignatureException");
  EXPECT_EQ(code(ada), "");
  site.directory.drop_key(api::identities::key_object_name(ada.key_id));
  EXPECT_EQ(code(ada), "UnrecognizedClientException");
}

TEST(Front, WhatIsOffOrBrokenMayDoNothing) {
  TestSite site;
  site.identity("User", "ada", {everything}, Json::object({{"disabled", true}}));
  EXPECT_THAT(site.call(site.key_of("ada"), "ListClusters").message, HasSubstr("is disabled"));
  site.identity("User", "bob", {everything, R"({"Statement": {"Effect": "Perhaps"}})"});
  const auto bob = site.call(site.key_of("bob"), "ListClusters");
  EXPECT_EQ(bob.code, "AccessDeniedException");
  EXPECT_THAT(bob.message, HasSubstr("may do nothing until its Identity user-bob is mended: policy p1"));
  // Another object's name is not believed: who may make Identities of one name must not become another user.
  site.directory.put_identity(Json::object({{"metadata", Json::object({{"name", "user-eve"}, {"uid", "1"}})}, {"spec", Json::object({{"type", "User"}, {"name", "ada"}, {"policies", Json::array({Json::object({{"name", "p"}, {"document", everything}})})}})}}));
  const auto eves = api::identities::new_key("user-eve", "1");
  site.directory.put_key(api::identities::write_key(eves, "fairlead-system"));
  EXPECT_THAT(site.call({eves.id, eves.secret, ""}, "ListClusters").message, HasSubstr("has to be in the object user-ada"));
  const auto nothing = site.user("cid", {});
  EXPECT_THAT(site.call(nothing, "ListClusters").message, HasSubstr("User: arn:aws:iam::111122223333:user/cid is not authorized to perform: sagemaker:ListClusters on resource: *"));
  EXPECT_EQ(site.sts(nothing, {{"Action", "GetCallerIdentity"}}).status, 200);
}

TEST(Front, AKeyIsOfOneUserAndNoneOfItsNameAfterIt) {
  TestSite site;
  const auto ada = site.user("ada", {});
  EXPECT_EQ(site.sts(ada, {{"Action", "GetCallerIdentity"}}).status, 200);
  site.identity("User", "ada", {everything});
  EXPECT_EQ(site.call(ada, "ListClusters").code, "UnrecognizedClientException");
  // What is no key any more lets nobody in.
  const auto now = site.key_of("ada");
  EXPECT_EQ(site.call(now, "ListClusters").code, "");
  site.directory.put_key(Json::object({{"metadata", Json::object({{"name", api::identities::key_object_name(now.key_id)}})}, {"type", "Opaque"}}));
  EXPECT_EQ(site.call(now, "ListClusters").code, "UnrecognizedClientException");
}

TEST(Front, TagsOfWhoAsksAndWhetherHeProvedItTwice) {
  TestSite site;
  const char* const not_suspended = R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}, {"Effect": "Deny", "Action": "*", "Resource": "*", "Condition": {"StringEquals": {"aws:PrincipalTag/Suspended": "true"}}}]})";
  const auto with_tags = [&](const char* tags) {
    site.identity("User", "ada", {not_suspended}, Json::object({{"tags", *kube::parse_json(tags)}}));
    return site.call(site.key_of("ada"), "ListClusters").code;
  };
  EXPECT_EQ(with_tags("[]"), "");
  EXPECT_EQ(with_tags(R"([{"key": "suspended", "value": "false"}])"), "");
  EXPECT_EQ(with_tags(R"([{"key": "suspended", "value": "true"}])"), "AccessDeniedException");
  // Two that differ in case: which is meant cannot be told, and a Deny that may be meant holds.
  EXPECT_EQ(with_tags(R"([{"key": "Suspended", "value": "false"}, {"key": "suspended", "value": "true"}])"), "AccessDeniedException");
}

// Before a hash over a body, and before any queue; and what is good is let through.
TEST(Front, NobodyIsTurnedAwayAtOnce) {
  TestSite site;
  const auto ada = site.user("ada", {everything});
  http::Request good = site.request("ListClusters", "{}");
  sign_request(good, ada, "fairlead-1", "sagemaker", site.clock.now());
  EXPECT_FALSE(site.front->turn_away(good));
  const auto refusal = site.front->turn_away(site.request("ListClusters", "{}"));
  ASSERT_TRUE(refusal);
  EXPECT_THAT(refusal->body, HasSubstr("MissingAuthenticationTokenException"));
  http::Request stranger = site.request("ListClusters", "{}");
  sign_request(stranger, {"AKIAAAAAAAAAAAAAAAAA", "secret", ""}, "fairlead-1", "sts", site.clock.now());
  EXPECT_THAT(site.front->turn_away(stranger)->body, HasSubstr("<Code>InvalidClientTokenId</Code>"));
  EXPECT_THAT(Front::busy(stranger, "later").body, HasSubstr("<Code>ServiceUnavailable</Code>"));
  EXPECT_THAT(Front::busy(good, "later").body, HasSubstr("\"__type\":\"ServiceUnavailable\""));
  EXPECT_EQ(Front::busy(good, "later").status, 503);
}

TEST(Front, NobodyCanFillTheAudit) {
  TestSite site;
  http::Request long_one = site.request("ListClusters", "{}");
  long_one.headers.emplace_back("X-Amz-Date", aws_timestamp(site.clock.now()));
  long_one.headers.emplace_back("Authorization", "AWS4-HMAC-SHA256 Credential=x/20261125/r/" + std::string(50'000, 's') + "/aws4_request, SignedHeaders=host;x-amz-date;x-amz-target, Signature=0");
  for (int i = 0; i < 1000; ++i) site.send(long_one);
  EXPECT_EQ(site.audit.size(), 40U);
  for (const Json& record : site.audit) EXPECT_LT(kube::print_json(record).size(), 2500U);
  site.clock.advance(1s);
  site.send(long_one);
  EXPECT_EQ(site.audit.back()["othersLikeItLeftOut"].integer(), 960);
  // Who is known is told of all the same, and cut.
  const auto ada = site.user("ada", {});
  const std::string name(500'000, 'n');
  const auto said = site.call(ada, "ListClusters", Json::object({{name, 1}}));
  EXPECT_EQ(said.code, "ValidationException");
  EXPECT_LT(said.body.size(), 2500U);
  EXPECT_EQ(site.audit.back()["errorCode"].string(), "ValidationException");
}

TEST(Front, CallsThatAreNone) {
  TestSite site;
  const auto ada = site.user("ada", {everything});
  EXPECT_EQ(site.call(ada, "ListCluster").code, "UnknownOperationException");
  EXPECT_EQ(site.call(ada, "DescribeCluster").code, "ValidationException");
  EXPECT_EQ(site.call(ada, "DescribeCluster", Json::object({{"ClusterName", 5}})).code, "SerializationException");
  for (const char* const body : {"{", "[]", "\"x\"", "{\"a\":1}x", "{\"MaxResults\": \"5\"}"}) {
    http::Request of = site.request("ListClusters", body);
    sign_request(of, ada, "fairlead-1", "sagemaker", site.clock.now());
    EXPECT_EQ(site.send(of).code, "SerializationException") << body;
  }
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "[";
  http::Request of = site.request("ListClusters", deep);
  sign_request(of, ada, "fairlead-1", "sagemaker", site.clock.now());
  EXPECT_EQ(site.send(of).code, "SerializationException");
  http::Request other = site.request("ListClusters", "{}");
  sign_request(other, ada, "fairlead-1", "dynamodb", site.clock.now());
  EXPECT_THAT(site.send(other).message, HasSubstr("\"dynamodb\" is not served here"));
  EXPECT_EQ(site.sts(ada, {{"Action", "GetSessionToken"}}).code, "InvalidAction");
  EXPECT_EQ(site.sts({"AKIAAAAAAAAAAAAAAAAA", "secret", ""}, {{"Action", "GetCallerIdentity"}}).code, "InvalidClientTokenId");
  EXPECT_EQ(site.sts({ada.key_id, "secret", ""}, {{"Action", "GetCallerIdentity"}}).status, 403);
}

TEST(Front, OneThatAsksTooMuchIsToldToWait) {
  TestSite site;
  site.front = std::make_unique<Front>(site.model(), site.directory, site.seal, all_operations(site.sources(site.api)), site.clock, FrontOptions{.per_second = 10, .iam = {}, .eks = {}, .eks_cluster = {}, .audit = {}});
  const auto ada = site.user("ada", {everything}), bob = site.user("bob", {everything});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(site.call(ada, "ListClusters").code, "") << i;
  EXPECT_EQ(site.call(ada, "ListClusters").code, "ThrottlingException");
  EXPECT_EQ(site.call(bob, "ListClusters").code, "");
  site.clock.advance(1s);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(site.call(ada, "ListClusters").code, "") << i;
  EXPECT_EQ(site.call(ada, "ListClusters").code, "ThrottlingException");
}

std::string trust(const std::string& principal, const std::string& more = "") {
  return R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"AWS": ")" + principal + R"("}, "Action": "sts:AssumeRole")" + more + "}}";
}
const std::string role_arn = "arn:aws:iam::111122223333:role/deploy";
std::vector<std::pair<std::string, std::string>> assume(std::vector<std::pair<std::string, std::string>> more = {}) {
  more.insert(more.begin(), {{"Action", "AssumeRole"}, {"RoleArn", role_arn}, {"RoleSessionName", "night"}});
  return more;
}

TEST(Front, WhatIsTooLargeToBeReadIsRefusedInTheSameForm) {
  const auto said = refused_unread({.status = 413, .headers = {}, .body = "the body is larger than 1048576 bytes\n", .parts = {}});
  EXPECT_EQ(said.status, 413);
  const Json body = *kube::parse_json(said.body);
  EXPECT_EQ(body["__type"].string(), "RequestEntityTooLarge");
  EXPECT_EQ(body["message"].string(), "the body is larger than 1048576 bytes");
  EXPECT_NE(http::find(said.headers, "x-amzn-requestid"), "");
  EXPECT_EQ((*kube::parse_json(refused_unread({.status = 400, .headers = {}, .body = "x", .parts = {}}).body))["__type"].string(), "MalformedHttpRequestException");
}

TEST(AssumeRole, GivesWhatTheRoleMay) {
  TestSite site;
  const auto ada = site.user("ada", {});
  site.identity("Role", "deploy", {everything}, Json::object({{"trustPolicy", trust("arn:aws:iam::111122223333:user/ada")}}));
  const auto said = site.sts(ada, assume());
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_EQ(said.text("Arn"), "arn:aws:sts::111122223333:assumed-role/deploy/night");
  EXPECT_EQ(said.text("Expiration"), "2026-11-25T13:00:00Z");
  const Credentials night = site.assumed(said);
  EXPECT_THAT(night.key_id, testing::MatchesRegex("ASIA[A-Z2-7]{16}"));
  EXPECT_EQ(site.call(ada, "ListClusters").code, "AccessDeniedException");
  EXPECT_EQ(site.call(night, "ListClusters").code, "");
  EXPECT_EQ(site.sts(night, {{"Action", "GetCallerIdentity"}}).text("Arn"), "arn:aws:sts::111122223333:assumed-role/deploy/night");
  // Nothing of it holds without the rest of it.
  EXPECT_EQ(site.call({night.key_id, night.secret, ""}, "ListClusters").code, "UnrecognizedClientException");
  EXPECT_EQ(site.call({ada.key_id, ada.secret, night.token}, "ListClusters").code, "UnrecognizedClientException");
  EXPECT_EQ(site.call({night.key_id, ada.secret, night.token}, "ListClusters").code, "InvalidSignatureException");
  for (const std::size_t at : {std::size_t{0}, night.token.size() / 2, night.token.size() - 4}) {
    std::string token = night.token;
    token[at] = token[at] == 'A' ? 'B' : 'A';
    EXPECT_EQ(site.call({night.key_id, night.secret, token}, "ListClusters").code, "UnrecognizedClientException") << at;
  }
  site.clock.advance(59min);
  EXPECT_EQ(site.call(night, "ListClusters").code, "");
  site.clock.advance(1min);
  EXPECT_EQ(site.call(night, "ListClusters").code, "ExpiredTokenException");
}

TEST(AssumeRole, EndsWithItsRole) {
  TestSite site;
  const auto ada = site.user("ada", {});
  const Json more = Json::object({{"trustPolicy", trust("arn:aws:iam::111122223333:user/ada")}});
  site.identity("Role", "deploy", {everything}, more);
  const Credentials night = site.assumed(site.sts(ada, assume()));
  EXPECT_EQ(site.call(night, "ListClusters").code, "");
  Json off = more;
  off.set("disabled", true);
  site.identity("Role", "deploy", {everything}, off);  // a new uid: another role of the same name
  EXPECT_EQ(site.call(night, "ListClusters").code, "UnrecognizedClientException");
  site.identity("Role", "deploy", {everything}, more);
  EXPECT_EQ(site.call(night, "ListClusters").code, "UnrecognizedClientException");
  site.directory.drop_identity("role-deploy");
  EXPECT_EQ(site.call(night, "ListClusters").code, "UnrecognizedClientException");
}

TEST(AssumeRole, WhoMay) {
  TestSite site;
  const char* const may_assume = R"({"Statement": {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"}})";
  const auto ada = site.user("ada", {}), bob = site.user("bob", {may_assume}), eve = site.user("eve", {everything, R"({"Statement": {"Effect": "Deny", "Action": "sts:*", "Resource": "*"}})"});
  const auto code = [&](const Credentials& who, std::vector<std::pair<std::string, std::string>> form = assume()) { return site.sts(who, form).code; };
  EXPECT_EQ(code(bob), "AccessDenied");  // no such role: told like one that is not his
  const std::string none = site.sts(bob, assume()).message;
  site.identity("Role", "deploy", {everything}, Json::object({{"trustPolicy", trust("111122223333")}}));
  // The account is named: its own policies decide.
  EXPECT_EQ(code(ada), "AccessDenied");
  EXPECT_EQ(site.sts(ada, assume()).message.substr(0, 5), none.substr(0, 5));
  EXPECT_EQ(code(bob), "");
  EXPECT_EQ(code(eve), "AccessDenied");
  site.identity("Role", "deploy", {everything}, Json::object({{"trustPolicy", trust("arn:aws:iam::111122223333:user/eve")}}));
  EXPECT_EQ(code(bob), "AccessDenied");
  EXPECT_EQ(code(eve), "AccessDenied");  // a deny wins
  site.identity("Role", "deploy", {everything}, Json::object({{"trustPolicy", trust("arn:aws:iam::111122223333:user/ada", R"(, "Condition": {"StringEquals": {"sts:ExternalId": "seven"}})")}}));
  EXPECT_EQ(code(ada), "AccessDenied");
  EXPECT_EQ(code(ada, assume({{"ExternalId", "eight"}})), "AccessDenied");
  EXPECT_EQ(code(ada, assume({{"ExternalId", "seven"}})), "");
  site.identity("Role", "deploy", {everything});  // without a trust policy nobody is trusted
  EXPECT_EQ(code(bob), "AccessDenied");
  EXPECT_EQ(site.sts(bob, {{"Action", "AssumeRole"}, {"RoleArn", "arn:aws:iam::999900001111:role/deploy"}, {"RoleSessionName", "night"}}).code, "AccessDenied");
}

// Which roles somebody may take on may depend on their tags: a Deny by them holds, an Allow by them allows those alone.
TEST(AssumeRole, TagsOfTheRoleDecide) {
  TestSite site;
  const Json tags = Json::array({Json::object({{"key", "Protected"}, {"value", "true"}})});
  const auto role_with = [&](bool tagged) {
    Json more = Json::object({{"trustPolicy", trust("111122223333")}});
    if (tagged) more.set("tags", tags);
    site.identity("Role", "deploy", {everything}, more);
  };
  const char* const any = R"({"Statement": {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"}})";
  for (const char* const family : {"iam", "aws"}) {
    const std::string key = std::string(family) + ":ResourceTag/protected";
    const auto denied = site.user("d", {any, R"({"Statement": {"Effect": "Deny", "Action": "sts:*", "Resource": "*", "Condition": {"StringEquals": {")" + key + R"(": "true"}}}})"});
    const auto allowed = site.user("a", {R"({"Statement": {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*", "Condition": {"StringEquals": {")" + key + R"(": "true"}}}})"});
    role_with(true);
    EXPECT_EQ(site.sts(denied, assume()).code, "AccessDenied") << key;
    EXPECT_EQ(site.sts(allowed, assume()).code, "") << key;
    role_with(false);
    EXPECT_EQ(site.sts(denied, assume()).code, "") << key;
    EXPECT_EQ(site.sts(allowed, assume()).code, "AccessDenied") << key;
  }
}

TEST(AssumeRole, SessionPoliciesTakeAway) {
  TestSite site;
  const auto ada = site.user("ada", {});
  site.identity("Role", "deploy", {everything}, Json::object({{"trustPolicy", trust("arn:aws:iam::111122223333:user/ada")}}));
  const char* const only_nodes = R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sagemaker:ListClusterNodes", "Resource": "*"}})";
  const Credentials night = site.assumed(site.sts(ada, assume({{"Policy", only_nodes}})));
  EXPECT_EQ(site.call(night, "ListClusters").code, "AccessDeniedException");
  EXPECT_EQ(site.call(night, "ListClusterNodes", Json::object({{"ClusterName", "demo"}})).code, "ResourceNotFound");
  EXPECT_EQ(site.sts(ada, assume({{"Policy", "{}"}})).code, "MalformedPolicyDocument");
  EXPECT_EQ(site.sts(ada, assume({{"Policy", std::string(2049, ' ')}})).code, "PackedPolicyTooLarge");
  // What would take away and is not understood must not be passed over.
  EXPECT_EQ(site.sts(ada, assume({{"PolicyArns.member.1.arn", "arn:aws:iam::aws:policy/ReadOnlyAccess"}})).code, "ValidationError");
}

TEST(AssumeRole, ForHowLong) {
  TestSite site;
  const auto ada = site.user("ada", {});
  const Json more = Json::object({{"trustPolicy", R"({"Statement": {"Effect": "Allow", "Principal": {"AWS": ["arn:aws:iam::111122223333:user/ada", "arn:aws:iam::111122223333:role/deploy"]}, "Action": "sts:AssumeRole"}})"}, {"maxSessionSeconds", 7200}});
  site.identity("Role", "deploy", {everything}, more);
  const auto code = [&](const Credentials& who, const char* seconds) { return site.sts(who, assume({{"DurationSeconds", seconds}})).code; };
  EXPECT_EQ(code(ada, "900"), "");
  EXPECT_EQ(code(ada, "7200"), "");
  for (const char* const bad : {"899", "7201", "43201", "-1", "1h", "99999999999999999999"}) EXPECT_EQ(code(ada, bad), "ValidationError") << bad;
  const Credentials night = site.assumed(site.sts(ada, assume()));
  EXPECT_EQ(code(night, "3600"), "");
  EXPECT_EQ(code(night, "3601"), "ValidationError");
  for (const char* const name : {"", "x", "a b", "a/b"}) EXPECT_EQ(site.sts(ada, {{"Action", "AssumeRole"}, {"RoleArn", role_arn}, {"RoleSessionName", name}}).code, "ValidationError") << name;
}

TEST(Audit, EachCallIsWrittenAndNothingSecret) {
  TestSite site;
  const auto ada = site.user("ada", {});
  site.identity("Role", "deploy", {everything}, Json::object({{"trustPolicy", trust("arn:aws:iam::111122223333:user/ada")}}));
  const Credentials night = site.assumed(site.sts(ada, assume()));
  site.call(night, "ListClusters");
  site.call(ada, "ListClusters");
  site.call({ada.key_id, "wrong", ""}, "DescribeCluster");
  site.send(site.request("Nonsense", "{}"));
  ASSERT_EQ(site.audit.size(), 5U);
  std::string all;
  for (const Json& record : site.audit) all += kube::print_json(record) + "\n";
  EXPECT_THAT(all, Not(HasSubstr(ada.secret)));
  EXPECT_THAT(all, Not(HasSubstr(night.secret)));
  EXPECT_THAT(all, Not(HasSubstr(night.token.substr(0, 30))));
  EXPECT_EQ(site.audit[0]["eventName"].string(), "AssumeRole");
  EXPECT_EQ(site.audit[0]["eventSource"].string(), "sts.amazonaws.com");
  EXPECT_EQ(site.audit[0]["userIdentity"]["arn"].string(), "arn:aws:iam::111122223333:user/ada");
  EXPECT_EQ(site.audit[1]["userIdentity"]["type"].string(), "AssumedRole");
  EXPECT_EQ(site.audit[2]["errorCode"].string(), "AccessDeniedException");
  // Who did not prove who he is is not told as the one he says he is.
  EXPECT_EQ(site.audit[3]["errorCode"].string(), "InvalidSignatureException");
  EXPECT_TRUE(site.audit[3]["userIdentity"]["arn"].is_null());
  EXPECT_EQ(site.audit[3]["eventName"].string(), "DescribeCluster");
  EXPECT_EQ(site.audit[4]["eventName"].string(), "Unknown");
}

// While keys, identities and the key of sessions change, every call is answered with one of what was true.
TEST(Front, AnswersManyAtOnceWhileEverythingChanges) {
  TestSite site;
  std::mutex told;
  std::size_t records = 0;
  Front front(site.model(), site.directory, site.seal, all_operations(site.sources(site.api)), site.clock, FrontOptions{.per_second = 1e6, .iam = {}, .eks = {}, .eks_cluster = {}, .audit = [&](const Json&) {
                const std::lock_guard lock(told);
                ++records;
              }});
  const auto ada = site.user("ada", {everything});
  site.identity("Role", "deploy", {everything}, Json::object({{"trustPolicy", trust("arn:aws:iam::111122223333:user/ada")}}));
  const Credentials night = site.assumed(site.sts(ada, assume()));
  site.api.all("computequotas");  // there before threads look for it
  std::atomic<bool> done{false};
  std::atomic<int> good{0}, others{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      for (int n = 0; n < 60; ++n) {
        http::Request of = site.request("ListComputeQuotas", "{}");
        sign_request(of, i == 0 ? night : ada, "fairlead-1", "sagemaker", site.clock.now());
        if (const auto refusal = front.turn_away(of)) ++others;
        else (front.answer(of).status == 200 ? good : others)++;
      }
    });
  threads.emplace_back([&] {
    for (int n = 0; !done; ++n) {
      site.directory.put_key(api::identities::write_key(api::identities::new_key("user-eve", "x"), "fairlead-system"));
      ASSERT_TRUE(site.seal.rekey({std::string(32, n % 2 == 0 ? 'n' : 'k'), std::string(32, 'k')}));
    }
  });
  for (int i = 0; i < 3; ++i) threads[static_cast<std::size_t>(i)].join();
  done = true;
  threads.back().join();
  EXPECT_EQ(good, 180);
  EXPECT_EQ(others, 0);
  EXPECT_EQ(records, 180U);
}

TEST(Sessions, KeepTheirTagsAndWhoVouchedForThem) {
  const SessionSeal seal = *SessionSeal::make({std::string(32, 'k')});
  Session session{.role = "role-a", .role_id = "AROA1", .name = "s1", .key_id = {}, .secret = {}, .policies = {}, .issued = Instant(1s), .expires = Instant(2s), .tags = {{"kubernetes-namespace", "ml"}, {"a", ""}}, .provider = "arn:aws:iam::111122223333:oidc-provider/h"};
  make_session_key(session);
  EXPECT_EQ(*seal.open(*seal.close(session)), session);
  session.tags.clear(), session.provider.clear();
  EXPECT_EQ(*seal.open(*seal.close(session)), session);
}

TEST(Sessions, AnOldKeyStillOpensAndANewOneSeals) {
  const SessionSeal before = *SessionSeal::make({std::string(32, 'a')}), after = *SessionSeal::make({std::string(32, 'b'), std::string(32, 'a')}), later = *SessionSeal::make({std::string(32, 'b')});
  Session session{.role = "role-x", .role_id = "AROAX", .name = "n", .key_id = {}, .secret = {}, .policies = {"{}"}, .issued = *parse_time("2026-11-25T12:00:00Z"), .expires = *parse_time("2026-11-25T13:00:00Z")};
  make_session_key(session);
  const std::string old = *before.close(session), fresh = *after.close(session);
  EXPECT_EQ(after.open(old), session);
  EXPECT_EQ(later.open(old), std::nullopt);
  EXPECT_EQ(later.open(fresh), session);
  EXPECT_NE(old, *before.close(session));
  EXPECT_EQ(before.open(""), std::nullopt);
  EXPECT_EQ(before.open(std::string(100'000, 'A')), std::nullopt);
  EXPECT_FALSE(SessionSeal::make({}));
  EXPECT_FALSE(SessionSeal::make({"short"}));
  session.policies.assign(20, std::string(2048, 'x'));
  EXPECT_EQ(before.close(session).error().code, Code::Exhausted);
}

}  // namespace
}  // namespace fairlead::hyperpod
