// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/secrets_manager.h"

#include <gmock/gmock.h>

#include "hyperpod/sigv4.h"
#include "hyperpod/test_site.h"

namespace fairlead::hyperpod {
namespace {

using testing::HasSubstr;
using testing::Not;

struct SecretsManager : testing::Test {
  TestSite site;
  Credentials root = site.user("root", {everything});
  void secret(const std::string& name, const Json& data, const std::string& called = "", bool served = true) {
    Json metadata = Json::object({{"name", name}, {"namespace", "fairlead-system"}, {"creationTimestamp", "2026-01-02T03:04:05Z"}, {"labels", Json::object()}, {"annotations", Json::object()}});
    if (served) metadata.child("labels").set(kServedSecret, "true");
    if (!called.empty()) metadata.child("annotations").set(kSecretName, called);
    Json encoded = Json::object();
    for (const auto& [key, value] : data.members()) encoded.set(key, base64(value.string()));
    ASSERT_TRUE(site.api.create(kube::resources::secrets, Json::object({{"apiVersion", "v1"}, {"kind", "Secret"}, {"metadata", std::move(metadata)}, {"data", std::move(encoded)}})));
  }
  TestSite::Said get(const Credentials& who, const Json& input, const std::string& operation = "GetSecretValue") {
    http::Request of = site.request("x", kube::print_json(input));
    for (auto& [name, value] : of.headers)
      if (name == "X-Amz-Target") value = "secretsmanager." + operation;
    sign_request(of, who, "fairlead-1", "secretsmanager", site.clock.now());
    return site.send(std::move(of));
  }
  static Json id(const std::string& name) { return Json::object({{"SecretId", name}}); }
};

TEST_F(SecretsManager, TellsWhatSomebodyHasMarkedForIt) {
  secret("db", Json::object({{"username", "lab"}, {"password", "pässword"}}));
  secret("token", Json::object({{"SecretString", "a plain one"}}), "prod/api.token");
  secret("blob", Json::object({{"SecretBinary", std::string("\0\1", 2)}}));
  const auto said = get(root, id("db"));
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_EQ(said.json["SecretString"].string(), "{\"username\":\"lab\",\"password\":\"pässword\"}");
  EXPECT_EQ(said.json["Name"].string(), "db");
  EXPECT_EQ(said.json["ARN"].string(), secret_arn({"111122223333", "fairlead-1", {}}, "db"));
  EXPECT_EQ(said.json["VersionStages"], *kube::parse_json(R"(["AWSCURRENT"])"));
  EXPECT_EQ(said.json["VersionId"].string().size(), 36U);
  EXPECT_EQ(get(root, id("prod/api.token")).json["SecretString"].string(), "a plain one");
  EXPECT_EQ(get(root, id("blob")).json["SecretBinary"].string(), base64(std::string("\0\1", 2)));
  EXPECT_FALSE(get(root, id("blob")).json.has("SecretString"));
  // By ARN, whole or without its end.
  EXPECT_EQ(get(root, id(secret_arn({"111122223333", "fairlead-1", {}}, "prod/api.token"))).json["Name"].string(), "prod/api.token");
  EXPECT_EQ(get(root, id("arn:aws:secretsmanager:fairlead-1:111122223333:secret:db")).json["Name"].string(), "db");
  EXPECT_EQ(get(root, Json::object({{"SecretId", "db"}, {"VersionId", said.json["VersionId"]}, {"VersionStage", "AWSCURRENT"}})).status, 200);
  EXPECT_EQ(site.audit.back()["eventName"].string(), "GetSecretValue");
  EXPECT_THAT(kube::print_json(Json::array(site.audit)), Not(HasSubstr("ssword")));
}

TEST_F(SecretsManager, NothingElseIsServed) {
  secret("hidden", Json::object({{"a", "b"}}), "", false);
  secret("one", Json::object({{"a", "b"}}), "twice");
  secret("two", Json::object({{"a", "b"}}), "twice");
  secret("empty", Json::object());
  for (const std::string& name : {std::string("hidden"), std::string("none"), std::string("one"), std::string("empty"), std::string("arn:aws:secretsmanager:fairlead-1:999999999999:secret:db-abcdef"), std::string("fairlead-aws-sessions")}) EXPECT_EQ(get(root, id(name)).code, "ResourceNotFoundException") << name;
  EXPECT_EQ(get(root, id("twice")).code, "InvalidRequestException");
  secret("db", Json::object({{"a", "b"}}));
  EXPECT_EQ(get(root, Json::object({{"SecretId", "db"}, {"VersionStage", "AWSPREVIOUS"}})).code, "ResourceNotFoundException");
  EXPECT_EQ(get(root, Json::object({{"SecretId", "db"}, {"VersionId", std::string(36, 'x')}})).code, "ResourceNotFoundException");
  for (const Json& bad : {Json::object(), id(""), id("a b"), id(std::string(3'000, 'x')), Json::object({{"SecretId", 7}}), Json::object({{"SecretId", "db"}, {"Other", "x"}})}) EXPECT_EQ(get(root, bad).code, "InvalidParameterException") << kube::print_json(bad);
  EXPECT_EQ(get(root, id("db"), "PutSecretValue").code, "UnknownOperationException");
}

TEST_F(SecretsManager, APolicyNamesItByItsArn) {
  secret("db", Json::object({{"a", "b"}}));
  secret("other", Json::object({{"a", "b"}}));
  const auto ada = site.user("ada", {R"({"Statement": {"Effect": "Allow", "Action": "secretsmanager:GetSecretValue", "Resource": "arn:aws:secretsmanager:*:*:secret:db-??????"}})"});
  EXPECT_EQ(get(ada, id("db")).status, 200);
  // What is there and what is not look alike to who may not.
  const auto there = get(ada, id("other")), gone = get(ada, id("none"));
  EXPECT_EQ(there.code, "AccessDeniedException");
  EXPECT_EQ(gone.code, "AccessDeniedException");
  EXPECT_THAT(there.message, HasSubstr("secretsmanager:GetSecretValue"));
  const auto bob = site.user("bob", {R"({"Statement": {"Effect": "Allow", "Action": "secretsmanager:*", "Resource": "*", "Condition": {"StringEquals": {"secretsmanager:SecretId": "db"}}}})"});
  EXPECT_EQ(get(bob, id("db")).status, 200);
  EXPECT_EQ(get(bob, id("other")).code, "AccessDeniedException");
}

}  // namespace
}  // namespace fairlead::hyperpod
