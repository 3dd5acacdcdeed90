// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/eks.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/user_roles.h"
#include "hyperpod/access_policies.h"
#include "hyperpod/test_site.h"

namespace fairlead::hyperpod {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string base64url(std::string text) {
  text = base64(text);
  for (char& c : text) c = c == '+' ? '-' : c == '/' ? '_' : c;
  while (text.ends_with('=')) text.pop_back();
  return text;
}

// As botocore presigns for `aws eks get-token`.
std::string token_of(const Credentials& who, Instant at, const std::string& cluster = "fairlead", const std::string& more = "", const std::string& signed_headers = "host%3Bx-k8s-aws-id", const std::string& action = "GetCallerIdentity") {
  const std::string stamp = aws_timestamp(at);
  std::string query = fmt::format("/?Action={}&Version=2011-06-15&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}%2F{}%2Ffairlead-1%2Fsts%2Faws4_request&X-Amz-Date={}&X-Amz-Expires=60&X-Amz-SignedHeaders={}", action, who.key_id, stamp.substr(0, 8), stamp, signed_headers);
  if (!who.token.empty()) query += "&X-Amz-Security-Token=" + http::escape(who.token);
  query += more;
  http::Request of{.method = "GET", .target = *http::parse_target(query + "&X-Amz-Signature=0"), .headers = {{"host", "127.0.0.1:6444"}, {"x-k8s-aws-id", cluster}}, .body = {}, .peer = {}};
  const Signature signature = *read_signature(of);
  std::string key = "AWS4" + who.secret;
  for (const std::string& part : {stamp.substr(0, 8), std::string("fairlead-1"), std::string("sts"), std::string("aws4_request")}) key = hmac_sha256(key, part);
  const std::string value = hex(hmac_sha256(key, "AWS4-HMAC-SHA256\n" + stamp + "\n" + stamp.substr(0, 8) + "/fairlead-1/sts/aws4_request\n" + hex(sha256(canonical_request(signature, of)))));
  return std::string(eks_token_prefix) + base64url("https://127.0.0.1:6444" + query + "&X-Amz-Signature=" + value);
}

struct EksTokens : testing::Test {
  TestSite site;
  Credentials user(const std::string& name, const char* entry) {
    site.identity("User", name, {}, entry == nullptr ? Json::object() : Json::object({{"accessEntry", *kube::parse_json(entry)}}));
    return site.key_of(name);
  }
  std::string code(const std::string& token) {
    const auto user = site.front->kubernetes_user_of(token);
    return user ? "user " + user->name : user.error().code;
  }
};

TEST_F(EksTokens, SayWhoSomebodyIsInKubernetes) {
  const auto ada = user("ada", R"({"groups": ["trainers", "viewers"]})");
  const auto found = site.front->kubernetes_user_of(token_of(ada, site.clock.now()));
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->name, "arn:aws:iam::111122223333:user/ada");
  EXPECT_THAT(found->groups, ElementsAre("trainers", "viewers"));
  EXPECT_EQ(found->uid, site.directory.identity("user-ada")->id);
  EXPECT_EQ(code(token_of(user("bob", R"({"username": "bob"})"), site.clock.now())), "user bob");
  // Who has no entry has no way in, and neither has who is off.
  EXPECT_EQ(code(token_of(user("cid", nullptr), site.clock.now())), "AccessDeniedException");
  site.identity("User", "dan", {}, Json::object({{"accessEntry", Json::object()}, {"disabled", true}}));
  EXPECT_EQ(code(token_of(site.key_of("dan"), site.clock.now())), "AccessDeniedException");
  // kubectl keeps one for 14 minutes.
  const std::string token = token_of(ada, site.clock.now());
  site.clock.advance(15min);
  EXPECT_EQ(code(token), "user arn:aws:iam::111122223333:user/ada");
  site.clock.advance(1s);
  EXPECT_EQ(code(token), "ExpiredTokenException");
}

