// SPDX-License-Identifier: Apache-2.0
#include "apiserver/negotiate.h"

#include <gmock/gmock.h>

namespace fairlead::apiserver {
namespace {

struct Case {
  const char* name;
  const char* accept;
  Asked asked;
  std::optional<Form> want;
};
class Negotiate : public testing::TestWithParam<Case> {};
TEST_P(Negotiate, ChoosesTheFirstFormThatWeCanWrite) { EXPECT_EQ(choose_form(GetParam().accept, GetParam().asked), GetParam().want); }

// The headers are those that kubectl and client-go send.
INSTANTIATE_TEST_SUITE_P(
    Accept, Negotiate,
    testing::Values(
        Case{"none_given", "", Asked::Objects, Form::Json},
        Case{"anything", "*/*", Asked::Objects, Form::Json},
        Case{"kubectl_get", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Asked::Objects, Form::Table},
        Case{"table_of_an_old_version_only", "application/json;as=Table;v=v1beta1;g=meta.k8s.io", Asked::Objects, std::nullopt},
        Case{"typed_client", "application/vnd.kubernetes.protobuf,application/json", Asked::Objects, Form::Json},
        Case{"protobuf_only", "application/vnd.kubernetes.protobuf", Asked::Objects, std::nullopt},
        Case{"metadata_client", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
             Asked::Objects, Form::Partial},
        Case{"watch", "application/json;stream=watch", Asked::Objects, Form::Json},
        Case{"quality_decides", "application/json;q=0.5, application/yaml", Asked::Objects, Form::Yaml},
        Case{"refused_by_quality", "application/json;q=0", Asked::Objects, std::nullopt},
        Case{"discovery_new",
             "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
             Asked::Discovery, Form::DiscoveryV2},
        Case{"discovery_old", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json", Asked::Discovery, Form::Json},
        Case{"discovery_old_alone", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", Asked::Discovery, std::nullopt},
        Case{"discovery_plain", "application/json", Asked::Discovery, Form::Json},
        Case{"html", "text/html", Asked::Plain, std::nullopt}),
    [](const auto& row) { return row.param.name; });

TEST(NegotiateFlags, ReadBooleansOfAllClients) {
  for (const char* yes : {"1", "t", "true", "True", "TRUE", "", "yes"}) EXPECT_TRUE(parse_flag(yes)) << yes;
  for (const char* no : {"0", "f", "F", "false", "False", "FALSE"}) EXPECT_FALSE(parse_flag(no)) << no;
  const http::Query query{{"watch", "True"}, {"stdin", "False"}};
  EXPECT_TRUE(flag(query, "watch"));
  EXPECT_FALSE(flag(query, "stdin", true));
  EXPECT_TRUE(flag(query, "stdout", true));
}

TEST(NegotiateBody, ShowsWhatItCouldNotRead) {
  EXPECT_EQ(summary_of_body(""), "<empty>");
  EXPECT_EQ(summary_of_body("nonsense"), "6e6f6e73656e7365");
  EXPECT_EQ(summary_of_body("{\"a\":"), "{\"a\":");
  EXPECT_EQ(summary_of_body("{" + std::string(40, 'x')), "{" + std::string(29, 'x') + " ...");
}

TEST(NegotiateForm, YamlHasItsKeysInOrder) {
  const kube::Json json = *kube::parse_json(R"({"kind":"K","apiVersion":"v1","list":[{"b":1,"a":2}]})");
  EXPECT_EQ(text_in_form(json, Form::Yaml, false), "apiVersion: v1\nkind: K\nlist:\n- a: 2\n  b: 1\n");
  EXPECT_EQ(text_in_form(json, Form::Json, false), kube::print_json(json) + "\n");
}

TEST(NegotiateBody, ReadsJsonAndYamlAndRefusesTheRest) {
  auto json = parse_body("application/json; charset=utf-8", R"({"a":1,"a":2})");
  ASSERT_TRUE(json) << json.error().message;
  EXPECT_EQ(json->json["a"].integer(), 2);
  EXPECT_THAT(json->duplicates, testing::ElementsAre("a"));
  auto yaml = parse_body("application/yaml", "a: 3\n");
  ASSERT_TRUE(yaml) << yaml.error().message;
  EXPECT_EQ(yaml->json["a"].integer(), 3);
  EXPECT_EQ(parse_body("application/cbor", "x").error().code, Code::Unsupported);
  EXPECT_EQ(parse_body("application/json", "{").error().code, Code::Invalid);
  EXPECT_EQ(parse_body("application/yaml", "a: 1\n---\nb: 2\n").error().code, Code::Invalid);
  EXPECT_EQ(parse_body("application/vnd.kubernetes.protobuf", "nonsense").error().message, "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]");
}

TEST(NegotiatePatch, RefusesWhatIsNotServedWithAWayOut) {
  EXPECT_EQ(parse_patch_form("application/strategic-merge-patch+json", false)->type, kube::PatchType::Strategic);
  EXPECT_EQ(parse_patch_form("application/strategic-merge-patch+json", true).error().code, Code::Unsupported);
  EXPECT_TRUE(parse_patch_form("application/apply-patch+yaml", true)->apply);
  EXPECT_EQ(parse_patch_form("application/apply-patch+cbor", false).error().code, Code::Unsupported);
  EXPECT_EQ(parse_patch_form("application/json", false).error().code, Code::Unsupported);
  EXPECT_EQ(parse_apply_body("{\"a\": 1}")->json["a"].integer(), 1);
  EXPECT_EQ(parse_apply_body("a: {b: 1}\n")->json["a"]["b"].integer(), 1);
  EXPECT_EQ(parse_apply_body("a: [").error().code, Code::Invalid);
}

}  // namespace
}  // namespace fairlead::apiserver
