// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/pod_credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/encoding.h"
#include "hyperpod/door.h"
#include "hyperpod/test_site.h"
#include "kube/patch.h"

namespace fairlead::hyperpod {
namespace {

using testing::HasSubstr;

const PodSite here{.endpoint = "https://10.77.1.1:6444", .region = "fairlead-1", .ca_pem = "-----BEGIN-----\nx\n"};

Json yaml(const char* text) { return *kube::parse_json(text); }
const Json plain = yaml(R"({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "train", "containers": [{"name": "main"}]}})");
const Json account = yaml(R"({"metadata": {"name": "train", "namespace": "ml", "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/trainer"}}})");
const Json association = yaml(R"({"spec": {"namespace": "ml", "serviceAccount": "train", "roleArn": "arn:aws:iam::111122223333:role/other"}})");

Json equipped(const Json& pod, const Json& of = account, const Json* with = nullptr) {
  auto out = kube::json_patch(pod, plan_pod_credentials(pod, of, with, here));
  EXPECT_TRUE(out) << (out ? "" : out.error().message);
  return *out;
}
std::string variable(const Json& container, const std::string& name) {
  std::string out;
  for (const Json& one : container["env"].items())
    if (one["name"].string() == name) out += (out.empty() ? "" : " twice ") + one["value"].string();
  return out;
}

TEST(PodCredentialsPlan, AnAnnotatedAccountGivesATokenFile) {
  const Json pod = equipped(plain);
  const Json& one = pod["spec"]["containers"].items()[0];
  EXPECT_EQ(variable(one, "AWS_ROLE_ARN"), "arn:aws:iam::111122223333:role/trainer");
  EXPECT_EQ(variable(one, "AWS_WEB_IDENTITY_TOKEN_FILE"), "/var/run/secrets/eks.amazonaws.com/serviceaccount/token");
  EXPECT_EQ(variable(one, "AWS_STS_REGIONAL_ENDPOINTS"), "regional");
  EXPECT_EQ(variable(one, "AWS_REGION") + variable(one, "AWS_DEFAULT_REGION"), "fairlead-1fairlead-1");
  EXPECT_EQ(variable(one, "AWS_ENDPOINT_URL"), "https://10.77.1.1:6444");
  EXPECT_EQ(variable(one, "AWS_CA_BUNDLE"), "/var/run/secrets/eks.amazonaws.com/serviceaccount/ca.crt");
  EXPECT_EQ(variable(one, "AWS_CONTAINER_CREDENTIALS_FULL_URI"), "");
  EXPECT_EQ(one["volumeMounts"], yaml(R"([{"name": "aws-iam-token", "readOnly": true, "mountPath": "/var/run/secrets/eks.amazonaws.com/serviceaccount"}])"));
  const Json& sources = pod["spec"]["volumes"].items()[0]["projected"]["sources"];
  EXPECT_EQ(sources.items()[0], yaml(R"({"serviceAccountToken": {"audience": "sts.amazonaws.com", "expirationSeconds": 86400, "path": "token"}})"));
  EXPECT_EQ(sources.items()[1], yaml(R"({"downwardAPI": {"items": [{"path": "ca.crt", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.annotations['fairlead.dev/aws-ca.crt']"}}]}})"));
  EXPECT_EQ(pod["metadata"]["annotations"]["fairlead.dev/aws-ca.crt"].string(), here.ca_pem);
  EXPECT_EQ(pod["metadata"]["name"].string(), "p");
}