TEST_F(EksTokens, OfASession) {
  const auto ada = user("ada", nullptr);
  site.identity("Role", "deploy", {}, Json::object({{"accessEntry", *kube::parse_json(R"({"username": "deploy:{{SessionName}}", "groups": ["deployers"]})")}, {"trustPolicy", R"({"Statement": {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::111122223333:user/ada"}, "Action": "sts:AssumeRole"}})"}}));
  const Credentials night = site.assumed(site.sts(ada, {{"Action", "AssumeRole"}, {"RoleArn", "arn:aws:iam::111122223333:role/deploy"}, {"RoleSessionName", "night"}}));
  EXPECT_EQ(code(token_of(night, site.clock.now())), "user deploy:night");
  Credentials cut = night;
  cut.token.clear();
  EXPECT_EQ(code(token_of(cut, site.clock.now())), "UnrecognizedClientException");
}

// The name of a session is what a caller chooses: it must not make him another user.
TEST_F(EksTokens, ASessionNameIsNoUserName) {
  const auto ada = user("ada", nullptr);
  const auto as = [&](const char* username) {
    site.identity("Role", "deploy", {}, Json::object({{"accessEntry", Json::object({{"username", username}})}, {"trustPolicy", R"({"Statement": {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::111122223333:user/ada"}, "Action": "sts:AssumeRole"}})"}}));
    return code(token_of(site.assumed(site.sts(ada, {{"Action", "AssumeRole"}, {"RoleArn", "arn:aws:iam::111122223333:role/deploy"}, {"RoleSessionName", "alice@home"}})), site.clock.now()));
  };
  EXPECT_EQ(as("d:{{SessionName}}"), "user d:alice-home");
  for (const char* const bad : {"{{SessionName}}", "dev-{{SessionName}}", "{{SessionName}}:x", "a:{{SessionName}}{{SessionName}}"}) EXPECT_EQ(as(bad), "AccessDeniedException") << bad;
  EXPECT_EQ(code(token_of(user("bob", R"({"username": "x:{{SessionName}}"})"), site.clock.now())), "AccessDeniedException");
}

TEST_F(EksTokens, AWebhookIsAnsweredAndTold) {
  const auto ada = user("ada", R"({"groups": ["trainers"]})");
  const auto review = [&](const std::string& token) {
    http::Request of{.method = "POST", .target = *http::parse_target("/kubernetes/token-review"), .headers = {{"Host", "x"}}, .body = R"({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": ")" + token + R"("}})", .peer = {}};
    EXPECT_FALSE(site.front->turn_away(of));
    return site.send(of).json["status"];
  };
  const Json good = review(token_of(ada, site.clock.now()));
  EXPECT_TRUE(good["authenticated"].boolean());
  EXPECT_EQ(good["user"]["groups"], *kube::parse_json(R"(["trainers"])"));
  EXPECT_EQ(site.audit.back()["eventName"].string(), "ReviewToken");
  EXPECT_EQ(site.audit.back()["userIdentity"]["arn"].string(), "arn:aws:iam::111122223333:user/ada");
  EXPECT_FALSE(review("k8s-aws-v1.x")["authenticated"].boolean());
  EXPECT_EQ(site.audit.back()["errorCode"].string(), "InvalidIdentityToken");
  http::Request large{.method = "POST", .target = *http::parse_target("/kubernetes/token-review"), .headers = {{"Host", "x"}}, .body = std::string(33 << 10, ' '), .peer = {}};
  EXPECT_EQ(site.front->turn_away(large)->status, 413);
  large.body = "[]";
  EXPECT_EQ(site.send(large).status, 400);
}

