// SPDX-License-Identifier: Apache-2.0
#include "apiserver/openapi.h"

#include <gmock/gmock.h>

#include <set>

namespace fairlead::apiserver {
namespace {

KindTable sample_table() {
  KindTable table;
  auto pod = std::make_shared<Kind>();
  pod->resource = {"", "v1", "pods", "Pod", true};
  pod->status_subresource = true;
  pod->type = kube::TypeTable::builtin().find_kind("v1", "Pod");
  table.kinds.push_back(pod);
  auto machine = std::make_shared<Kind>();
  machine->resource = {"fairlead.dev", "v1alpha1", "machines", "Machine", false};
  machine->open_api = *kube::parse_json(R"({"type":"object","properties":{"spec":{"type":"object","description":"what is wanted"}}})");
  table.kinds.push_back(machine);
  return table;
}

void references_of(const kube::Json& value, std::set<std::string>& out) {
  if (const kube::Json* name = value.find("$ref"); name != nullptr && name->is_string()) out.insert(name->string());
  for (const auto& [key, member] : value.members()) references_of(member, out);
  for (const kube::Json& item : value.items()) references_of(item, out);
}

TEST(OpenApi, EveryReferenceLeadsSomewhere) {
  for (const GroupVersion& group_version : group_versions(sample_table())) {
    const kube::Json document = open_api_document(sample_table(), group_version);
    std::set<std::string> references;
    references_of(document, references);
    for (const std::string& reference : references) {
      EXPECT_TRUE(document["components"]["schemas"].has(reference.substr(std::string("#/components/schemas/").size()))) << group_version.text() << ": " << reference;
    }
  }
}

TEST(OpenApi, PatchOperationsSayWhoTheyAreAboutAndThatTheServerValidates) {
  const kube::Json document = open_api_document(sample_table(), {"", "v1"});
  const kube::Json& patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
  EXPECT_EQ(kube::print_json(patch["x-kubernetes-group-version-kind"]), R"({"group":"","kind":"Pod","version":"v1"})");
  bool has_validation = false;
  for (const kube::Json& parameter : patch["parameters"].items()) has_validation = has_validation || parameter["name"].string() == "fieldValidation";
  EXPECT_TRUE(has_validation);
}

TEST(OpenApi, ListsTellTheirMergeKeys) {
  const kube::Json document = open_api_document(sample_table(), {"", "v1"});
  const kube::Json& containers = document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
  EXPECT_EQ(containers["x-kubernetes-patch-merge-key"].string(), "name");
  EXPECT_EQ(containers["x-kubernetes-patch-strategy"].string(), "merge");
  EXPECT_EQ(document["components"]["schemas"]["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"].items().size(), 1u);
}

TEST(OpenApi, ACustomResourceHasItsSchemaWithMetadata) {
  const kube::Json document = open_api_document(sample_table(), {"fairlead.dev", "v1alpha1"});
  const kube::Json& machine = document["components"]["schemas"]["dev.fairlead.v1alpha1.Machine"];
  EXPECT_EQ(machine["properties"]["spec"]["description"].string(), "what is wanted");
  EXPECT_TRUE(machine["properties"]["metadata"].is_object());
  const kube::Json& patch = document["paths"]["/apis/fairlead.dev/v1alpha1/machines/{name}"]["patch"];
  EXPECT_TRUE(patch["requestBody"]["content"].has("application/merge-patch+json"));
  EXPECT_FALSE(patch["requestBody"]["content"].has("application/strategic-merge-patch+json"));  // kubectl apply would send one
}

TEST(OpenApi, HashesFollowTheContent) {
  OpenApi open_api;
  KindTable table = sample_table();
  const auto before = open_api.document(table, {"fairlead.dev", "v1alpha1"});
  ASSERT_TRUE(before);
  EXPECT_EQ(open_api.document(table, {"fairlead.dev", "v1alpha1"})->bytes, before->bytes);  // kept, not made again
  EXPECT_THAT(*open_api.index(table), testing::HasSubstr(before->hash));
  auto changed = std::make_shared<Kind>(*table.kinds[1]);
  changed->open_api.set("description", "new");
  table.kinds[1] = changed;
  EXPECT_NE(open_api.document(table, {"fairlead.dev", "v1alpha1"})->hash, before->hash);
  EXPECT_FALSE(open_api.document(table, {"apps", "v1"}));
}

}  // namespace
}  // namespace fairlead::apiserver
