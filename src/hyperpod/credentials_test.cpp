// SPDX-License-Identifier: Apache-2.0
// Credentials of pods: AssumeRoleWithWebIdentity, pod identity associations and the endpoint of container credentials, against the trust policies of roles.
#include <gmock/gmock.h>

#include "hyperpod/test_site.h"

namespace fairlead::hyperpod {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* provider = "arn:aws:iam::111122223333:oidc-provider/kubernetes.default.svc.cluster.local";
constexpr const char* role_arn = "arn:aws:iam::111122223333:role/trainer";

std::string web_trust(const std::string& conditions, const std::string& of = provider, const std::string& action = "sts:AssumeRoleWithWebIdentity") {
  return fmt::format(R"({{"Version": "2012-10-17", "Statement": {{"Effect": "Allow", "Principal": {{"Federated": "{}"}}, "Action": "{}"{}}}}})", of, action, conditions);
}
const std::string for_train = R"(, "Condition": {"StringEquals": {"kubernetes.default.svc.cluster.local:sub": "system:serviceaccount:ml:train", "kubernetes.default.svc.cluster.local:aud": "sts.amazonaws.com"}})";
constexpr const char* pods_trust = R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": ["sts:AssumeRole", "sts:TagSession"]}})";

struct PodCredentials : testing::Test {
  TestSite site;
  void role(const std::string& name, const std::string& trust, std::vector<std::string> policies = {}, Json more = Json::object()) {
    site.identity("Role", name, std::move(policies), more.set("trustPolicy", trust));
    const std::string object = api::identities::object_name(api::identities::Type::Role, name);
    ASSERT_TRUE(site.api.put(api::identities::identities, Json::object({{"metadata", Json::object({{"name", object}, {"uid", "api-" + object}})}, {"spec", Json::object({{"type", "Role"}, {"name", name}, {"trustPolicy", trust}}) }})));
  }
  std::string web_token(const std::string& space = "ml", const std::string& account = "train", const std::string& audience = "sts.amazonaws.com") { return site.reviews.issue(space, account, audience, site.clock.now() + 1h); }
  TestSite::Said assume(const std::string& token, std::vector<std::pair<std::string, std::string>> more = {}) {
    std::vector<std::pair<std::string, std::string>> form{{"Action", "AssumeRoleWithWebIdentity"}, {"RoleArn", role_arn}, {"RoleSessionName", "job-1"}, {"WebIdentityToken", token}};
    for (auto& one : more) {
      std::erase_if(form, [&](const auto& there) { return there.first == one.first; });
      form.push_back(std::move(one));
    }
    return site.unsigned_form(form);
  }
};

TEST_F(PodCredentials, ATokenOfAnAccountIsExchangedForTheRoleThatTrustsIt) {
  role("trainer", web_trust(for_train), {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sagemaker:ListClusters", "Resource": "*"}})"});
  const auto said = assume(web_token());
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_EQ(said.text("Arn"), "arn:aws:sts::111122223333:assumed-role/trainer/job-1");
  EXPECT_EQ(said.text("SubjectFromWebIdentityToken"), "system:serviceaccount:ml:train");
  EXPECT_EQ(said.text("Provider"), provider);
  EXPECT_EQ(said.text("Audience"), "sts.amazonaws.com");
  EXPECT_EQ(said.text("Expiration"), "2026-11-25T13:00:00Z");
  // What they are good for is what the role may, as its session.
  const Credentials session = site.assumed(said);
  EXPECT_EQ(site.sts(session, {{"Action", "GetCallerIdentity"}}).text("Arn"), "arn:aws:sts::111122223333:assumed-role/trainer/job-1");
  EXPECT_EQ(site.call(session, "ListClusters").status, 200);
  EXPECT_EQ(site.call(session, "ListComputeQuotas").code, "AccessDeniedException");
  site.clock.advance(1h);
  EXPECT_EQ(site.call(session, "ListClusters").code, "ExpiredTokenException");
  // The audit tells who it was, and no token.
  const Json& record = site.audit.front();
  EXPECT_EQ(record["eventName"].string(), "AssumeRoleWithWebIdentity");
  EXPECT_EQ(record["userIdentity"]["type"].string(), "WebIdentityUser");
  EXPECT_EQ(record["userIdentity"]["principalId"].string(), "https://kubernetes.default.svc.cluster.local:sts.amazonaws.com:system:serviceaccount:ml:train");
  for (const Json& one : site.audit) EXPECT_THAT(kube::print_json(one), testing::Not(HasSubstr(session.secret)));
}

struct Untrusted {
  const char* name;
  std::string trust;
};
class TrustsOthers : public PodCredentials, public testing::WithParamInterface<Untrusted> {};
TEST_P(TrustsOthers, IsDeniedInOneAndTheSameWay) {
  role("trainer", GetParam().trust);
  const auto said = assume(web_token());
  EXPECT_EQ(said.status, 403) << said.body;
  EXPECT_EQ(said.code, "AccessDenied");
  EXPECT_THAT(said.message, AllOf(HasSubstr("Not authorized to perform sts:AssumeRoleWithWebIdentity"), HasSubstr(provider)));
  // As of one that is not there.
  EXPECT_EQ(assume(web_token(), {{"RoleArn", "arn:aws:iam::111122223333:role/nobody"}}).code, "AccessDenied");
}
const std::string of_nobody = R"(, "Condition": {"StringEquals": {"kubernetes.default.svc.cluster.local:sub": "system:serviceaccount:ml:other"}})";
INSTANTIATE_TEST_SUITE_P(Trust, TrustsOthers,
                         testing::Values(Untrusted{"another_account", web_trust(of_nobody)}, Untrusted{"another_provider", web_trust(for_train, "arn:aws:iam::111122223333:oidc-provider/elsewhere.example")},
                                         Untrusted{"a_provider_of_another_site", web_trust(for_train, "arn:aws:iam::999999999999:oidc-provider/kubernetes.default.svc.cluster.local")}, Untrusted{"another_action", web_trust(for_train, provider, "sts:AssumeRole")},
                                         Untrusted{"another_audience", web_trust(R"(, "Condition": {"StringEquals": {"kubernetes.default.svc.cluster.local:aud": "vault"}})")},
                                         Untrusted{"a_key_of_another_issuer", web_trust(R"(, "Condition": {"StringEquals": {"oidc.eks.example.com/id/1:sub": "system:serviceaccount:ml:train"}})")},
                                         Untrusted{"the_account", R"({"Statement": {"Effect": "Allow", "Principal": {"AWS": "111122223333"}, "Action": "sts:*"}})"},
                                         Untrusted{"everybody", R"({"Statement": {"Effect": "Allow", "Principal": "*", "Action": "sts:*"}})"},
                                         Untrusted{"denied_to_all", R"({"Statement": [{"Effect": "Allow", "Principal": {"Federated": "arn:aws:iam::111122223333:oidc-provider/kubernetes.default.svc.cluster.local"}, "Action": "sts:*"}, {"Effect": "Deny", "Principal": "*", "Action": "sts:AssumeRoleWithWebIdentity"}]})"},
                                         Untrusted{"the_nodes", trusts_sagemaker}),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_F(PodCredentials, PatternsOfAccountsAreUnderstood) {
  role("trainer", web_trust(R"(, "Condition": {"StringLike": {"kubernetes.default.svc.cluster.local:sub": "system:serviceaccount:ml:*"}, "StringEquals": {"kubernetes.default.svc.cluster.local:aud": "sts.amazonaws.com"}})"));
  EXPECT_EQ(assume(web_token("ml", "any")).status, 200);
  EXPECT_EQ(assume(web_token("mls", "any")).code, "AccessDenied");
}

TEST_F(PodCredentials, ARoleThatIsOffOrBrokenIsNotGiven) {
  role("trainer", web_trust(for_train), {}, Json::object({{"disabled", true}}));
  EXPECT_EQ(assume(web_token()).code, "AccessDenied");
  role("trainer", web_trust(for_train), {"{broken"});
  EXPECT_EQ(assume(web_token()).code, "AccessDenied");
  // One of the same name that is made later ends the sessions of the first.
  role("trainer", web_trust(for_train), {everything});
  const Credentials session = site.assumed(assume(web_token()));
  EXPECT_EQ(site.call(session, "ListClusters").status, 200);
  role("trainer", web_trust(for_train), {everything});
  EXPECT_EQ(site.call(session, "ListClusters").code, "UnrecognizedClientException");
}

TEST_F(PodCredentials, WhatIsNoSuchTokenIsRefused) {
  role("trainer", web_trust(for_train));
  const std::string good = web_token();
  EXPECT_EQ(assume("no token at all").code, "InvalidIdentityToken");
  EXPECT_EQ(site.reviews.asked, 0) << "what cannot be a token asks nobody";
  const auto elsewhere = assume(web_token("ml", "train", "https://kubernetes.default.svc.cluster.local"));
  EXPECT_EQ(elsewhere.code, "InvalidIdentityToken");
  EXPECT_THAT(elsewhere.message, HasSubstr("Incorrect token audience"));
  EXPECT_EQ(assume(web_token("ml", "train", "pods.eks.amazonaws.com")).code, "InvalidIdentityToken") << "one for another way in is none for this one";
  EXPECT_EQ(site.reviews.asked, 0);
  EXPECT_EQ(assume(good + "x").code, "InvalidIdentityToken");
  EXPECT_EQ(site.reviews.asked, 1);
  site.reviews.tokens[good].set("audiences", Json::array());  // an API that knows no audiences: it could be for anybody
  EXPECT_EQ(assume(good).code, "InvalidIdentityToken");
  site.reviews.tokens[good].erase("audiences");
  EXPECT_EQ(assume(good).code, "InvalidIdentityToken");
  const std::string person = web_token();
  site.reviews.tokens[person].child("user").set("username", "ada");
  EXPECT_EQ(assume(person).code, "InvalidIdentityToken");
  const std::string another = web_token();
  site.reviews.tokens[another].child("user").set("username", "system:serviceaccount:ml:other");  // the token says train
  EXPECT_EQ(assume(another).code, "InvalidIdentityToken");
  site.reviews.away = true;
  const std::string late = web_token();
  EXPECT_EQ(assume(late).code, "IDPCommunicationError") << "SDKs try again";
  site.reviews.away = false;
  EXPECT_EQ(assume(late).status, 200);
  site.clock.advance(1h);
  EXPECT_EQ(assume(late).code, "ExpiredToken");
}

TEST_F(PodCredentials, ParametersAreThoseOfSts) {
  role("trainer", web_trust(for_train), {everything}, Json::object({{"maxSessionSeconds", 7200}}));
  const auto code = [&](std::vector<std::pair<std::string, std::string>> more) { return assume(web_token(), std::move(more)).code; };
  EXPECT_EQ(code({{"DurationSeconds", "899"}}), "ValidationError");
  EXPECT_EQ(code({{"DurationSeconds", "7201"}}), "ValidationError");
  EXPECT_EQ(code({{"RoleSessionName", "a b"}}), "ValidationError");
  EXPECT_EQ(code({{"ProviderId", "www.amazon.com"}}), "ValidationError");
  EXPECT_EQ(code({{"PolicyArns.member.1.arn", "arn:aws:iam::aws:policy/ReadOnly"}}), "ValidationError");
  EXPECT_EQ(code({{"Policy", "{"}}), "MalformedPolicyDocument");
  EXPECT_EQ(code({{"WebIdentityToken", ""}}), "ValidationError");
  EXPECT_EQ(code({{"WebIdentityToken", std::string(20'001, 'a')}}), "ValidationError");
  EXPECT_EQ(assume(web_token(), {{"DurationSeconds", "7200"}}).text("Expiration"), "2026-11-25T14:00:00Z");
  const Credentials less = site.assumed(assume(web_token(), {{"Policy", R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sagemaker:ListTags", "Resource": "*"}})"}}));
  EXPECT_EQ(site.call(less, "ListClusters").code, "AccessDeniedException") << "a policy of the session takes away";
  // Who signs is answered as who he is: this exchange is for those who cannot.
  EXPECT_EQ(site.sts(site.user("ada", {everything}), {{"Action", "AssumeRoleWithWebIdentity"}, {"RoleArn", role_arn}, {"RoleSessionName", "x1"}, {"WebIdentityToken", web_token()}}).code, "InvalidAction");
}

TEST_F(PodCredentials, AnAddressThatAsksWithoutEndWaits) {
  role("trainer", web_trust(for_train));
  site.front = std::make_unique<Front>(site.model(), site.directory, site.seal, Operations(), site.clock, FrontOptions{.review_account = [this](std::string_view token, const std::string& audience) { return review_account_token(site.reviews, token, audience, site.clock.now()); }});
  const std::string token = web_token();
  std::string last;
  int served = 0;
  for (int i = 0; i < 200; ++i) last = assume(token).code, served += last.empty();
  EXPECT_EQ(last, "Throttling");
  EXPECT_EQ(served, 100);
  site.clock.advance(1s);
  EXPECT_EQ(assume(token).status, 200);
}

// ---- pod identity associations

struct Associations : PodCredentials {
  Credentials ada = site.user("ada", {everything});
  struct Answered {
    int status = 0;
    std::string code;
    Json body;
  };
  Answered eks(const Credentials& who, const std::string& method, const std::string& path, const Json& body = Json()) {
    http::Request of{.method = method, .target = *http::parse_target("/clusters/fairlead/pod-identity-associations" + path), .headers = {{"Host", "127.0.0.1:6444"}, {"Content-Type", "application/json"}}, .body = body.is_null() ? "" : kube::print_json(body), .peer = {.address = "127.0.0.1", .common_name = {}, .organizations = {}}};
    sign_request(of, who, "fairlead-1", "eks", site.clock.now());
    const auto response = site.front->answer(of);
    auto json = kube::parse_json(response.body);
    return {response.status, std::string(http::find(response.headers, "x-amzn-errortype")), json ? std::move(*json) : Json()};
  }
  Answered associate(const std::string& account = "train", const std::string& role_of = role_arn) { return eks(ada, "POST", "", Json::object({{"namespace", "ml"}, {"serviceAccount", account}, {"roleArn", role_of}})); }
  TestSite::Said fetch(const std::string& token) { return site.send({.method = "GET", .target = *http::parse_target("/v1/credentials"), .headers = {{"Host", "x"}, {"Authorization", token}}, .body = {}, .peer = {.address = "10.77.1.3", .common_name = {}, .organizations = {}}}); }
  std::string pod_token(const std::string& account = "train") { return web_token("ml", account, "pods.eks.amazonaws.com"); }
};

TEST_F(Associations, AreMadeDescribedListedChangedAndDeleted) {
  role("trainer", pods_trust);
  role("other", pods_trust);
  const auto made = associate();
  ASSERT_EQ(made.status, 200) << kube::print_json(made.body);
  const Json& one = made.body["association"];
  const std::string id = one["associationId"].string();
  EXPECT_THAT(id, testing::MatchesRegex("a-[a-z0-9]+"));
  EXPECT_EQ(one["associationArn"].string(), "arn:aws:eks:fairlead-1:111122223333:podidentityassociation/fairlead/" + id);
  EXPECT_EQ(one["namespace"].string() + "/" + one["serviceAccount"].string() + " " + one["roleArn"].string() + " " + one["clusterName"].string(), std::string("ml/train ") + role_arn + " fairlead");
  EXPECT_EQ(associate().status, 409);
  EXPECT_EQ(associate().code, "ResourceInUseException");
  EXPECT_EQ(eks(ada, "GET", "/" + id).body["association"]["roleArn"].string(), role_arn);
  ASSERT_EQ(associate("other").status, 200);
  EXPECT_EQ(eks(ada, "GET", "").body["associations"].items().size(), 2u);
  const auto some = eks(ada, "GET", "?namespace=ml&serviceAccount=train");
  ASSERT_EQ(some.body["associations"].items().size(), 1u);
  EXPECT_EQ(some.body["associations"].items()[0]["associationId"].string(), id);
  EXPECT_EQ(eks(ada, "GET", "?namespace=elsewhere").body["associations"].items().size(), 0u);
  const auto page = eks(ada, "GET", "?maxResults=1");
  EXPECT_EQ(page.body["associations"].items().size(), 1u);
  EXPECT_EQ(eks(ada, "GET", "?maxResults=1&nextToken=" + http::escape(page.body["nextToken"].string())).body["associations"].items().size(), 1u);
  EXPECT_EQ(eks(ada, "POST", "/" + id, Json::object({{"roleArn", "arn:aws:iam::111122223333:role/other"}})).body["association"]["roleArn"].string(), "arn:aws:iam::111122223333:role/other");
  EXPECT_EQ(eks(ada, "DELETE", "/" + id).body["association"]["associationId"].string(), id);
  EXPECT_EQ(eks(ada, "GET", "/" + id).status, 404);
  EXPECT_EQ(eks(ada, "GET", "/" + id).code, "ResourceNotFoundException");
  // With the token of before it is another one: that one is gone.
  EXPECT_NE(associate().body["association"]["associationId"].string(), id);
}

TEST_F(Associations, TakeRolesWhateverPoliciesAreAttachedToThem) {
  role("trainer", pods_trust);
  Json object = site.api.all("identities").at({"", "role-trainer"});
  object.child("spec").set("attachedPolicies", Json::array({Json("arn:aws:iam::111122223333:policy/data")}));
  ASSERT_TRUE(site.api.put(api::identities::identities, object));
  EXPECT_EQ(associate().status, 200);
}

TEST_F(Associations, TagsOfAnAssociationDecide) {
  role("trainer", pods_trust);
  const auto made = eks(ada, "POST", "", Json::object({{"namespace", "ml"}, {"serviceAccount", "train"}, {"roleArn", role_arn}, {"tags", Json::object({{"keep", "yes"}})}}));
  ASSERT_EQ(made.status, 200) << kube::print_json(made.body);
  const std::string path = "/" + made.body["association"]["associationId"].string();
  const Credentials eve = site.user("eve", {R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "eks:*", "Resource": "*"}, {"Effect": "Deny", "Action": "eks:DeletePodIdentityAssociation", "Resource": "*", "Condition": {"StringEquals": {"aws:ResourceTag/keep": "yes"}}}]})"});
  EXPECT_EQ(eks(eve, "GET", path).status, 200);
  EXPECT_EQ(eks(eve, "DELETE", path).code, "AccessDeniedException");
  EXPECT_EQ(eks(ada, "DELETE", path).status, 200);
}

TEST_F(Associations, NeedARoleThatMayBePassedAndTrusts) {
  role("trainer", pods_trust);
  const Credentials bob = site.user("bob", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "eks:*", "Resource": "*"}})"});
  const Json input = Json::object({{"namespace", "ml"}, {"serviceAccount", "train"}, {"roleArn", role_arn}});
  const auto refused = eks(bob, "POST", "", input);
  EXPECT_EQ(refused.code, "AccessDeniedException");
  EXPECT_THAT(refused.body["message"].string(), HasSubstr("iam:PassRole"));
  const Credentials cid = site.user("cid", {R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "eks:*", "Resource": "*"}, {"Effect": "Allow", "Action": "iam:PassRole", "Resource": "*", "Condition": {"StringEquals": {"iam:PassedToService": "pods.eks.amazonaws.com"}}}]})"});
  EXPECT_EQ(eks(cid, "POST", "", input).status, 200);
  EXPECT_EQ(eks(site.user("dan", {}), "GET", "").code, "AccessDeniedException");
  EXPECT_THAT(associate("a", "arn:aws:iam::111122223333:role/nobody").body["message"].string(), HasSubstr("does not exist"));
  for (const char* const trust : {trusts_sagemaker, R"({"Statement": {"Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": "sts:AssumeRole"}})"}) {
    role("trainer", trust);
    const auto said = associate("b");
    EXPECT_EQ(said.code, "InvalidParameterException") << trust;
    EXPECT_THAT(said.body["message"].string(), HasSubstr(R"("Action": ["sts:AssumeRole", "sts:TagSession"]})"));
  }
  role("trainer", pods_trust);
  for (const Json& wrong : {Json::object({{"namespace", "ML"}, {"serviceAccount", "train"}, {"roleArn", role_arn}}), Json::object({{"namespace", "ml"}, {"serviceAccount", "a/b"}, {"roleArn", role_arn}}), Json::object({{"namespace", "ml"}, {"serviceAccount", "c"}}),
                            Json::object({{"namespace", "ml"}, {"serviceAccount", "c"}, {"roleArn", role_arn}, {"targetRoleArn", role_arn}}), Json::object({{"namespace", "ml"}, {"serviceAccount", "c"}, {"roleArn", role_arn}, {"tags", Json::object({{"aws:x", "y"}})}})})
    EXPECT_EQ(eks(ada, "POST", "", wrong).code, "InvalidParameterException") << kube::print_json(wrong);
}

TEST_F(Associations, TheSameRequestAgainIsToldWhatItMade) {
  role("trainer", pods_trust);
  const Json input = Json::object({{"namespace", "ml"}, {"serviceAccount", "train"}, {"roleArn", role_arn}, {"clientRequestToken", "t1"}, {"tags", Json::object({{"team", "vision"}})}});
  const auto first = eks(ada, "POST", "", input);
  ASSERT_EQ(first.status, 200);
  EXPECT_EQ(first.body["association"]["tags"]["team"].string(), "vision");
  EXPECT_EQ(eks(ada, "POST", "", input).body["association"]["associationId"].string(), first.body["association"]["associationId"].string());
  Json other = input;
  EXPECT_EQ(eks(ada, "POST", "", other.set("clientRequestToken", "t2")).status, 409);
}

TEST_F(Associations, PodsFetchTheRoleWithTagsOfTheirOwn) {
  role("trainer", pods_trust, {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sagemaker:ListClusters", "Resource": "*", "Condition": {"StringEquals": {"aws:PrincipalTag/kubernetes-namespace": "ml", "aws:PrincipalTag/kubernetes-service-account": "train", "aws:PrincipalTag/kubernetes-pod-name": "train-0", "aws:PrincipalTag/eks-cluster-name": "fairlead"}}}})"},
       Json::object({{"tags", *kube::parse_json(R"([{"key": "kubernetes-namespace", "value": "of the role"}])")}}));
  ASSERT_EQ(associate().status, 200);
  const auto said = fetch(pod_token());
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_EQ(said.json["AccountId"].string(), "111122223333");
  EXPECT_EQ(said.json["Expiration"].string(), "2026-11-25T13:00:00Z") << "no longer than the role allows";
  const Credentials session{said.json["AccessKeyId"].string(), said.json["SecretAccessKey"].string(), said.json["Token"].string()};
  EXPECT_THAT(site.sts(session, {{"Action", "GetCallerIdentity"}}).text("Arn"), testing::MatchesRegex("arn:aws:sts::111122223333:assumed-role/trainer/eks-fairlead-train-0-[0-9a-f]{8}"));
  EXPECT_EQ(site.call(session, "ListClusters").status, 200);
  // Without tags, on request.
  const std::string id = eks(ada, "GET", "").body["associations"].items()[0]["associationId"].string();
  ASSERT_EQ(eks(ada, "POST", "/" + id, Json::object({{"disableSessionTags", true}})).status, 200);
  const Json bare = fetch(pod_token()).json;
  EXPECT_EQ(site.call({bare["AccessKeyId"].string(), bare["SecretAccessKey"].string(), bare["Token"].string()}, "ListClusters").code, "AccessDeniedException");
}

TEST_F(Associations, OthersFetchNothing) {
  role("trainer", pods_trust);
  ASSERT_EQ(associate().status, 200);
  EXPECT_EQ(fetch(pod_token("other")).status, 403);
  EXPECT_EQ(fetch(web_token()).status, 403) << "a token for STS is none for this";
  EXPECT_EQ(fetch("").status, 403);
  EXPECT_EQ(fetch("Bearer x").status, 403);
  EXPECT_EQ(fetch(pod_token() + "x").status, 403);
  site.reviews.away = true;
  EXPECT_EQ(fetch(pod_token()).status, 503);
  site.reviews.away = false;
  role("trainer", trusts_sagemaker);  // it trusts pods no more
  EXPECT_EQ(fetch(pod_token()).status, 403);
  role("trainer", pods_trust);
  EXPECT_EQ(fetch(pod_token()).status, 200);
  const std::string id = eks(ada, "GET", "").body["associations"].items()[0]["associationId"].string();
  ASSERT_EQ(eks(ada, "DELETE", "/" + id).status, 200);
  EXPECT_EQ(fetch(pod_token()).status, 403) << "from then on";
  // An object that is not named after its account is not believed.
  ASSERT_TRUE(site.api.put(api::pod_identity::associations, Json::object({{"metadata", Json::object({{"name", "mine"}})}, {"spec", Json::object({{"namespace", "ml"}, {"serviceAccount", "train"}, {"roleArn", role_arn}})}})));
  EXPECT_EQ(fetch(pod_token()).status, 403);
}

TEST_F(Associations, AreWorthNothingUnsigned) {
  const auto turned = [&](http::Request request) {
    const auto response = site.front->turn_away(request);
    return response ? response->status : 0;
  };
  http::Request of{.method = "GET", .target = *http::parse_target("/v1/credentials"), .headers = {{"Authorization", "nothing"}}, .body = {}, .peer = {}};
  site.audit.clear();
  EXPECT_EQ(turned(of), 403);
  ASSERT_EQ(site.audit.size(), 1u) << "it is on record";
  EXPECT_EQ(site.audit[0]["eventName"].string(), "AssumeRoleForPodIdentity");
  EXPECT_EQ(site.audit[0]["errorCode"].string(), "AccessDeniedException");
  EXPECT_EQ(site.audit[0]["responseCode"].integer(), 403);
  of.headers = {{"Authorization", pod_token()}};
  EXPECT_EQ(turned(of), 0);
  of.method = "POST";
  EXPECT_NE(turned(of), 0);
  http::Request form{.method = "POST", .target = *http::parse_target("/"), .headers = {{"Content-Type", "application/x-www-form-urlencoded"}}, .body = "Action=AssumeRoleWithWebIdentity&Version=2011-06-15", .peer = {}};
  EXPECT_EQ(turned(form), 0);
  for (const std::string& one : {std::string("a.b.c"), std::string("secret")}) {
    http::Request no = form;
    no.body += "&WebIdentityToken=" + one;
    EXPECT_EQ(turned(no), 400) << "what is no token asks nobody";
  }
  http::Request good = form;
  good.body += "&WebIdentityToken=" + web_token();
  EXPECT_EQ(turned(good), 0);
  form.body += "&x=" + std::string(32 << 10, 'x');
  EXPECT_EQ(turned(form), 413);
  form.body = "Action=AssumeRole&RoleSessionName=Action=AssumeRoleWithWebIdentity";
  EXPECT_EQ(turned(form), 403);
}

}  // namespace
}  // namespace fairlead::hyperpod