TEST_F(EksTokens, NothingElseIsOne) {
  const auto ada = user("ada", "{}");
  const Instant now = site.clock.now();
  Credentials wrong = ada;
  wrong.secret = "another";
  EXPECT_EQ(code(token_of(wrong, now)), "InvalidSignatureException");
  EXPECT_EQ(code(token_of(ada, now, "another-cluster")), "InvalidSignatureException");
  EXPECT_EQ(code(token_of(ada, now, "fairlead", "", "host")), "InvalidIdentityToken");  // signed for no cluster: a presigned request from elsewhere
  EXPECT_EQ(code(token_of(ada, now, "fairlead", "", "host%3Bx-k8s-aws-id", "AssumeRole")), "InvalidIdentityToken");
  EXPECT_EQ(code(token_of(ada, now, "fairlead", "&RoleArn=x")), "InvalidIdentityToken");
  EXPECT_EQ(code(token_of(ada, now, "fairlead", "&Action=GetCallerIdentity")), "InvalidIdentityToken");
  EXPECT_EQ(code(token_of(ada, now + 16min)), "ExpiredTokenException");
  for (const std::string url : {"", "http://127.0.0.1/?Action=GetCallerIdentity", "https://", "https://h", "https://h/x?Action=GetCallerIdentity", "https://a@h/?Action=GetCallerIdentity", "https://h/?Action=GetCallerIdentity"}) EXPECT_EQ(code("k8s-aws-v1." + base64url(url)), "InvalidIdentityToken") << url;
  for (const std::string token : {"", "k8s-aws-v1.", "k8s-aws-v1.***", "k8s-aws-v2.aaaa", "eyJ.a.b"}) EXPECT_EQ(code(token), "InvalidIdentityToken") << token;
  EXPECT_EQ(code("k8s-aws-v1." + std::string(100'000, 'A')), "InvalidIdentityToken");
  // No access entry makes an administrator, whoever wrote it.
  for (const char* const entry : {R"({"groups": ["system:masters"]})", R"({"username": "system:admin"})", R"({"username": "EKS:x"})", R"({"groups": ["fine", "aws:x"]})", R"({"groups": ["kubeadm:cluster-admins"]})"}) EXPECT_EQ(code(token_of(user("eve", entry), now)), "AccessDeniedException") << entry;
}

struct EksService : testing::Test {
  TestSite site;
  Credentials admin;
  EksService() {
    site.iam(site.user("root", {everything}), {{"Action", "CreateUser"}, {"UserName", "admin"}});
    const auto root = site.key_of("root");
    site.iam(root, {{"Action", "PutUserPolicy"}, {"UserName", "admin"}, {"PolicyName", "p"}, {"PolicyDocument", everything}});
    const auto key = site.iam(root, {{"Action", "CreateAccessKey"}, {"UserName", "admin"}});
    admin = {key.text("AccessKeyId"), key.text("SecretAccessKey"), ""};
  }
  TestSite::Said call(const char* method, const std::string& target, const char* body = "", const Credentials* who = nullptr) {
    http::Request of{.method = method, .target = *http::parse_target(target), .headers = {{"Host", "127.0.0.1:6444"}, {"Content-Type", "application/json"}}, .body = body, .peer = {}};
    sign_request(of, who == nullptr ? admin : *who, "fairlead-1", "eks", site.clock.now());
    return site.send(std::move(of));
  }
};

TEST_F(EksService, TellsOfItsKubernetes) {
  EXPECT_EQ(call("GET", "/clusters").json["clusters"], *kube::parse_json(R"(["fairlead"])"));
  const Json cluster = call("GET", "/clusters/fairlead").json["cluster"];
  EXPECT_EQ(cluster["arn"].string(), "arn:aws:eks:fairlead-1:111122223333:cluster/fairlead");
  EXPECT_EQ(cluster["endpoint"].string(), "https://api:6443");
  EXPECT_EQ(cluster["certificateAuthority"]["data"].string(), base64("PEM"));
  EXPECT_EQ(cluster["status"].string(), "ACTIVE");
  const auto none = call("GET", "/clusters/none");
  EXPECT_EQ(none.status, 404);
  EXPECT_EQ(none.message, "No cluster found for name: none.");
  EXPECT_EQ(call("GET", "/clusters/fairlead/addons").json["addons"].items().size(), 0U);
  EXPECT_EQ(call("GET", "/clusters/fairlead/addons/x").status, 404);
  for (const auto& [method, target] : {std::pair{"DELETE", "/clusters/fairlead"}, {"POST", "/clusters"}, {"GET", "/"}, {"GET", "/clusters/fairlead/nodegroups"}}) EXPECT_EQ(call(method, target).status, 404) << target;
}

TEST_F(EksService, AccessEntriesComeAndGo) {
  const std::string admin_arn = "arn:aws:iam::111122223333:user/admin", entries = "/clusters/fairlead/access-entries", one = entries + "/" + http::escape(admin_arn);
  EXPECT_EQ(call("GET", one).status, 404);
  EXPECT_EQ(call("POST", entries, R"({"principalArn": "arn:aws:iam::111122223333:user/nobody"})").status, 400);
  EXPECT_THAT(call("POST", entries, R"({"principalArn": "arn:aws:iam::111122223333:user/admin", "kubernetesGroups": ["system:masters"]})").message, HasSubstr("cannot start with any of [system:"));
  const auto made = call("POST", entries, R"({"principalArn": "arn:aws:iam::111122223333:user/admin", "kubernetesGroups": ["trainers"], "type": "STANDARD", "clientRequestToken": "x"})");
  ASSERT_EQ(made.status, 200) << made.body;
  EXPECT_EQ(made.json["accessEntry"]["username"].string(), admin_arn);
  EXPECT_EQ(call("POST", entries, R"({"principalArn": "arn:aws:iam::111122223333:user/admin"})").status, 409);
  EXPECT_EQ(call("GET", entries).json["accessEntries"], Json::array({Json(admin_arn)}));
  EXPECT_EQ(call("POST", one, R"({"username": "root-of-all"})").json["accessEntry"]["username"].string(), "root-of-all");
  EXPECT_EQ(call("GET", one).json["accessEntry"]["kubernetesGroups"], Json::array({Json("trainers")}));
  EXPECT_EQ(call("GET", one + "/access-policies").json["associatedAccessPolicies"].items().size(), 0U);
  for (const auto& [key, object] : site.api.all("identities")) site.directory.put_identity(object);
  EXPECT_TRUE(site.front->kubernetes_user_of(token_of(admin, site.clock.now())));
  EXPECT_EQ(call("DELETE", one).status, 200);
  for (const auto& [key, object] : site.api.all("identities")) site.directory.put_identity(object);
  EXPECT_FALSE(site.front->kubernetes_user_of(token_of(admin, site.clock.now())));
}

// An access policy is a group that only it gives, and gives what an administrator has bound to the group; without that it is refused.
TEST_F(EksService, AccessPoliciesGiveWhatAnAdministratorOffers) {
  const std::string arn = "arn:aws:iam::111122223333:user/admin", entries = "/clusters/fairlead/access-entries", policies = entries + "/" + http::escape(arn) + "/access-policies";
  const auto associate = [&](const char* policy, const char* scope, const Credentials* who = nullptr) { return call("POST", policies, fmt::format(R"({{"policyArn": "arn:aws:eks::aws:cluster-access-policy/{}", "accessScope": {}}})", policy, scope).c_str(), who); };
  const auto groups = [&] {
    for (const auto& [key, object] : site.api.all("identities")) site.directory.put_identity(object);
    return site.front->kubernetes_user_of(token_of(admin, site.clock.now()))->groups;
  };
  const auto bind = [&](const kube::Resource& resource, const char* space, const char* group) {
    Json meta = Json::object({{"name", "offer"}});
    if (resource.namespaced) meta.set("namespace", space);
    ASSERT_TRUE(site.api.create(resource, Json::object({{"metadata", std::move(meta)}, {"roleRef", Json::object({{"kind", "ClusterRole"}, {"name", "view"}})}, {"subjects", Json::array({Json::object({{"kind", "Group"}, {"name", group}})})}})));
  };
  EXPECT_EQ(call("GET", "/access-policies").json["accessPolicies"].items().size(), 4U);
  EXPECT_EQ(associate("AmazonEKSViewPolicy", R"({"type": "cluster"})").status, 404) << "there is no entry";
  ASSERT_EQ(call("POST", entries, (R"({"principalArn": ")" + arn + R"(", "kubernetesGroups": ["trainers"]})").c_str()).status, 200);
  EXPECT_THAT(associate("AmazonEKSViewPolicy", R"({"type": "cluster"})").message, HasSubstr("kubectl create clusterrolebinding fairlead-access-view --clusterrole=view --group=fairlead:access:view`"));
  EXPECT_THAT(associate("AmazonEKSViewPolicy", R"({"type": "namespace", "namespaces": ["a"]})").message, HasSubstr("kubectl -n a create rolebinding fairlead-access-view --clusterrole=view --group=fairlead:access:view:a`"));
  bind(api::rbac::role_bindings, "a", "fairlead:access:view:a");
  EXPECT_EQ(associate("AmazonEKSViewPolicy", R"({"type": "cluster"})").status, 400) << "what is offered in one namespace is not offered everywhere";
  EXPECT_EQ(associate("AmazonEKSEditPolicy", R"({"type": "namespace", "namespaces": ["a"]})").status, 400);
  EXPECT_EQ(associate("AmazonEKSViewPolicy", R"({"type": "namespace", "namespaces": ["a", "b"]})").status, 400);
  EXPECT_THAT(groups(), ElementsAre("trainers"));
  const auto made = associate("AmazonEKSViewPolicy", R"({"type": "namespace", "namespaces": ["a"]})");
  ASSERT_EQ(made.status, 200) << made.body;
  EXPECT_EQ(made.json["associatedAccessPolicy"]["accessScope"], *kube::parse_json(R"({"type": "namespace", "namespaces": ["a"]})"));
  EXPECT_THAT(groups(), ElementsAre("trainers", "fairlead:access:view:a"));
  bind(api::rbac::cluster_role_bindings, "", "fairlead:access:view");
  EXPECT_EQ(associate("AmazonEKSViewPolicy", R"({"type": "cluster"})").status, 200);
  EXPECT_THAT(groups(), ElementsAre("trainers", "fairlead:access:view")) << "again is instead";
  const Json listed = call("GET", policies).json["associatedAccessPolicies"];
  ASSERT_EQ(listed.items().size(), 1U);
  EXPECT_EQ(listed.items()[0]["policyArn"].string(), "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy");
  EXPECT_EQ(listed.items()[0]["accessScope"]["type"].string(), "cluster");
  EXPECT_EQ(call("POST", entries + "/" + http::escape(arn), R"({"kubernetesGroups": []})").status, 200);
  EXPECT_THAT(groups(), ElementsAre("fairlead:access:view")) << "an update of the entry leaves its policies";
  for (const char* const odd : {R"({"type": "cluster", "namespaces": ["a"]})", R"({"type": "namespace"})", R"({"type": "namespace", "namespaces": ["a-*"]})", R"({"type": "namespace", "namespaces": "a"})", "{}", "7"}) EXPECT_EQ(associate("AmazonEKSViewPolicy", odd).status, 400) << odd;
  EXPECT_EQ(associate("AmazonEKSNoPolicy", R"({"type": "cluster"})").status, 400);
  const auto bob = site.user("bob", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "eks:*", "Resource": "*", "Condition": {"StringEquals": {"eks:accessScope": "namespace"}, "ForAllValues:StringEquals": {"eks:namespaces": ["a"]}}}})"});
  EXPECT_EQ(associate("AmazonEKSViewPolicy", R"({"type": "cluster"})", &bob).status, 403);
  EXPECT_EQ(associate("AmazonEKSViewPolicy", R"({"type": "namespace", "namespaces": ["b"]})", &bob).status, 403);
  EXPECT_EQ(associate("AmazonEKSViewPolicy", R"({"type": "namespace", "namespaces": ["a"]})", &bob).status, 200);
  // A Deny by what the entry is holds for all that changes it, and by a scope for what has one.
  ASSERT_EQ(call("POST", entries + "/" + http::escape(arn), R"({"kubernetesGroups": ["locked"]})").status, 200);
  const auto cid = site.user("cid", {R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "eks:*", "Resource": "*"}, {"Effect": "Deny", "Action": "eks:*", "Resource": "*", "Condition": {"ForAnyValue:StringEquals": {"eks:kubernetesGroups": "locked"}}}, {"Effect": "Deny", "Action": "eks:*", "Resource": "*", "Condition": {"StringEquals": {"eks:accessScope": "cluster"}}}]})"});
  const std::string view = policies + "/" + http::escape("arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy");
  EXPECT_EQ(associate("AmazonEKSViewPolicy", R"({"type": "namespace", "namespaces": ["a"]})", &cid).status, 403);
  EXPECT_EQ(call("DELETE", view, "", &cid).status, 403);
  EXPECT_EQ(call("DELETE", entries + "/" + http::escape(arn), "", &cid).status, 403);
  EXPECT_EQ(call("GET", "/clusters/fairlead", "", &cid).status, 200);
  ASSERT_EQ(call("POST", entries + "/" + http::escape(arn), R"({"kubernetesGroups": []})").status, 200);
  EXPECT_EQ(associate("AmazonEKSViewPolicy", R"({"type": "cluster"})", &cid).status, 403);
  EXPECT_EQ(call("DELETE", view).status, 200);
  EXPECT_EQ(call("DELETE", view).status, 404);
  EXPECT_THAT(groups(), ElementsAre());
  // Nobody names such a group himself, and what an object holds beside that gives nothing.
  EXPECT_EQ(call("POST", entries + "/" + http::escape(arn), R"({"kubernetesGroups": ["fairlead:access:view"]})").status, 400);
  EXPECT_THAT(groups_of_policies(*kube::parse_json(R"([{"policyArn": "x"}, {"policyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSEditPolicy", "namespaces": {}}, {"policyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSEditPolicy", "namespaces": [7, ""]}])")), ElementsAre());
}

