// SPDX-License-Identifier: Apache-2.0
#include "apiserver/api_handler.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "apiserver/api_test_kit.h"

namespace fairlead::apiserver {
namespace {

using testing_kit::Api;
const std::string maps = "/api/v1/namespaces/default/configmaps";

std::string config_map(const std::string& name, const std::string& more = "") {
  return fmt::format(R"({{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{}"{}}},"data":{{"a":"1"}}}})", name, more);
}

TEST(ApiHandler, CreatesReadsChangesAndDeletes) {
  Api api;
  EXPECT_EQ(api.ask("POST", maps, config_map("c")).status, 201);
  EXPECT_EQ(api.ask("POST", maps, config_map("c")).status, 409);
  EXPECT_EQ(api.json("GET", maps + "/c")["data"]["a"].string(), "1");
  const http::Headers merge{{"Content-Type", "application/merge-patch+json"}};
  EXPECT_EQ(api.json("PATCH", maps + "/c", R"({"data":{"b":"2"}})", merge)["data"]["b"].string(), "2");
  kube::Json object = api.json("GET", maps + "/c");
  object.child("data").set("a", "9");
  EXPECT_EQ(api.ask("PUT", maps + "/c", kube::print_json(object)).status, 200);
  EXPECT_EQ(api.ask("PUT", maps + "/c", kube::print_json(object)).status, 409);  // decided on an old version
  const kube::Json gone = api.json("DELETE", maps + "/c");
  EXPECT_EQ(gone["status"].string(), "Success");
  EXPECT_EQ(gone["details"]["kind"].string(), "configmaps");
  const kube::Json missing = api.json("GET", maps + "/c");
  EXPECT_EQ(missing["code"].integer(), 404);
  EXPECT_EQ(missing["reason"].string(), "NotFound");
  EXPECT_EQ(missing["message"].string(), "configmaps \"c\" not found");
}

TEST(ApiHandler, KnowsWhoAsks) {
  Api api;
  struct Row {
    const char *token, *method, *target;
    int want;
  };
  for (const Row& row : {Row{"", "GET", "/api/v1/pods", 401}, Row{"wrong", "GET", "/api/v1/pods", 401}, Row{"", "GET", "/readyz", 200}, Row{"", "GET", "/version", 200},
                         Row{"", "GET", "/api", 401}, Row{"eve-token", "GET", "/api", 200}, Row{"eve-token", "GET", "/api/v1/pods", 403}, Row{"eve-token", "GET", "/metrics", 403},
                         Row{"node-token", "GET", "/api/v1/pods", 200}, Row{"node-token", "GET", "/api/v1/secrets", 403}, Row{"node-token", "GET", "/api/v1/namespaces/default/secrets/s", 403},
                         Row{"admin-token", "GET", "/api/v1/pods", 200}, Row{"admin-token", "GET", "/metrics", 404}}) {
    EXPECT_EQ(api.ask(row.method, row.target, "", {}, row.token).status, row.want) << row.token << ' ' << row.target;
  }
  const auto node = [](const char* name) { return fmt::format(R"({{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{}"}}}})", name); };
  EXPECT_EQ(api.ask("POST", "/api/v1/nodes", node("w1"), {}, "node-token").status, 403);
  EXPECT_EQ(api.ask("POST", "/api/v1/nodes", node("w0"), {}, "node-token").status, 201);
}

TEST(ApiHandler, ACertificateThatCountsNoMoreIsNobodys) {
  Api api({.check_peer = [](const http::Peer& peer) { return peer.key == "old" ? Result<void>(fail(Code::Unauthorized, "removed")) : Result<void>(); }});
  const auto as = [&](const std::string& key, const std::string& path) {
    auto exchange = std::make_shared<testing_kit::RecordedExchange>();
    api.handler->handle({.method = "GET", .target = *http::parse_target(path), .headers = {}, .body = {}, .peer = {.address = {}, .common_name = "admin", .organizations = {"system:masters"}, .key = key}}, exchange);
    return exchange->wait();
  };
  EXPECT_EQ(as("new", "/api/v1/nodes").status, 200);
  const auto refused = as("old", "/api/v1/nodes");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ((*kube::parse_json(refused.body))["message"].string(), "Unauthorized");
  EXPECT_EQ(api.ask("GET", "/api/v1/nodes").status, 200);  // a token is no certificate
}

