// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/iam_service.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hyperpod/query_protocol.h"
#include "hyperpod/test_site.h"

namespace fairlead::hyperpod {
namespace {

using testing::HasSubstr;
using Form = std::vector<std::pair<std::string, std::string>>;

struct IamService : testing::Test {
  TestSite site;
  Credentials root = site.user("admin", {everything});
  TestSite::Said call(const char* action, Form form, const Credentials* who = nullptr) {
    form.insert(form.begin(), {"Action", action});
    return site.iam(who == nullptr ? root : *who, form);
  }
};

TEST_F(IamService, AUserIsMadeGetsAKeyAndWorks) {
  const auto made = call("CreateUser", {{"UserName", "Ada.L"}, {"Path", "/ml/"}, {"Tags.member.1.Key", "team"}, {"Tags.member.1.Value", "vision"}});
  ASSERT_EQ(made.status, 200) << made.body;
  EXPECT_EQ(made.text("Arn"), "arn:aws:iam::111122223333:user/ml/Ada.L");
  EXPECT_THAT(made.body, HasSubstr("xmlns=\"https://iam.amazonaws.com/doc/2010-05-08/\""));
  EXPECT_EQ(call("CreateUser", {{"UserName", "Ada.L"}}).code, "EntityAlreadyExists");
  EXPECT_EQ(call("CreateUser", {{"UserName", "ada.l"}}).status, 409);  // names are unique without regard to case
  const auto key = call("CreateAccessKey", {{"UserName", "Ada.L"}});
  const Credentials ada{key.text("AccessKeyId"), key.text("SecretAccessKey"), ""};
  EXPECT_EQ(site.call(ada, "ListClusters").code, "AccessDeniedException");
  EXPECT_EQ(call("PutUserPolicy", {{"UserName", "Ada.L"}, {"PolicyName", "p"}, {"PolicyDocument", everything}}).status, 200);
  EXPECT_EQ(site.call(ada, "ListClusters").code, "");
  EXPECT_EQ(call("GetUser", {}, &ada).text("UserName"), "Ada.L");  // no name: who asks
  EXPECT_EQ(call("GetUserPolicy", {{"UserName", "Ada.L"}, {"PolicyName", "p"}}).text("PolicyDocument"), http::escape(everything));
  EXPECT_THAT(call("ListUserPolicies", {{"UserName", "Ada.L"}}).body, HasSubstr("<PolicyNames><member>p</member></PolicyNames>"));
  EXPECT_EQ(call("UpdateAccessKey", {{"UserName", "Ada.L"}, {"AccessKeyId", ada.key_id}, {"Status", "Inactive"}}).status, 200);
  EXPECT_EQ(site.call(ada, "ListClusters").code, "UnrecognizedClientException");
  EXPECT_THAT(call("ListAccessKeys", {{"UserName", "Ada.L"}}).body, HasSubstr("<Status>Inactive</Status>"));
  EXPECT_THAT(call("ListAccessKeys", {{"UserName", "Ada.L"}}).body, testing::Not(HasSubstr(ada.secret)));
}

TEST_F(IamService, NothingIsDeletedWithWhatHangsOnIt) {
  call("CreateUser", {{"UserName", "ada"}});
  const auto first = call("CreateAccessKey", {{"UserName", "ada"}}), second = call("CreateAccessKey", {{"UserName", "ada"}});
  EXPECT_EQ(call("CreateAccessKey", {{"UserName", "ada"}}).code, "LimitExceeded");
  call("PutUserPolicy", {{"UserName", "ada"}, {"PolicyName", "p"}, {"PolicyDocument", everything}});
  EXPECT_THAT(call("DeleteUser", {{"UserName", "ada"}}).message, HasSubstr("must delete policies first: p"));
  EXPECT_EQ(call("DeleteUserPolicy", {{"UserName", "ada"}, {"PolicyName", "p"}}).status, 200);
  EXPECT_EQ(call("DeleteUserPolicy", {{"UserName", "ada"}, {"PolicyName", "p"}}).code, "NoSuchEntity");
  EXPECT_EQ(call("DeleteUser", {{"UserName", "ada"}}).code, "DeleteConflict");
  for (const auto& key : {first, second}) EXPECT_EQ(call("DeleteAccessKey", {{"UserName", "ada"}, {"AccessKeyId", key.text("AccessKeyId")}}).status, 200);
  EXPECT_EQ(call("DeleteAccessKey", {{"UserName", "ada"}, {"AccessKeyId", first.text("AccessKeyId")}}).code, "NoSuchEntity");
  EXPECT_EQ(call("DeleteUser", {{"UserName", "ada"}}).status, 200);
  EXPECT_EQ(call("GetUser", {{"UserName", "ada"}}).status, 404);
}

TEST_F(IamService, ARoleIsMadeChangedAndAssumed) {
  const char* const trust = R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::111122223333:user/admin"}, "Action": "sts:AssumeRole"}})";
  EXPECT_EQ(call("CreateRole", {{"RoleName", "deploy"}}).code, "ValidationError");
  EXPECT_EQ(call("CreateRole", {{"RoleName", "deploy"}, {"AssumeRolePolicyDocument", everything}}).code, "MalformedPolicyDocument");  // it names no principal
  const auto made = call("CreateRole", {{"RoleName", "deploy"}, {"AssumeRolePolicyDocument", trust}, {"MaxSessionDuration", "7200"}, {"Description", "for <releases>"}});
  ASSERT_EQ(made.status, 200) << made.body;
  EXPECT_EQ(made.text("AssumeRolePolicyDocument"), http::escape(trust));
  EXPECT_EQ(made.text("MaxSessionDuration"), "7200");
  EXPECT_THAT(made.body, HasSubstr("for &lt;releases&gt;"));
  call("PutRolePolicy", {{"RoleName", "deploy"}, {"PolicyName", "p"}, {"PolicyDocument", everything}});
  const Form assume{{"Action", "AssumeRole"}, {"RoleArn", "arn:aws:iam::111122223333:role/deploy"}, {"RoleSessionName", "night"}};
  const Credentials night = site.assumed(site.sts(root, assume));
  EXPECT_EQ(site.call(night, "ListClusters").code, "");
  EXPECT_EQ(call("UpdateAssumeRolePolicy", {{"RoleName", "deploy"}, {"PolicyDocument", R"({"Statement": {"Effect": "Deny", "Principal": "*", "Action": "sts:AssumeRole"}})"}}).status, 200);
  EXPECT_EQ(site.sts(root, assume).code, "AccessDenied");
  EXPECT_EQ(call("GetUser", {}, &night).code, "ValidationError");  // a role is no user
  EXPECT_EQ(call("UpdateRole", {{"RoleName", "deploy"}, {"MaxSessionDuration", "60"}}).code, "ValidationError");
}

TEST_F(IamService, OnlyWhatIsAllowedAndNoOracle) {
  call("CreateUser", {{"UserName", "ada"}, {"Path", "/secret/"}});
  call("CreateUser", {{"UserName", "bob"}});
  call("PutUserPolicy", {{"UserName", "bob"}, {"PolicyName", "own"}, {"PolicyDocument", R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": ["iam:GetUser", "iam:*AccessKey*"], "Resource": "arn:aws:iam::111122223333:user/${aws:username}"}})"}});
  const auto key = call("CreateAccessKey", {{"UserName", "bob"}});
  const Credentials bob{key.text("AccessKeyId"), key.text("SecretAccessKey"), ""};
  EXPECT_EQ(call("GetUser", {}, &bob).status, 200);
  EXPECT_EQ(call("ListAccessKeys", {{"UserName", "bob"}}, &bob).status, 200);
  const auto there = call("GetUser", {{"UserName", "ada"}}, &bob), none = call("GetUser", {{"UserName", "eve"}}, &bob);
  EXPECT_EQ(there.code, "AccessDenied");
  EXPECT_EQ(there.message, "User: arn:aws:iam::111122223333:user/bob is not authorized to perform: iam:GetUser on resource: user ada");
  EXPECT_EQ(none.message, "User: arn:aws:iam::111122223333:user/bob is not authorized to perform: iam:GetUser on resource: user eve");
  for (const char* const action : {"ListUsers", "ListRoles"}) EXPECT_EQ(call(action, {}, &bob).code, "AccessDenied") << action;
  EXPECT_EQ(call("CreateAccessKey", {{"UserName", "ada"}}, &bob).code, "AccessDenied");
  EXPECT_EQ(call("PutUserPolicy", {{"UserName", "bob"}, {"PolicyName", "more"}, {"PolicyDocument", everything}}, &bob).code, "AccessDenied");
}

// Tags are what policies decide by: who gives them needs the right to, and what is tagged is protected by them.
TEST_F(IamService, TagsAtCreationAreARightOfTheirOwn) {
  const auto bob = site.user("bob", {R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "iam:*", "Resource": "*"}, {"Effect": "Deny", "Action": "iam:TagUser", "Resource": "*", "Condition": {"StringEquals": {"aws:RequestTag/team": "admin"}}},
    {"Effect": "Deny", "Action": ["iam:PutUserPolicy", "iam:CreateAccessKey"], "Resource": "*", "Condition": {"StringEquals": {"iam:ResourceTag/protected": "true"}}}]})"});
  EXPECT_EQ(call("CreateUser", {{"UserName", "x"}, {"Tags.member.1.Key", "team"}, {"Tags.member.1.Value", "admin"}}, &bob).code, "AccessDenied");
  EXPECT_EQ(call("CreateUser", {{"UserName", "x"}, {"Tags.member.1.Key", "team"}, {"Tags.member.1.Value", "dev"}}, &bob).status, 200);
  EXPECT_EQ(call("CreateUser", {{"UserName", "y"}, {"Tags.member.1.Key", "Team"}, {"Tags.member.1.Value", "a"}, {"Tags.member.2.Key", "team"}, {"Tags.member.2.Value", "b"}}).code, "ValidationError");
  EXPECT_EQ(call("CreateUser", {{"UserName", "y"}, {"Tags.member.1.Key", "aws:x"}, {"Tags.member.1.Value", "a"}}).code, "ValidationError");
  call("CreateUser", {{"UserName", "z"}, {"Tags.member.1.Key", "protected"}, {"Tags.member.1.Value", "true"}});
  EXPECT_EQ(call("CreateAccessKey", {{"UserName", "z"}}, &bob).code, "AccessDenied");
  EXPECT_EQ(call("CreateAccessKey", {{"UserName", "x"}}, &bob).status, 200);
}

