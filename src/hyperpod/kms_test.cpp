// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/kms.h"

#include <gmock/gmock.h>

#include "api/volume.h"
#include "api/volume_key.h"
#include "hyperpod/key_policy.h"
#include "hyperpod/test_site.h"

namespace fairlead::hyperpod {
namespace {

using testing::HasSubstr;

constexpr const char *key_arn_begin = "arn:aws:kms:fairlead-1:111122223333:key/", *everything_of_kms = R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "kms:*", "Resource": "*"}})";

struct KmsFace : testing::Test {
  TestSite site;
  Credentials root = site.user("root", {everything_of_kms}), bob = site.user("bob", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}})"});
  TestSite::Said say(const char* operation, Json input = Json::object()) { return site.kms(root, operation, input); }
  std::string make(Json input = Json::object()) { return say("CreateKey", std::move(input)).json["KeyMetadata"]["KeyId"].string(); }
  static Json of(const std::string& id) { return Json::object({{"KeyId", id}}); }
  std::string state(const std::string& id) { return say("DescribeKey", of(id)).json["KeyMetadata"]["KeyState"].string(); }
};

TEST_F(KmsFace, AKeysLife) {
  const auto made = say("CreateKey", Json::object({{"Description", "of the lab"}, {"Tags", Json::array({Json::object({{"TagKey", "team"}, {"TagValue", "a"}})})}}));
  ASSERT_EQ(made.status, 200) << made.body;
  const Json& facts = made.json["KeyMetadata"];
  const std::string id = facts["KeyId"].string();
  EXPECT_TRUE(api::is_key_id(id));
  EXPECT_EQ(facts["Arn"].string(), key_arn_begin + id);
  EXPECT_EQ(facts["KeyManager"].string(), "CUSTOMER");
  EXPECT_EQ(site.api.get(api::kVolumeKeys, {"", id}).value()["spec"]["grants"].string(), "Required");
  EXPECT_EQ(say("CreateAlias", Json::object({{"AliasName", "alias/lab"}, {"TargetKeyId", id}})).status, 200);
  for (const std::string& name : {id, key_arn_begin + id, std::string("alias/lab"), std::string("arn:aws:kms:fairlead-1:111122223333:alias/lab")}) EXPECT_EQ(state(name), "Enabled") << name;
  EXPECT_EQ(say("DisableKey", of(id)).status, 200);
  EXPECT_EQ(state(id), "Disabled");
  EXPECT_EQ(say("RotateKeyOnDemand", of(id)).code, "DisabledException");
  EXPECT_EQ(say("EnableKey", of(id)).status, 200);
  EXPECT_EQ(say("RotateKeyOnDemand", of(id)).status, 200);
  EXPECT_EQ(site.api.get(api::kVolumeKeys, {"", id}).value()["spec"]["version"].integer(), 2);
  EXPECT_EQ(say("UpdateKeyDescription", Json::object({{"KeyId", id}, {"Description", "now"}})).status, 200);
  EXPECT_EQ(say("TagResource", Json::object({{"KeyId", id}, {"Tags", Json::array({Json::object({{"TagKey", "kind"}, {"TagValue", "b"}})})}})).status, 200);
  EXPECT_EQ(say("UntagResource", Json::object({{"KeyId", id}, {"TagKeys", Json::array({Json("team")})}})).status, 200);
  EXPECT_EQ(kube::print_json(say("ListResourceTags", of(id)).json["Tags"]), R"([{"TagKey":"kind","TagValue":"b"}])");
  const auto scheduled = say("ScheduleKeyDeletion", Json::object({{"KeyId", id}, {"PendingWindowInDays", 7}}));
  EXPECT_EQ(scheduled.json["KeyState"].string(), "PendingDeletion") << scheduled.body;
  EXPECT_EQ(say("EnableKey", of(id)).code, "KMSInvalidStateException");
  EXPECT_EQ(say("ScheduleKeyDeletion", of(id)).code, "KMSInvalidStateException");
  EXPECT_GT(say("DescribeKey", of(id)).json["KeyMetadata"]["DeletionDate"].number(), 0);
  EXPECT_EQ(say("CancelKeyDeletion", of(id)).status, 200);
  EXPECT_EQ(state(id), "Disabled") << "as in KMS";
}