TEST(ApiHandler, WhatIsServedBesideTheApiNeedsNoName) {
  Api api({.beside = [](const http::Request& request, const std::shared_ptr<http::Exchange>& exchange) {
             if (request.target.path != "/beside") return false;
             exchange->respond({.status = 200, .headers = {}, .body = "here"});
             return true;
           },
           .check_peer = [](const http::Peer& peer) { return peer.key == "old" ? Result<void>(fail(Code::Unauthorized, "removed")) : Result<void>(); }});
  EXPECT_EQ(api.ask("GET", "/beside", "", {}, "").body, "here");
  EXPECT_EQ(api.ask("GET", "/besides", "", {}, "").status, 401);
  auto exchange = std::make_shared<testing_kit::RecordedExchange>();
  api.handler->handle({.method = "GET", .target = *http::parse_target("/beside"), .headers = {}, .body = {}, .peer = {.address = {}, .common_name = "a", .organizations = {}, .key = "old"}}, exchange);
  EXPECT_EQ(exchange->wait().status, 401);
}

TEST(ApiHandler, ANodeReadsTheSecretsOfItsPodsOnly) {
  Api api;
  const std::string space = "/api/v1/namespaces/default";
  for (const char* name : {"used", "other"}) {
    ASSERT_EQ(api.ask("POST", space + "/secrets", fmt::format(R"({{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"{}"}},"data":{{"k":"dg=="}}}})", name)).status, 201);
  }
  const std::string pod = R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"nodeName":"w0","containers":[{"name":"c","image":"i"}],
    "volumes":[{"name":"v","secret":{"secretName":"used"}}]}})";
  ASSERT_EQ(api.ask("POST", space + "/pods", pod).status, 201);
  EXPECT_EQ(api.ask("GET", space + "/secrets/used", "", {}, "node-token").status, 200);
  EXPECT_EQ(api.ask("GET", space + "/secrets/other", "", {}, "node-token").status, 403);
  const http::Headers merge{{"Content-Type", "application/merge-patch+json"}};
  EXPECT_EQ(api.ask("PATCH", space + "/pods/p/status", R"({"status":{"phase":"Running"}})", merge, "node-token").status, 200);
  EXPECT_EQ(api.ask("PATCH", space + "/pods/p", R"({"metadata":{"labels":{"a":"b"}}})", merge, "node-token").status, 403);
}