// Conditions see what an entry would be, not what they are not told.
TEST_F(EksService, ConditionsSeeTheEntry) {
  const std::string ada_arn = "arn:aws:iam::111122223333:user/ada", entries = "/clusters/fairlead/access-entries";
  site.iam(admin, {{"Action", "CreateUser"}, {"UserName", "ada"}});
  const auto bob = site.user("bob", {R"({"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Action": "eks:*", "Resource": "*", "Condition": {"ForAllValues:StringEquals": {"eks:kubernetesGroups": ["trainers", "viewers"]}, "StringLikeIfExists": {"eks:username": "guest-*"}}},
    {"Effect": "Deny", "Action": "eks:*", "Resource": "*", "Condition": {"ArnLike": {"eks:principalArn": "arn:aws:iam::111122223333:user/admin"}}}]})"});
  const auto create = [&](const std::string& arn, const char* more) { return call("POST", entries, (R"({"principalArn": ")" + arn + "\"" + more + "}").c_str(), &bob).status; };
  EXPECT_EQ(create(ada_arn, R"(, "kubernetesGroups": ["admins"])"), 403);
  EXPECT_EQ(create(ada_arn, R"(, "kubernetesGroups": ["trainers", "admins"])"), 403);
  EXPECT_EQ(create(ada_arn, R"(, "username": "boss")"), 403);
  EXPECT_EQ(create("arn:aws:iam::111122223333:user/admin", ""), 403);
  EXPECT_EQ(create(ada_arn, R"(, "kubernetesGroups": ["trainers"], "username": "guest-1")"), 200);
  const std::string one = entries + "/" + http::escape(ada_arn);
  EXPECT_EQ(call("POST", one, R"({"kubernetesGroups": ["admins"]})", &bob).status, 403);
  EXPECT_EQ(call("POST", one, R"({"kubernetesGroups": ["viewers"]})", &bob).status, 200);
}

TEST_F(EksService, WhoMayNotIsToldInEksForm) {
  const auto bob = site.user("bob", {});
  const auto said = call("GET", "/clusters/fairlead", "", &bob);
  EXPECT_EQ(said.status, 403);
  EXPECT_THAT(said.message, HasSubstr("not authorized to perform: eks:DescribeCluster on resource: arn:aws:eks:fairlead-1:111122223333:cluster/fairlead"));
  EXPECT_EQ(call("POST", "/clusters/fairlead/access-entries", R"({"principalArn": "arn:aws:iam::111122223333:user/bob", "kubernetesGroups": ["trainers"]})", &bob).status, 403);
  const Credentials stranger{"AKIAAAAAAAAAAAAAAAAA", "secret", ""};
  EXPECT_EQ(call("GET", "/clusters", "", &stranger).status, 403);
  EXPECT_EQ(site.audit.back()["eventName"].string(), "ListClusters");
  EXPECT_EQ(site.audit.back()["eventSource"].string(), "eks.amazonaws.com");
}

}  // namespace
}  // namespace fairlead::hyperpod