TEST(PodCredentialsPlan, AnAssociationGivesTheEndpointAndGoesBeforeTheAnnotation) {
  const Json pod = equipped(plain, account, &association);
  const Json& one = pod["spec"]["containers"].items()[0];
  EXPECT_EQ(variable(one, "AWS_CONTAINER_CREDENTIALS_FULL_URI"), "http://169.254.170.23/v1/credentials");
  EXPECT_EQ(variable(one, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"), "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount/eks-pod-identity-token");
  EXPECT_EQ(variable(one, "AWS_ROLE_ARN") + variable(one, "AWS_WEB_IDENTITY_TOKEN_FILE"), "") << "SDKs would take the token file first";
  EXPECT_EQ(variable(one, "AWS_CA_BUNDLE"), "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount/ca.crt");
  EXPECT_EQ(pod["spec"]["volumes"].items()[0]["name"].string(), "eks-pod-identity-token");
  EXPECT_EQ(pod["spec"]["volumes"].items()[0]["projected"]["sources"].items()[0]["serviceAccountToken"]["audience"].string(), "pods.eks.amazonaws.com");
}

TEST(PodCredentialsPlan, OthersGetNothing) {
  EXPECT_TRUE(plan_pod_credentials(plain, yaml(R"({"metadata": {"name": "train"}})"), nullptr, here).items().empty());
  EXPECT_TRUE(plan_pod_credentials(plain, Json::object(), nullptr, here).items().empty());
  EXPECT_TRUE(plan_pod_credentials(Json(), account, nullptr, here).items().empty());
  Json mirror = plain;
  mirror.child("metadata").child("annotations").set("kubernetes.io/config.mirror", "x");
  EXPECT_TRUE(plan_pod_credentials(mirror, account, nullptr, here).items().empty()) << "an API refuses it with a token";
}

TEST(PodCredentialsPlan, WhatThePodSaysItselfStays) {
  const Json pod = equipped(yaml(R"({"metadata": {"annotations": {"a": "b", "eks.amazonaws.com/skip-containers": "proxy, other"}}, "spec": {"initContainers": [{"name": "first"}], "volumes": [{"name": "data", "emptyDir": {}}],
    "containers": [{"name": "main", "env": [{"name": "AWS_REGION", "value": "mine"}, {"name": "AWS_ENDPOINT_URL", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}], "volumeMounts": [{"name": "data", "mountPath": "/data"}]}, {"name": "proxy"}]}})"));
  const Json& main = pod["spec"]["containers"].items()[0];
  EXPECT_EQ(variable(main, "AWS_REGION"), "mine");
  EXPECT_EQ(variable(main, "AWS_ENDPOINT_URL"), "") << "one from elsewhere is one";
  EXPECT_EQ(variable(main, "AWS_DEFAULT_REGION"), "fairlead-1");
  EXPECT_EQ(main["volumeMounts"].items().size(), 2u);
  EXPECT_TRUE(pod["spec"]["containers"].items()[1]["env"].is_null());
  EXPECT_EQ(variable(pod["spec"]["initContainers"].items()[0], "AWS_ROLE_ARN"), "arn:aws:iam::111122223333:role/trainer");
  EXPECT_EQ(pod["spec"]["volumes"].items().size(), 2u);
  EXPECT_EQ(pod["metadata"]["annotations"]["a"].string(), "b");
}

TEST(PodCredentialsPlan, ThePodsWishForALifeGoesBeforeTheAccounts) {
  const auto life = [](const char* of_account, const char* of_pod) {
    Json from = account, pod = plain;
    if (of_account != nullptr) from.child("metadata").child("annotations").set("eks.amazonaws.com/token-expiration", of_account);
    if (of_pod != nullptr) pod.child("metadata").child("annotations").set("eks.amazonaws.com/token-expiration", of_pod);
    const Json out = equipped(pod, from);
    return out["spec"]["volumes"].items()[0]["projected"]["sources"].items()[0]["serviceAccountToken"]["expirationSeconds"].integer();
  };
  EXPECT_EQ(life(nullptr, nullptr), 86'400);
  EXPECT_EQ(life("3600", nullptr), 3600);
  EXPECT_EQ(life("3600", "7200"), 7200);
  EXPECT_EQ(life("1", nullptr), 600);
  EXPECT_EQ(life("999999999", nullptr), 86'400);
  EXPECT_EQ(life("soon", nullptr), 86'400);
}

TEST(PodCredentialsPlan, AskedAgainItAddsNothing) {
  for (const Json* const with : {static_cast<const Json*>(nullptr), &association}) EXPECT_EQ(plan_pod_credentials(equipped(plain, account, with), account, with, here), Json::array());
}

Json review(const Json& pod, const char* operation = "CREATE") {
  return Json::object({{"apiVersion", "admission.k8s.io/v1"}, {"kind", "AdmissionReview"}, {"request", Json::object({{"uid", "r1"}, {"kind", yaml(R"({"group": "", "version": "v1", "kind": "Pod"})")}, {"namespace", "ml"}, {"operation", operation}, {"object", pod}})}});
}

TEST(PodReviews, AreAnsweredWithAPatchByWhatIsThere) {
  kube::TinyApi api;
  ASSERT_TRUE(api.put(kube::resources::service_accounts, account));
  const Look look = [&](const kube::Resource& resource, const kube::ObjectKey& key) { return api.get(resource, key); };
  const auto patched = [&](const Json& asked) {
    const auto answer = answer_pod_review(asked, look, here);
    if (!answer) return Json("none");
    EXPECT_EQ((*answer)["response"]["uid"].string(), "r1");
    EXPECT_TRUE((*answer)["response"]["allowed"].boolean());
    if (!(*answer)["response"].has("patch")) return Json();
    EXPECT_EQ((*answer)["response"]["patchType"].string(), "JSONPatch");
    return *kube::json_patch(plain, *kube::parse_json(*parse_base64((*answer)["response"]["patch"].string())));
  };
  EXPECT_EQ(patched(review(plain)), equipped(plain));
  EXPECT_TRUE(patched(review(plain, "UPDATE")).is_null());
  Json other = plain;
  other.child("spec").erase("serviceAccountName");
  EXPECT_TRUE(patched(review(other)).is_null()) << "of account default, which has nothing";
  // An association, by the name that it has to have.
  Json one = association;
  one.child("metadata").set("name", api::pod_identity::association_name("ml", "train"));
  ASSERT_TRUE(api.put(api::pod_identity::associations, one));
  EXPECT_EQ(patched(review(plain)), equipped(plain, account, &association));
  one.child("spec").set("serviceAccount", "another");
  ASSERT_TRUE(api.put(api::pod_identity::associations, one));
  EXPECT_EQ(patched(review(plain)), equipped(plain));
  EXPECT_EQ(patched(yaml(R"({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "request": {"uid": "r1"}})")), Json("none"));
  EXPECT_EQ(patched(Json::array()), Json("none"));
}

TEST(PodReviews, WhatCannotBeReadStopsNoPod) {
  const auto answer = answer_pod_review(review(plain), [](const kube::Resource&, const kube::ObjectKey&) -> Result<Json> { return fail(Code::Unavailable, "no answer"); }, here);
  EXPECT_TRUE((*answer)["response"]["allowed"].boolean());
  EXPECT_THAT((*answer)["response"]["warnings"].items()[0].string(), HasSubstr("no answer"));
  EXPECT_FALSE((*answer)["response"].has("patch"));
}

TEST(PodReviews, WhoDoesNotKnowThePathIsToldNothing) {
  TestSite site;
  ASSERT_TRUE(site.api.put(kube::resources::service_accounts, account));
  const auto ask = [&](const char* path) {
    http::Request request{.method = "POST", .target = *http::parse_target(path), .headers = {{"Content-Type", "application/json"}}, .body = kube::print_json(review(plain)), .peer = {}};
    if (auto early = site.front->turn_away(request)) return early->status;
    return site.front->answer(request).status;
  };
  EXPECT_EQ(ask("/kubernetes/pods/5ec4e7"), 200);
  EXPECT_EQ(ask("/kubernetes/pods/5ec4e8"), 404);
  EXPECT_EQ(ask("/kubernetes/pods/"), 404);
  EXPECT_EQ(ask("/kubernetes/pods/5ec4e7/"), 404);
  EXPECT_TRUE(site.audit.empty());
}

TEST(PodWebhook, LetsPodsPassWhereNobodyAnswers) {
  const Json by_service = pod_webhook_configuration({.url = "https://x", .space = "fairlead-system", .service = "fairlead-aws", .path = "/kubernetes/pods/ab", .ca_pem = "PEM"})["webhooks"].items()[0];
  EXPECT_EQ(by_service["failurePolicy"].string(), "Ignore");
  EXPECT_EQ(by_service["sideEffects"].string(), "None");
  EXPECT_EQ(by_service["clientConfig"]["service"], yaml(R"({"name": "fairlead-aws", "namespace": "fairlead-system", "port": 443, "path": "/kubernetes/pods/ab"})"));
  EXPECT_EQ(by_service["clientConfig"]["caBundle"].string(), base64("PEM"));
  EXPECT_EQ(by_service["namespaceSelector"]["matchExpressions"].items()[0]["values"], yaml(R"(["fairlead-system"])"));
  const Json by_url = pod_webhook_configuration({.url = "https://x", .space = "s", .service = "", .path = "/kubernetes/pods/ab", .ca_pem = "PEM"})["webhooks"].items()[0];
  EXPECT_EQ(by_url["clientConfig"]["url"].string(), "https://x/kubernetes/pods/ab");
  EXPECT_FALSE(by_url["clientConfig"].has("service"));
}

TEST(PodWebhook, IsMadeOnceAndFollowsTheServer) {
  kube::TinyApi api;
  PodWebhook webhook{.url = "https://127.0.0.1:1", .space = "s", .service = "", .path = "/kubernetes/pods/ab", .ca_pem = "PEM"};
  ASSERT_TRUE(settle_pod_webhook(api, webhook));
  const auto url = [&] { return (*api.get(api::pod_identity::mutating_webhooks, {"", "fairlead-pod-credentials"}))["webhooks"].items()[0]["clientConfig"]["url"].string(); };
  EXPECT_EQ(url(), "https://127.0.0.1:1/kubernetes/pods/ab");
  webhook.url = "https://127.0.0.1:2";
  ASSERT_TRUE(settle_pod_webhook(api, webhook));
  EXPECT_EQ(url(), "https://127.0.0.1:2/kubernetes/pods/ab");
}

TEST(PodWebhook, AllServersHaveOneSecret) {
  kube::TinyApi api;
  const auto first = settle_pod_secret(api, "fairlead-system");
  ASSERT_TRUE(first);
  EXPECT_EQ(first->size(), 64u);
  EXPECT_EQ(*settle_pod_secret(api, "fairlead-system"), *first);
  kube::TinyApi other;
  EXPECT_NE(*settle_pod_secret(other, "fairlead-system"), *first);
  ASSERT_TRUE(api.put(kube::resources::secrets, yaml(R"({"metadata": {"name": "fairlead-aws-webhook", "namespace": "fairlead-system"}, "data": {"path": "YWI="}})")));
  EXPECT_THAT(settle_pod_secret(api, "fairlead-system").error().message, HasSubstr("fairlead-aws-webhook"));
}

}  // namespace
}  // namespace fairlead::hyperpod
