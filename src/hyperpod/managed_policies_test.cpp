// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "hyperpod/iam_service.h"
#include "hyperpod/test_site.h"

namespace fairlead::hyperpod {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Form = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kAllows = R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sagemaker:ListClusters", "Resource": "*"}})";
constexpr const char* kDenies = R"({"Version": "2012-10-17", "Statement": [{"Sid": "Not", "Effect": "Deny", "Action": "sagemaker:*", "Resource": "*"}]})";
constexpr const char* kArn = "arn:aws:iam::111122223333:policy/Trainers";

struct ManagedPolicies : testing::Test {
  TestSite site;
  Credentials root = site.user("admin", {everything});
  TestSite::Said call(const char* action, Form form, const Credentials* who = nullptr) {
    form.insert(form.begin(), {"Action", action});
    return site.iam(who == nullptr ? root : *who, form);
  }
  Credentials user(const std::string& name) {
    EXPECT_EQ(call("CreateUser", {{"UserName", name}}).status, 200);
    const auto key = call("CreateAccessKey", {{"UserName", name}});
    return {key.text("AccessKeyId"), key.text("SecretAccessKey"), ""};
  }
  TestSite::Said make(const std::string& name = "Trainers", const char* document = kAllows) { return call("CreatePolicy", {{"PolicyName", name}, {"PolicyDocument", document}, {"Description", "who trains"}}); }
};

TEST_F(ManagedPolicies, WhatIsAttachedDecidesAtOnceAndIsNamed) {
  const Credentials ada = user("ada");
  const auto made = make();
  ASSERT_EQ(made.status, 200) << made.body;
  EXPECT_EQ(made.text("Arn"), kArn);
  EXPECT_THAT(made.body, AllOf(HasSubstr("<DefaultVersionId>v1</DefaultVersionId>"), HasSubstr("<AttachmentCount>0</AttachmentCount>")));
  EXPECT_EQ(make().code, "EntityAlreadyExists");
  EXPECT_EQ(make("trainers").code, "EntityAlreadyExists");
  EXPECT_EQ(site.call(ada, "ListClusters").code, "AccessDeniedException");
  ASSERT_EQ(call("AttachUserPolicy", {{"UserName", "ada"}, {"PolicyArn", kArn}}).status, 200);
  EXPECT_EQ(call("AttachUserPolicy", {{"UserName", "ada"}, {"PolicyArn", kArn}}).status, 200);  // again: nothing more
  EXPECT_EQ(site.call(ada, "ListClusters").status, 200);
  EXPECT_THAT(call("ListAttachedUserPolicies", {{"UserName", "ada"}}).body, HasSubstr(fmt::format("<AttachedPolicies><member><PolicyName>Trainers</PolicyName><PolicyArn>{}</PolicyArn></member></AttachedPolicies>", kArn)));
  EXPECT_THAT(call("GetPolicy", {{"PolicyArn", kArn}}).body, AllOf(HasSubstr("<AttachmentCount>1</AttachmentCount>"), HasSubstr("<Description>who trains</Description>")));
  // A new default counts at once for all who have it.
  ASSERT_EQ(call("CreatePolicyVersion", {{"PolicyArn", kArn}, {"PolicyDocument", kDenies}, {"SetAsDefault", "true"}}).text("VersionId"), "v2");
  const auto denied = site.call(ada, "ListClusters");
  EXPECT_EQ(denied.code, "AccessDeniedException");
  EXPECT_THAT(denied.message, HasSubstr(fmt::format("attached policy {}, statement Not", kArn)));
  EXPECT_THAT(site.audit.back()["eventName"].string(), HasSubstr("ListClusters"));
  EXPECT_THAT(site.audit.back()["errorMessage"].string(), HasSubstr(kArn));
  ASSERT_EQ(call("SetDefaultPolicyVersion", {{"PolicyArn", kArn}, {"VersionId", "v1"}}).status, 200);
  EXPECT_EQ(site.call(ada, "ListClusters").status, 200);
  ASSERT_EQ(call("DetachUserPolicy", {{"UserName", "ada"}, {"PolicyArn", kArn}}).status, 200);
  EXPECT_EQ(site.call(ada, "ListClusters").code, "AccessDeniedException");
  EXPECT_EQ(call("DetachUserPolicy", {{"UserName", "ada"}, {"PolicyArn", kArn}}).code, "NoSuchEntity");
}

TEST_F(ManagedPolicies, OfRolesTheSessionsThatGoOn) {
  make();
  const std::string trust = R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::111122223333:user/admin"}, "Action": "sts:AssumeRole"}})";
  ASSERT_EQ(call("CreateRole", {{"RoleName", "deploy"}, {"AssumeRolePolicyDocument", trust}}).status, 200);
  const Credentials session = site.assumed(site.sts(root, {{"Action", "AssumeRole"}, {"RoleArn", "arn:aws:iam::111122223333:role/deploy"}, {"RoleSessionName", "session"}}));
  EXPECT_EQ(site.call(session, "ListClusters").code, "AccessDeniedException");
  ASSERT_EQ(call("AttachRolePolicy", {{"RoleName", "deploy"}, {"PolicyArn", kArn}}).status, 200);
  EXPECT_EQ(site.call(session, "ListClusters").status, 200);
  EXPECT_THAT(call("DeleteRole", {{"RoleName", "deploy"}}).message, HasSubstr("must detach all policies first"));
  const auto entities = call("ListEntitiesForPolicy", {{"PolicyArn", kArn}});
  EXPECT_THAT(entities.body, AllOf(HasSubstr("<PolicyRoles><member><RoleName>deploy</RoleName><RoleId>AROA"), HasSubstr("<PolicyUsers></PolicyUsers>"), HasSubstr("<IsTruncated>false</IsTruncated>")));
  EXPECT_THAT(call("ListEntitiesForPolicy", {{"PolicyArn", kArn}, {"EntityFilter", "User"}}).body, Not(HasSubstr("deploy")));
  EXPECT_EQ(call("DeletePolicy", {{"PolicyArn", kArn}}).code, "DeleteConflict");
  ASSERT_EQ(call("DetachRolePolicy", {{"RoleName", "deploy"}, {"PolicyArn", kArn}}).status, 200);
  EXPECT_EQ(site.call(session, "ListClusters").code, "AccessDeniedException");
  EXPECT_EQ(call("DeletePolicy", {{"PolicyArn", kArn}}).status, 200);
  EXPECT_EQ(call("GetPolicy", {{"PolicyArn", kArn}}).code, "NoSuchEntity");
  EXPECT_EQ(call("DeleteRole", {{"RoleName", "deploy"}}).status, 200);
}

TEST_F(ManagedPolicies, VersionsAreFiveAndTheirNumbersAreGivenOnce) {
  make();
  for (const char* id : {"v2", "v3", "v4", "v5"}) EXPECT_EQ(call("CreatePolicyVersion", {{"PolicyArn", kArn}, {"PolicyDocument", kDenies}}).text("VersionId"), id);
  EXPECT_EQ(call("CreatePolicyVersion", {{"PolicyArn", kArn}, {"PolicyDocument", kDenies}}).code, "LimitExceeded");
  EXPECT_EQ(call("DeletePolicy", {{"PolicyArn", kArn}}).code, "DeleteConflict");
  EXPECT_EQ(call("DeletePolicyVersion", {{"PolicyArn", kArn}, {"VersionId", "v1"}}).code, "DeleteConflict");
  EXPECT_EQ(call("DeletePolicyVersion", {{"PolicyArn", kArn}, {"VersionId", "v5"}}).status, 200);
  EXPECT_EQ(call("DeletePolicyVersion", {{"PolicyArn", kArn}, {"VersionId", "v5"}}).code, "NoSuchEntity");
  EXPECT_EQ(call("CreatePolicyVersion", {{"PolicyArn", kArn}, {"PolicyDocument", kDenies}}).text("VersionId"), "v6");
  EXPECT_EQ(call("GetPolicyVersion", {{"PolicyArn", kArn}, {"VersionId", "v1"}}).text("Document"), http::escape(kAllows));
  EXPECT_EQ(call("GetPolicyVersion", {{"PolicyArn", kArn}, {"VersionId", "v6"}}).text("IsDefaultVersion"), "false");
  EXPECT_EQ(call("GetPolicyVersion", {{"PolicyArn", kArn}, {"VersionId", "v9"}}).code, "NoSuchEntity");
  const auto list = call("ListPolicyVersions", {{"PolicyArn", kArn}});
  EXPECT_THAT(list.body, AllOf(HasSubstr("<VersionId>v6</VersionId>"), HasSubstr("<VersionId>v1</VersionId><IsDefaultVersion>true</IsDefaultVersion>")));
  EXPECT_EQ(call("CreatePolicyVersion", {{"PolicyArn", kArn}, {"PolicyDocument", "{"}}).code, "MalformedPolicyDocument");
  EXPECT_EQ(call("SetDefaultPolicyVersion", {{"PolicyArn", kArn}, {"VersionId", "v77"}}).code, "NoSuchEntity");
}

TEST_F(ManagedPolicies, OfAwssOwnTheNamesThatScriptsAttachAllowNothing) {
  const Credentials ada = user("ada");
  const std::string own = "arn:aws:iam::aws:policy/AmazonSageMakerClusterInstanceRolePolicy";
  ASSERT_EQ(call("AttachUserPolicy", {{"UserName", "ada"}, {"PolicyArn", own}}).status, 200);
  ASSERT_EQ(call("AttachUserPolicy", {{"UserName", "ada"}, {"PolicyArn", "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"}}).status, 200);
  EXPECT_EQ(site.call(ada, "ListClusters").code, "AccessDeniedException");
  EXPECT_EQ(call("GetPolicy", {{"PolicyArn", own}}).text("Arn"), own);
  EXPECT_EQ(call("GetPolicyVersion", {{"PolicyArn", own}, {"VersionId", "v1"}}).text("Document"), http::escape(R"({"Version":"2012-10-17","Statement":[]})"));
  // One that denies must not seem to be in force.
  const auto refused = call("AttachUserPolicy", {{"UserName", "ada"}, {"PolicyArn", "arn:aws:iam::aws:policy/AWSDenyAll"}});
  EXPECT_EQ(refused.code, "NoSuchEntity");
  EXPECT_THAT(refused.message, HasSubstr("of AWS's own"));
  EXPECT_EQ(call("CreatePolicyVersion", {{"PolicyArn", own}, {"PolicyDocument", everything}}).code, "AccessDenied");
  EXPECT_EQ(call("DeletePolicy", {{"PolicyArn", own}}).code, "AccessDenied");
  make();
  call("AttachUserPolicy", {{"UserName", "ada"}, {"PolicyArn", kArn}});
  EXPECT_EQ(site.call(ada, "ListClusters").status, 200);
  EXPECT_THAT(call("ListPolicies", {{"Scope", "Local"}}).body, AllOf(HasSubstr(kArn), Not(HasSubstr(":aws:policy/"))));
  EXPECT_THAT(call("ListPolicies", {{"Scope", "AWS"}, {"OnlyAttached", "true"}}).body, AllOf(HasSubstr(own), Not(HasSubstr("AmazonEKSWorkerNodePolicy")), Not(HasSubstr(kArn))));
  std::string all;
  Form form{{"MaxItems", "4"}};
  for (int pages = 0; pages < 10; ++pages) {
    const auto said = call("ListPolicies", form);
    all += said.body;
    if (said.text("IsTruncated") != "true") break;
    form = {{"MaxItems", "4"}, {"Marker", said.text("Marker")}};
  }
  for (const std::string& arn : api::identities::aws_policies()) EXPECT_THAT(all, HasSubstr("<Arn>" + arn + "</Arn>"));
  EXPECT_THAT(all, HasSubstr(kArn));
}

TEST_F(ManagedPolicies, WhatIsNotThereOrCannotBeUnderstoodTakesAllRights) {
  make();
  const Credentials ada = user("ada");
  call("PutUserPolicy", {{"UserName", "ada"}, {"PolicyName", "p"}, {"PolicyDocument", everything}});
  call("AttachUserPolicy", {{"UserName", "ada"}, {"PolicyArn", kArn}});
  EXPECT_EQ(site.call(ada, "ListClusters").status, 200);
  // Gone by another hand: a Deny could have been in it.
  const Json object = site.api.all("managedpolicies").begin()->second;
  site.directory.drop_policy(kube::name_of(object));
  EXPECT_THAT(site.call(ada, "ListClusters").message, HasSubstr(fmt::format("{} is not there", kArn)));
  site.directory.put_policy(object);
  EXPECT_EQ(site.call(ada, "ListClusters").status, 200);
  Json broken = object;
  broken.child("spec").set("document", R"({"Statement": {"Effect": "Perhaps"}})");
  site.directory.put_policy(broken);
  EXPECT_EQ(site.call(ada, "ListClusters").code, "AccessDeniedException");
  site.directory.put_policy(object);
  EXPECT_EQ(site.call(ada, "ListClusters").status, 200);
  // Another object of its name is not believed; one that becomes another's is not what it was any more.
  Json liar = object;
  liar.child("metadata").set("name", "policy-other");
  liar.child("spec").set("document", kDenies);
  site.directory.put_policy(liar);
  EXPECT_EQ(site.call(ada, "ListClusters").status, 200);
  Json turned = object;
  turned.child("spec").set("name", "Other");
  site.directory.put_policy(turned);
  EXPECT_THAT(site.call(ada, "ListClusters").message, HasSubstr("is not there"));
  // Its path is of its ARN.
  Json moved = object;
  moved.child("spec").set("path", "/ml/");
  site.directory.put_policy(moved);
  EXPECT_THAT(site.call(ada, "ListClusters").message, HasSubstr("is not there"));
}

TEST_F(ManagedPolicies, AnAttachmentThatIsLeftGetsNoOtherPolicy) {
  make();
  const Credentials ada = user("ada");
  call("AttachUserPolicy", {{"UserName", "ada"}, {"PolicyArn", kArn}});
  const Json object = site.api.all("managedpolicies").begin()->second;
  ASSERT_TRUE(site.api.remove(api::identities::managed_policies, kube::key_of(object), {}));  // by kubectl
  const auto said = make("Trainers", everything);
  EXPECT_EQ(said.code, "EntityAlreadyExists") << said.body;
  EXPECT_EQ(said.status, 409);
  EXPECT_THAT(said.message, AllOf(HasSubstr("User ada still has " + std::string(kArn) + " attached"), HasSubstr("DetachUserPolicy")));
  EXPECT_EQ(site.api.all("managedpolicies").size(), 0U);
  EXPECT_EQ(call("DetachUserPolicy", {{"UserName", "ada"}, {"PolicyArn", kArn}}).status, 200);
  EXPECT_EQ(make("Trainers", everything).status, 200);
  EXPECT_EQ(site.call(ada, "ListClusters").code, "AccessDeniedException");
}

TEST_F(ManagedPolicies, AnAttachmentIsTakenBackWhereItsPolicyWentMeanwhile) {
  for (const bool anew : {false, true}) {
    make();
    const std::string name = anew ? "eve" : "ada";
    user(name);
    const Json object = site.api.all("managedpolicies").begin()->second;
    Racing racing(site.api);
    bool done = false;
    racing.after_get = [&](const kube::Resource& resource, const Json&) {
      if (resource.plural != "managedpolicies" || std::exchange(done, true)) return;
      ASSERT_TRUE(site.api.remove(api::identities::managed_policies, kube::key_of(object), {}));
      Json next = Json::object({{"metadata", Json::object({{"name", kube::name_of(object)}})}, {"spec", object["spec"]}});
      if (anew) { ASSERT_TRUE(site.api.create(api::identities::managed_policies, next)); }
    };
    auto front = std::exchange(site.front, std::make_unique<Front>(site.model(), site.directory, site.seal, Operations(), site.clock, FrontOptions{.per_second = 0, .iam = [&](const std::string& action, const http::Query& form, const Call& asked) { return answer_iam(action, form, asked, racing, "fairlead-system"); }}));
    EXPECT_EQ(call("AttachUserPolicy", {{"UserName", name}, {"PolicyArn", kArn}}).code, anew ? "ConcurrentModification" : "NoSuchEntity");
    EXPECT_TRUE(done);
    site.front = std::move(front);
    EXPECT_THAT(call("ListAttachedUserPolicies", {{"UserName", name}}).body, Not(HasSubstr(kArn)));
  }
}

TEST_F(ManagedPolicies, WhoMayAttachWhatIsDecidedByTheArnOfThePolicy) {
  make();
  make("Admins", everything);
  user("ada");
  const Credentials helper = site.user("helper", {R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": ["iam:AttachUserPolicy", "iam:DetachUserPolicy"], "Resource": "*", "Condition": {"ArnEquals": {"iam:PolicyARN": "arn:aws:iam::111122223333:policy/Trainers"}}}]})"});
  EXPECT_EQ(call("AttachUserPolicy", {{"UserName", "ada"}, {"PolicyArn", kArn}}, &helper).status, 200);
  EXPECT_EQ(call("AttachUserPolicy", {{"UserName", "ada"}, {"PolicyArn", "arn:aws:iam::111122223333:policy/Admins"}}, &helper).code, "AccessDenied");
  EXPECT_EQ(call("CreatePolicyVersion", {{"PolicyArn", kArn}, {"PolicyDocument", everything}, {"SetAsDefault", "true"}}, &helper).code, "AccessDenied");
  EXPECT_EQ(call("GetPolicy", {{"PolicyArn", "arn:aws:iam::111122223333:policy/None"}}, &helper).code, "AccessDenied");
  EXPECT_EQ(call("AttachUserPolicy", {{"UserName", "ada"}, {"PolicyArn", "arn:aws:iam::111122223333:policy/None"}}).code, "NoSuchEntity");
  EXPECT_EQ(call("GetPolicy", {{"PolicyArn", "arn:aws:iam::111122223333:policy/trainers"}}).code, "NoSuchEntity");
  for (const char* arn : {"", "Trainers", "arn:aws:iam::111122223333:role/x"}) EXPECT_EQ(call("GetPolicy", {{"PolicyArn", arn}}).code, "ValidationError") << arn;
  for (int i = 0; i < 20; ++i) {
    make(fmt::format("n{}", i));
    EXPECT_EQ(call("AttachUserPolicy", {{"UserName", "ada"}, {"PolicyArn", fmt::format("arn:aws:iam::111122223333:policy/n{}", i)}}).code, i < 19 ? "" : "LimitExceeded");
  }
}

}  // namespace
}  // namespace fairlead::hyperpod