TEST_F(KmsFace, TheSitesOwnKeyIsThereAndStaysAnAdministrators) {
  const auto said = say("DescribeKey", of("alias/aws/ebs"));
  EXPECT_EQ(said.json["KeyMetadata"]["KeyManager"].string(), "AWS") << said.body;
  const std::string id = said.json["KeyMetadata"]["KeyId"].string();
  for (const char* operation : {"DisableKey", "ScheduleKeyDeletion", "RotateKeyOnDemand"}) EXPECT_EQ(say(operation, of(id)).code, "AccessDeniedException") << operation;
  EXPECT_EQ(say("CreateAlias", Json::object({{"AliasName", "alias/aws/mine"}, {"TargetKeyId", id}})).code, "InvalidAliasNameException");
}

TEST_F(KmsFace, AliasesNameOneKey) {
  const std::string first = make(), second = make();
  const auto alias = [&](const char* operation, const char* name, const std::string& id) { return say(operation, Json::object({{"AliasName", name}, {"TargetKeyId", id}})); };
  EXPECT_EQ(alias("CreateAlias", "alias/a", first).status, 200);
  EXPECT_EQ(alias("CreateAlias", "alias/a", second).code, "AlreadyExistsException");
  EXPECT_EQ(alias("UpdateAlias", "alias/a", second).status, 200);
  EXPECT_EQ(say("DescribeKey", of("alias/a")).json["KeyMetadata"]["KeyId"].string(), second);
  EXPECT_EQ(say("ListAliases", of(second)).json["Aliases"].items().size(), 1u);
  EXPECT_EQ(say("ListAliases").json["Aliases"].items().size(), 2u) << "and the site's own";
  EXPECT_EQ(say("DeleteAlias", Json::object({{"AliasName", "alias/a"}})).status, 200);
  EXPECT_EQ(say("DescribeKey", of("alias/a")).code, "NotFoundException");
  EXPECT_EQ(alias("CreateAlias", "a", first).code, "InvalidAliasNameException");
  // Somebody gave one to two by hand.
  for (const std::string& id : {first, second}) {
    Json object = site.api.get(api::kVolumeKeys, {"", id}).value();
    object.child("spec").set("aliases", Json::array({Json("alias/both")}));
    ASSERT_TRUE(site.api.update(api::kVolumeKeys, object));
  }
  EXPECT_EQ(say("DescribeKey", of("alias/both")).code, "NotFoundException");
}

TEST_F(KmsFace, AListGoesOnWhereItEnded) {
  for (int i = 0; i < 4; ++i) make();
  std::vector<std::string> seen;
  Json input = Json::object({{"Limit", 2}});
  for (int pages = 0; pages < 9; ++pages) {
    const auto said = say("ListKeys", input);
    for (const Json& one : said.json["Keys"].items()) seen.push_back(one["KeyId"].string());
    if (!said.json["Truncated"].boolean()) break;
    input.set("Marker", said.json["NextMarker"]);
  }
  EXPECT_EQ(seen.size(), 5u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(say("ListKeys", Json::object({{"Limit", 0}})).code, "ValidationException");
}

TEST_F(KmsFace, TheKeysPolicyHasTheLastWord) {
  const std::string id = make();
  EXPECT_EQ(site.kms(bob, "DescribeKey", of(id)).code, "AccessDeniedException") << "the account's identities' policies decide";
  const std::string with_bob = R"({"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::111122223333:root"},"Action":"kms:*","Resource":"*"},{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::111122223333:user/bob"},"Action":"kms:DescribeKey","Resource":"*"}]})";
  ASSERT_EQ(say("PutKeyPolicy", Json::object({{"KeyId", id}, {"Policy", with_bob}})).status, 200);
  EXPECT_EQ(say("GetKeyPolicy", of(id)).json["Policy"].string(), with_bob);
  EXPECT_EQ(site.kms(bob, "DescribeKey", of(id)).status, 200);
  EXPECT_EQ(site.kms(bob, "DisableKey", of(id)).code, "AccessDeniedException");
  const char* shuts_out = R"({"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::111122223333:user/bob"},"Action":"kms:*","Resource":"*"}})";
  EXPECT_THAT(say("PutKeyPolicy", Json::object({{"KeyId", id}, {"Policy", shuts_out}})).message, HasSubstr("will not allow you to update"));
  EXPECT_EQ(say("PutKeyPolicy", Json::object({{"KeyId", id}, {"Policy", "{}"}})).code, "MalformedPolicyDocumentException");
  EXPECT_EQ(say("PutKeyPolicy", Json::object({{"KeyId", id}, {"Policy", shuts_out}, {"BypassPolicyLockoutSafetyCheck", true}})).status, 200);
  EXPECT_EQ(say("DescribeKey", of(id)).code, "AccessDeniedException") << "whatever the caller's policies say";
  // One that nobody understands lets nobody in.
  Json object = site.api.get(api::kVolumeKeys, {"", id}).value();
  object.child("spec").set("policy", Json::object({{"Statement", 3}}));
  ASSERT_TRUE(site.api.update(api::kVolumeKeys, object));
  EXPECT_EQ(say("DescribeKey", of(id)).code, "AccessDeniedException");
}