TEST(QueryProtocol, XmlIsAlwaysWellFormed) {
  EXPECT_EQ(xml_escape("a<b>&\"c\r\n\x01"), "a&lt;b&gt;&amp;&quot;c&#13;\n ");
  EXPECT_EQ(xml_escape("Größe 漢 😀"), "Größe 漢 😀");
  // What XML does not have, and what is no UTF-8.
  EXPECT_EQ(xml_escape("x\xEF\xBF\xBFy\xEF\xBF\xBE"), "x\xEF\xBF\xBDy\xEF\xBF\xBD");
  for (const char* const bad : {"\xFF", "\xC0\xAF", "\xED\xA0\x80", "\xE2\x82", "\xF5\x80\x80\x80", "\x80"}) EXPECT_THAT(xml_escape(bad), testing::MatchesRegex("(\xEF\xBF\xBD)+")) << bad;
}

TEST_F(IamService, ListsComeInPages) {
  for (int i = 0; i < 7; ++i) call("CreateUser", {{"UserName", fmt::format("u{}", i)}, {"Path", i % 2 == 0 ? "/even/" : "/odd/"}});
  std::string all, marker;
  for (int pages = 0; pages < 10; ++pages) {
    Form form{{"MaxItems", "3"}};
    if (!marker.empty()) form.emplace_back("Marker", marker);
    const auto said = call("ListUsers", form);
    all += said.body;
    if (said.text("IsTruncated") == "false") break;
    marker = said.text("Marker");
    ASSERT_FALSE(marker.empty());
  }
  for (int i = 0; i < 7; ++i) EXPECT_THAT(all, HasSubstr(fmt::format("<UserName>u{}</UserName>", i)));
  const auto even = call("ListUsers", {{"PathPrefix", "/even/"}});
  EXPECT_THAT(even.body, HasSubstr("u0"));
  EXPECT_THAT(even.body, testing::Not(HasSubstr("u1")));
  EXPECT_EQ(call("ListUsers", {{"PathPrefix", "/odd/"}, {"Marker", marker}}).code, "ValidationError");
  EXPECT_EQ(call("ListUsers", {{"MaxItems", "0"}}).code, "ValidationError");
}

