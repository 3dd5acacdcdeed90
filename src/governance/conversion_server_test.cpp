// SPDX-License-Identifier: Apache-2.0
#include "governance/conversion_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/encoding.h"
#include "governance/control/conversion_controller.h"
#include "governance/conversion_point.h"
#include "http/client.h"
#include "kube/tiny_api.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using testing::HasSubstr;

const SystemClock wall;
const kube::ObjectKey secret{"fairlead-system", "fairlead-webhooks"};

Json review(const std::string& to, Json object) {
  return Json::object({{"apiVersion", "apiextensions.k8s.io/v1"}, {"kind", "ConversionReview"}, {"request", Json::object({{"uid", "id"}, {"desiredAPIVersion", to}, {"objects", Json::array({std::move(object)})}})}});
}
http::Request post(std::string body, const char* path = "/convert", const char* method = "POST") {
  http::Request out;
  out.method = method;
  out.target.path = path;
  out.body = std::move(body);
  return out;
}
Json queue() {
  return Json::object({{"apiVersion", "kueue.x-k8s.io/v1beta1"}, {"kind", "ClusterQueue"}, {"metadata", Json::object({{"name", "a"}})}, {"spec", Json::object({{"cohort", "all"}})}});
}

TEST(ConversionServer, ConvertsReviewsAndRefusesWhatIsNone) {
  const auto done = answer_conversion_request(post(kube::print_json(review("kueue.x-k8s.io/v1beta2", queue()))));
  EXPECT_EQ(done.status, 200);
  EXPECT_EQ((*kube::parse_json(done.body))["response"]["convertedObjects"].items().at(0)["spec"]["cohortName"].string(), "all");
  EXPECT_EQ(answer_conversion_request(post("{}", "/other")).status, 404);
  EXPECT_EQ(answer_conversion_request(post("{}", "/convert", "GET")).status, 405);
  EXPECT_EQ(answer_conversion_request(post("hello")).status, 400);
  EXPECT_EQ(answer_conversion_request(post("{}")).status, 400);
}

TEST(ConversionServer, AllReplicasHaveOneAuthority) {
  kube::TinyApi api;
  const auto first = webhook_authority(api, secret, wall), second = webhook_authority(api, secret, wall);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->certificate_pem, second->certificate_pem);
  EXPECT_EQ(first->key_pem, second->key_pem);
  api.all("secrets").begin()->second.set("data", Json::object({{"ca.crt", "AA=="}}));
  EXPECT_THAT(webhook_authority(api, secret, wall).error().message, HasSubstr("delete it"));
}

TEST(ConversionPoint, ServesByHttpsAndTellsWhereItIs) {
  kube::TinyApi api;
  ConversionPoint point(api, wall, {.address = "127.0.0.1", .port = 0, .service = {}, .secret = secret});
  const auto where = point.where(std::chrono::seconds(30));
  ASSERT_TRUE(where);
  ASSERT_TRUE(where->url.starts_with("https://127.0.0.1:") && where->url.ends_with("/convert")) << where->url;
  const int port = std::stoi(where->url.substr(std::string_view("https://127.0.0.1:").size()));
  auto client = http::Client::make({.host = "127.0.0.1", .port = static_cast<unsigned short>(port), .ca_pem = where->ca_pem});
  ASSERT_TRUE(client);
  const auto answer = (*client)->request({.method = "POST", .target = "/convert", .headers = {}, .body = kube::print_json(review("kueue.x-k8s.io/v1beta2", queue()))});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->status, 200);
}

struct Definitions : testing::Test {
  kube::TinyApi api;
  void SetUp() override {
    for (const Json& crd : api::queue_crds()) ASSERT_TRUE(api.create(kube::resources::crds, crd));
  }
  const Json& of(const char* plural) { return api.all("customresourcedefinitions").at({"", std::string(plural) + ".kueue.x-k8s.io"}); }
  void settle(const api::QueueWebhook& webhook) {
    ConversionController controller(api, [webhook] { return std::optional(webhook); });
    controller.start(api);
    for (const Json& crd : api::queue_crds()) EXPECT_TRUE(controller.reconcile(kube::key_of(crd)));
  }
};

TEST_F(Definitions, FailUntilTheyAreToldWhereTheWebhookIs) {
  EXPECT_EQ(of("workloads")["spec"]["conversion"]["webhook"]["clientConfig"]["url"].string(), "https://fairlead-webhooks.invalid/convert");
  EXPECT_TRUE(of("topologies")["spec"]["conversion"].is_null()) << "its versions differ in their names alone";
}

TEST_F(Definitions, AreToldOnceAndNotAgain) {
  settle({.url = {}, .space = "fairlead-system", .service = "fairlead-webhooks", .ca_pem = "PEM"});
  const Json config = of("workloads")["spec"]["conversion"]["webhook"]["clientConfig"];
  EXPECT_EQ(config["service"], *kube::parse_json(R"({"name":"fairlead-webhooks","namespace":"fairlead-system","path":"/convert","port":443})"));
  EXPECT_EQ(config["caBundle"].string(), base64("PEM"));
  EXPECT_TRUE(config["url"].is_null()) << "exactly one of both";
  EXPECT_TRUE(of("topologies")["spec"]["conversion"].is_null());
  const std::string version = kube::version_of(of("workloads"));
  settle({.url = {}, .space = "fairlead-system", .service = "fairlead-webhooks", .ca_pem = "PEM"});
  EXPECT_EQ(kube::version_of(of("workloads")), version);
  settle({.url = "https://10.0.0.1:9443/convert", .space = {}, .service = {}, .ca_pem = "PEM"});
  EXPECT_TRUE(of("workloads")["spec"]["conversion"]["webhook"]["clientConfig"]["service"].is_null());
}

TEST_F(Definitions, WaitForAWebhookThatDoesNotServeYet) {
  ConversionController controller(api, [] { return std::nullopt; });
  controller.start(api);
  const auto next = controller.reconcile({"", "workloads.kueue.x-k8s.io"});
  ASSERT_TRUE(next);
  EXPECT_TRUE(next->again_after) << "nothing else tells when it serves";
}

TEST_F(Definitions, OfSomebodyElseAreLeftAlone) {
  api.all("customresourcedefinitions").at({"", "workloads.kueue.x-k8s.io"}).child("metadata").set("labels", Json::object());
  const Json before = of("workloads");
  settle({.url = "https://10.0.0.1:9443/convert", .space = {}, .service = {}, .ca_pem = "PEM"});
  EXPECT_EQ(of("workloads"), before);
}

TEST(QueueAccess, IsDeclared) {
  kube::TinyApi api;
  EXPECT_TRUE(ConversionController(api, {}).access()->allows("patch", kube::resources::crds, "", "", "workloads.kueue.x-k8s.io"));
  EXPECT_FALSE(ConversionController(api, {}).access()->allows("patch", kube::resources::crds, "", "", "others.example.com"));
  EXPECT_TRUE(api::queue_webhook_access("fairlead-system").allows("get", kube::resources::secrets, "", "fairlead-system", "fairlead-webhooks"));
}

}  // namespace
}  // namespace fairlead::governance