TEST_F(KmsFace, GrantsAreToldAndTakenBack) {
  const std::string id = make(), other = make();
  Json attachment = api::new_attachment("vol-0123456789abcdef0", "here", "w1", false);
  api::set_grant(attachment, id, "arn:aws:iam::111122223333:user/root");
  ASSERT_TRUE(site.api.create(api::kAttachments, attachment));
  const auto said = say("ListGrants", of(id));
  ASSERT_EQ(said.json["Grants"].items().size(), 1u) << said.body;
  const Json& grant = said.json["Grants"].items()[0];
  EXPECT_EQ(grant["Constraints"]["EncryptionContextSubset"]["aws:ebs:id"].string(), "vol-0123456789abcdef0");
  EXPECT_EQ(kube::print_json(grant["Operations"]), R"(["Decrypt"])");
  EXPECT_EQ(say("RevokeGrant", Json::object({{"KeyId", other}, {"GrantId", grant["GrantId"]}})).code, "NotFoundException") << "it is of one key";
  EXPECT_EQ(say("RevokeGrant", Json::object({{"KeyId", id}, {"GrantId", grant["GrantId"]}})).status, 200);
  EXPECT_TRUE(say("ListGrants", of(id)).json["Grants"].items().empty());
  EXPECT_FALSE(api::is_granted(site.api.list(api::kAttachments, "")->items, "vol-0123456789abcdef0", id));
}

TEST_F(KmsFace, WhatIsNotServedIsRefusedByName) {
  const std::string id = make();
  for (const char* operation : {"Encrypt", "Decrypt", "GenerateDataKey", "CreateGrant", "ImportKeyMaterial", "x"}) EXPECT_EQ(say(operation, of(id)).code, "UnsupportedOperationException") << operation;
  EXPECT_EQ(say("CreateKey", Json::object({{"KeySpec", "RSA_2048"}})).code, "UnsupportedOperationException");
  EXPECT_EQ(say("CreateKey", Json::object({{"MultiRegion", true}})).code, "UnsupportedOperationException");
  EXPECT_EQ(say("CreateKey", Json::object({{"XksKeyId", "a"}})).code, "ValidationException");
  EXPECT_EQ(say("CreateKey", Json::object({{"Tags", Json::array({Json::object({{"TagKey", 3}})})}})).code, "TagException");
  EXPECT_EQ(say("DescribeKey").code, "ValidationException");
  EXPECT_EQ(say("DescribeKey", Json::object({{"KeyId", 3}})).code, "ValidationException");
  for (const char* none : {"alias/none", "1234abcd-12ab-34cd-56ef-1234567890ab", "arn:aws:kms:fairlead-1:444455556666:key/1234abcd-12ab-34cd-56ef-1234567890ab", "arn:aws:s3:::a"}) EXPECT_EQ(say("DescribeKey", of(none)).code, "NotFoundException") << none;
  EXPECT_EQ(say("ScheduleKeyDeletion", Json::object({{"KeyId", id}, {"PendingWindowInDays", 3}})).code, "ValidationException");
  EXPECT_EQ(site.kms(bob, "CreateKey").code, "AccessDeniedException");
  EXPECT_EQ(site.kms(bob, "ListKeys").code, "AccessDeniedException");
}

}  // namespace
}  // namespace fairlead::hyperpod