TEST_F(IamService, NonsenseIsRefused) {
  for (const char* const name : {"", "a b", "a/b", "ä"}) EXPECT_EQ(call("CreateUser", {{"UserName", name}}).code, "ValidationError") << name;
  EXPECT_EQ(call("CreateUser", {{"UserName", std::string(65, 'a')}}).code, "ValidationError");
  for (const char* const path : {"x", "/x", "//", "/ü/"}) EXPECT_EQ(call("CreateUser", {{"UserName", "ada"}, {"Path", path}}).code, "ValidationError") << path;
  EXPECT_EQ(call("CreateUser", {{"UserName", "ada"}, {"PermissionsBoundary", "arn:aws:iam::aws:policy/X"}}).code, "ValidationError");
  call("CreateUser", {{"UserName", "ada"}});
  EXPECT_EQ(call("PutUserPolicy", {{"UserName", "ada"}, {"PolicyName", "p"}, {"PolicyDocument", "{"}}).code, "MalformedPolicyDocument");
  EXPECT_EQ(call("PutUserPolicy", {{"UserName", "ada"}, {"PolicyName", "p q"}, {"PolicyDocument", everything}}).code, "ValidationError");
  EXPECT_EQ(call("UpdateAccessKey", {{"UserName", "ada"}, {"AccessKeyId", "AKIAX"}, {"Status", "On"}}).code, "ValidationError");
  EXPECT_EQ(call("CreateGroup", {}).code, "InvalidAction");
  EXPECT_THAT(call("CreateGroup", {}).message, HasSubstr("managed policies and access keys are served here"));
}

}  // namespace
}  // namespace fairlead::hyperpod