TEST(ApiHandler, AnswersInTheFormAskedFor) {
  Api api;
  ASSERT_EQ(api.ask("POST", maps, config_map("one")).status, 201);
  ASSERT_EQ(api.ask("POST", maps, config_map("two")).status, 201);
  const kube::Json list = api.json("GET", maps);
  EXPECT_EQ(list["kind"].string(), "ConfigMapList");
  EXPECT_EQ(list["items"].items().size(), 2u);
  const kube::Json first = api.json("GET", maps + "?limit=1");
  EXPECT_EQ(first["items"].items().size(), 1u);
  ASSERT_FALSE(first["metadata"]["continue"].string().empty());
  EXPECT_EQ(api.json("GET", maps + "?limit=1&continue=" + http::escape(first["metadata"]["continue"].string()))["items"].items()[0]["metadata"]["name"].string(), "two");

  const kube::Json table = api.json("GET", maps, "", {{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}});
  EXPECT_EQ(table["kind"].string(), "Table");
  EXPECT_EQ(table["rows"].items().at(1)["cells"].items().at(0).string(), "two");
  EXPECT_EQ(table["rows"].items().at(1)["object"]["kind"].string(), "PartialObjectMetadata");
  const kube::Json partial = api.json("GET", maps, "", {{"Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}});
  EXPECT_EQ(partial["kind"].string(), "PartialObjectMetadataList");
  EXPECT_FALSE(partial["items"].items().at(0).has("data"));
  const auto yaml = api.ask("GET", maps + "/one", "", {{"Accept", "application/yaml"}});
  EXPECT_THAT(yaml.body, testing::HasSubstr("kind: ConfigMap\n"));
  EXPECT_THAT(yaml.body, testing::StartsWith("apiVersion: v1\n"));  // in order
  const auto missing = api.ask("GET", maps + "/none", "", {{"Accept", "application/yaml"}});
  EXPECT_EQ(http::find(missing.headers, "Content-Type"), "application/yaml");
  EXPECT_THAT(missing.body, testing::HasSubstr("\nreason: NotFound\n"));
  const http::Headers no_patch{{"Content-Type", "text/plain"}};
  EXPECT_TRUE(api.json("PATCH", maps + "/one", "{}", no_patch).has("details"));
  const auto no_form = api.json("GET", maps, "", {{"Accept", "application/json;as=Table;v=v9;g=meta.k8s.io"}}), no_type = api.json("GET", maps, "", {{"Accept", "text/html"}});
  EXPECT_FALSE(no_form.has("details"));
  EXPECT_TRUE(no_type.has("details"));
  EXPECT_EQ(api.ask("GET", maps, "", {{"Accept", "application/vnd.kubernetes.protobuf"}}).status, 406);
  EXPECT_THAT(api.ask("GET", maps + "/one?pretty=true").body, testing::HasSubstr("\n  \"kind\""));
}

TEST(ApiHandler, RefusesWhatItDoesNotUnderstand) {
  Api api;
  ASSERT_EQ(api.ask("POST", maps, config_map("c")).status, 201);
  struct Row {
    const char *method, *target, *body, *type;
    int want;
  };
  for (const Row& row : {
           Row{"GET", "/openapi/v2", "", "", 404},
           Row{"GET", "/apis/apps/v1/deployments", "", "", 404},
           Row{"GET", "/api/v1/namespaces/default/nodes", "", "", 404},
           Row{"GET", "/api/v1/configmaps/c", "", "", 404},
           Row{"GET", "/api/v1/namespaces/default/configmaps/c/scale", "", "", 404},
           Row{"GET", "/api/v1/namespaces/default/configmaps?limit=x", "", "", 400},
           Row{"GET", "/api/v1/namespaces/default/configmaps?labelSelector=a%3Db%3Dc", "", "", 400},
           Row{"POST", "/api/v1/namespaces/default/configmaps", "{", "application/json", 400},
           Row{"POST", "/api/v1/namespaces/default/configmaps", "{}", "application/cbor", 415},
           Row{"POST", "/api/v1/namespaces/default/configmaps/c", "{}", "application/json", 405},
           Row{"POST", "/api/v1/namespaces/default/configmaps?dryRun=Some", "{}", "application/json", 422},
           Row{"PATCH", "/api/v1/namespaces/default/configmaps/c", "{}", "application/apply-patch+cbor", 415},
           Row{"PATCH", "/api/v1/namespaces/default/configmaps/c", "{}", "application/json", 415},
           Row{"PATCH", "/api/v1/namespaces/default/configmaps", "{}", "application/merge-patch+json", 405},
           Row{"POST", "/api/v1/namespaces/default/pods/p/status", "{}", "application/json", 405},
           Row{"DELETE", "/api/v1/namespaces/default/pods/p/status", "", "", 405},
           Row{"PUT", "/api/v1/namespaces/default/pods/p/log", "{}", "application/json", 405},
           Row{"GET", "/api/v1/namespaces/default/pods/p/eviction", "", "", 405},
           Row{"BREW", "/api/v1/namespaces/default/configmaps/c", "", "", 405},
           Row{"DELETE", "/api/v1/namespaces/default/configmaps/c?propagationPolicy=Maybe", "", "", 422},
           Row{"GET", "/api/v1/namespaces/default/configmaps?watch=1&sendInitialEvents=true", "", "", 422},
           Row{"GET", "/api/v1/namespaces/default/configmaps?sendInitialEvents=true", "", "", 422},
       }) {
    const auto response = api.ask(row.method, row.target, row.body, {{"Content-Type", row.type}});
    EXPECT_EQ(response.status, row.want) << row.method << ' ' << row.target << ": " << response.body;
    const auto status = kube::parse_json(response.body);
    ASSERT_TRUE(status);
    EXPECT_EQ((*status)["kind"].string(), "Status");
    EXPECT_EQ((*status)["code"].integer(), row.want);
  }
}

TEST(ApiHandler, ValidatesFieldsAsAsked) {
  Api api;
  const std::string unknown = R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"dta":{},"data":{"a":"1","a":"2"}})";
  const auto strict = api.ask("POST", maps + "?fieldValidation=Strict", unknown);
  EXPECT_EQ(strict.status, 400);
  EXPECT_THAT(strict.body, testing::HasSubstr("strict decoding error"));
  const auto warned = api.ask("POST", maps + "?fieldValidation=Warn", unknown);
  EXPECT_EQ(warned.status, 201);
  std::vector<std::string> warnings;
  for (const auto& [name, value] : warned.headers) {
    if (name == "Warning") warnings.push_back(value);
  }
  EXPECT_THAT(warnings, testing::UnorderedElementsAre(testing::HasSubstr("duplicate field"), testing::HasSubstr("unknown field")));
}

TEST(ApiHandler, DeletesACollection) {
  Api api;
  for (const char* name : {"a", "b"}) ASSERT_EQ(api.ask("POST", maps, config_map(name, R"(,"labels":{"go":"yes"})")).status, 201);
  ASSERT_EQ(api.ask("POST", maps, config_map("stays")).status, 201);
  const kube::Json answer = api.json("DELETE", maps + "?labelSelector=go%3Dyes");
  EXPECT_EQ(answer["items"].items().size(), 2u);
  EXPECT_EQ(api.json("GET", maps)["items"].items().size(), 1u);
  EXPECT_EQ(api.json("DELETE", maps + "?labelSelector=go%3Dyes")["items"].items().size(), 0u);
}

TEST(ApiHandler, TellsUsersAboutThemselves) {
  Api api;
  const kube::Json me = api.json("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", R"({"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"})");
  EXPECT_EQ(me["status"]["userInfo"]["username"].string(), "admin");
  const std::string question = R"({"spec":{"resourceAttributes":{"verb":"delete","resource":"nodes","name":"w1"}}})";
  const std::string path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
  EXPECT_TRUE(api.json("POST", path, question)["status"]["allowed"].boolean());
  const auto eve = kube::parse_json(api.ask("POST", path, question, {}, "eve-token").body);
  EXPECT_FALSE((*eve)["status"]["allowed"].boolean(true));
  EXPECT_EQ(api.ask("POST", path, "{}").status, 422);
}

TEST(ApiHandler, ServesOpenApiByContent) {
  Api api;
  const kube::Json index = api.json("GET", "/openapi/v3");
  const std::string where = index["paths"]["api/v1"]["serverRelativeURL"].string();
  const auto document = api.ask("GET", where);
  ASSERT_EQ(document.status, 200);
  const std::string tag(http::find(document.headers, "ETag"));
  EXPECT_THAT(std::string(http::find(document.headers, "Cache-Control")), testing::HasSubstr("immutable"));
  EXPECT_EQ(api.ask("GET", where, "", {{"If-None-Match", tag}}).status, 304);
  EXPECT_EQ(api.ask("GET", "/openapi/v3/apis/nobody/v1").status, 404);
}

TEST(ApiHandler, AfterDrainingNothingIsServed) {
  Api api;
  auto exchange = api.send("GET", maps + "?watch=true");
  ASSERT_NE(exchange->wait_stream(), nullptr);
  api.handler->drain();
  EXPECT_TRUE(exchange->wait_ended());
  EXPECT_EQ(api.ask("GET", maps).status, 503);
}

}  // namespace
}  // namespace fairlead::apiserver
