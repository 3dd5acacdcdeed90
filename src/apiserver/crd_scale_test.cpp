// SPDX-License-Identifier: Apache-2.0
// What CRDs may declare beside their schema: the scale subresource, fields to select by, rules that are not evaluated; and schemas that are refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apiserver/api_test_kit.h"
#include "apiserver/registry_test_kit.h"
#include "apiserver/status.h"

namespace fairlead::apiserver {
namespace {

using kube::Json;
using test::json;
using testing::HasSubstr;
using testing_kit::Api;

const std::string crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const std::string widgets = "/apis/x.example.com/v1/namespaces/default/widgets";
const http::Headers merge{{"Content-Type", "application/merge-patch+json"}};

std::string crd(const std::string& spec_more = "", const std::string& version_more = "") {
  return kube::print_json(json(fmt::format(R"(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: widgets.x.example.com}}
spec:
  group: x.example.com
  scope: Namespaced
  names: {{plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {{status: {{}}, scale: {{specReplicasPath: .spec.size, statusReplicasPath: .status.running, labelSelectorPath: .status.selector}}}}
      selectableFields: [{{jsonPath: .spec.mode}}, {{jsonPath: .spec.size}}]
      {}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                size: {{type: integer, minimum: 0}}
                mode: {{type: string}}
                {}
            status: {{type: object, properties: {{running: {{type: integer}}, selector: {{type: string}}}}}}
)", version_more.empty() ? "deprecated: false" : version_more, spec_more.empty() ? "other: {type: string}" : spec_more)));
}
std::string widget(const std::string& name, const std::string& spec) {
  return fmt::format(R"({{"apiVersion":"x.example.com/v1","kind":"Widget","metadata":{{"name":"{}"}},"spec":{}}})", name, spec);
}

TEST(CrdScale, ReadsAndWritesTheNumber) {
  Api api;
  ASSERT_EQ(api.ask("POST", crds, crd()).status, 201);
  ASSERT_EQ(api.ask("POST", widgets, widget("w", R"({"size":3,"mode":"a"})")).status, 201);
  Json scale = api.json("GET", widgets + "/w/scale");
  EXPECT_EQ(scale["kind"].string(), "Scale");
  EXPECT_EQ(scale["spec"]["replicas"].integer(), 3);
  scale.child("spec").set("replicas", 5);
  EXPECT_EQ(api.json("PUT", widgets + "/w/scale?fieldManager=scaler", kube::print_json(scale))["spec"]["replicas"].integer(), 5);
  EXPECT_EQ(api.ask("PUT", widgets + "/w/scale", kube::print_json(scale)).status, 409);  // decided on an old version
  EXPECT_EQ(api.json("PATCH", widgets + "/w/scale", R"({"spec":{"replicas":7}})", merge)["spec"]["replicas"].integer(), 7);
  const Json object = api.json("GET", widgets + "/w");
  EXPECT_EQ(object["spec"], json("{size: 7, mode: a}"));
  EXPECT_EQ(object["metadata"]["generation"].integer(), 3);
  EXPECT_THAT(kube::print_json(object["metadata"]["managedFields"]), HasSubstr(R"("subresource":"scale")"));
  EXPECT_EQ(api.ask("PATCH", widgets + "/w/scale", R"({"spec":{"replicas":-1}})", merge).status, 422);
  EXPECT_EQ(api.ask("GET", widgets + "/none/scale").status, 404);
  const http::Response list = api.ask("GET", "/apis/x.example.com/v1");
  EXPECT_THAT(list.body, HasSubstr(R"("name":"widgets/scale")"));
}

TEST(CrdSelectable, ListsBySpecFields) {
  Api api;
  ASSERT_EQ(api.ask("POST", crds, crd()).status, 201);
  for (const auto& [name, spec] : {std::pair{"a", R"({"size":1,"mode":"x"})"}, std::pair{"b", R"({"size":2,"mode":"x"})"}, std::pair{"c", R"({"size":2,"mode":"y"})"}})
    ASSERT_EQ(api.ask("POST", widgets, widget(name, spec)).status, 201);
  EXPECT_EQ(api.json("GET", widgets + "?fieldSelector=spec.mode%3Dx")["items"].items().size(), 2U);
  EXPECT_EQ(api.json("GET", widgets + "?fieldSelector=spec.size%3D2")["items"].items().size(), 2U);
  EXPECT_EQ(api.json("GET", widgets + "?fieldSelector=spec.size%3D2,spec.mode!%3Dx")["items"].items().size(), 1U);
  EXPECT_EQ(api.ask("GET", widgets + "?fieldSelector=spec.other%3D2").status, 400);
}

TEST(CrdRules, AreReportedWhereTheyAreNotEvaluated) {
  Api api;
  const http::Response made = api.ask("POST", crds, crd("ruled: {type: integer, x-kubernetes-validations: [{rule: url(self).getHost() != ''}]}"));
  ASSERT_EQ(made.status, 201);
  EXPECT_THAT(std::string(http::find(made.headers, "Warning")), HasSubstr("not evaluated"));
  EXPECT_THAT(made.body, HasSubstr(R"("type":"ValidationRulesEvaluated","status":"False")"));
}

struct Bad {
  const char *name, *more, *why;
};
class CrdSchema : public testing::TestWithParam<Bad> {};
TEST_P(CrdSchema, IsRefused) {
  Api api;
  const Json answer = api.json("POST", crds, crd(GetParam().more));
  EXPECT_EQ(answer["code"].integer(), 422);
  EXPECT_THAT(answer["message"].string(), HasSubstr(GetParam().why));
}
INSTANTIATE_TEST_SUITE_P(
    Schemas, CrdSchema,
    testing::Values(Bad{"default_of_wrong_type", "q: {type: string, default: 5}", "properties[q].default: Invalid value: \"integer\":  in body must be of type string: \"integer\""},
                    Bad{"default_with_unknown", "q: {type: object, properties: {a: {type: string}}, default: {b: 1}}", "properties[q].default: Invalid value"},
                    Bad{"key_that_is_no_property", "q: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [b], items: {type: object, properties: {a: {type: string}}}}",
                        "Invalid value: []string{\"b\"}: entries must all be names of item properties"},
                    Bad{"key_that_may_be_absent", "q: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [a], items: {type: object, properties: {a: {type: string}}}}",
                        "properties[q].items.properties[a].default: Required value"},
                    Bad{"type_in_a_check", "q: {type: object, anyOf: [{type: object}]}", "anyOf[0].type: Forbidden: must be empty to be structural"}),
    [](const auto& row) { return row.param.name; });

TEST(CrdWatch, EndsWithItsKind) {
  Api api;
  ASSERT_EQ(api.ask("POST", crds, crd()).status, 201);
  auto watching = api.send("GET", widgets + "?watch=true");
  ASSERT_NE(watching->wait_stream(), nullptr);
  ASSERT_EQ(api.ask("DELETE", crds + "/widgets.x.example.com").status, 200);
  // The engine's own controllers are not running here: the CRD's finalizer is taken by hand.
  ASSERT_EQ(api.ask("PATCH", crds + "/widgets.x.example.com", R"({"metadata":{"finalizers":null}})", merge).status, 200);
  EXPECT_EQ(api.ask("GET", widgets).status, 404);
  EXPECT_TRUE(watching->wait_ended());
}

TEST(ListTokens, AreRenewedWhenTheirSnapshotIsGone) {
  // A history of one event: every older snapshot is gone.
  test::World world({.events = 1, .bytes = 1});
  for (const char* name : {"a", "b", "c"}) world.must(world.create("configmaps", fmt::format("{{metadata: {{name: {}}}}}", name)));
  const auto kind = world.kind("configmaps");
  const auto first = world.registry->list(*kind, "default", {.limit = 1});
  ASSERT_TRUE(first);
  for (const char* name : {"d", "e"}) world.must(world.create("configmaps", fmt::format("{{metadata: {{name: {}}}}}", name)));
  const auto gone = world.registry->list(*kind, "default", {.limit = 1, .continue_token = first->continue_token});
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::Expired);
  const Status status = status_of(gone.error());
  EXPECT_EQ(status.code, 410);
  EXPECT_EQ(status.message.find(fresh_token_mark), std::string::npos);
  const auto rest = world.registry->list(*kind, "default", {.continue_token = status.continue_token});
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->objects.size(), 4U);  // b, c and those that came meanwhile
}

}  // namespace
}  // namespace fairlead::apiserver
