// SPDX-License-Identifier: Apache-2.0
// Server-side apply and managedFields through the registry: creation, retries, status, dry run, patches that touch managedFields.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apiserver/registry_test_kit.h"
#include "apiserver/registry_bytes.h"

namespace fairlead::apiserver {
namespace {

using namespace test;  // NOLINT
using testing::HasSubstr;

Result<Written> apply(World& world, const std::string& plural, const kube::ObjectKey& key, std::string_view yaml, WriteContext context = {.field_manager = "a"}, const std::string& subresource = "") {
  Waiter waiter;
  world.registry->apply(context, *world.kind(plural), key, subresource, json(yaml), waiter.reply());
  return waiter.wait();
}
std::string managers(const Json& object) {
  std::string out;
  for (const Json& entry : object["metadata"]["managedFields"].items())
    out += fmt::format("{}{}:{}:{}", out.empty() ? "" : " ", entry["manager"].string(), entry["operation"].string(), kube::print_json(entry["fieldsV1"]));
  return out;
}
const kube::ObjectKey c{"default", "c"};

TEST(RegistryApply, MakesThenChangesThenLeavesAlone) {
  World world;
  const auto made = apply(world, "configmaps", c, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {k: v}}");
  world.must(made);
  EXPECT_TRUE(made->created);
  EXPECT_EQ(managers(object_of(made)), R"(a:Apply:{"f:data":{"f:k":{}}})");
  const auto same = apply(world, "configmaps", c, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, creationTimestamp: null}, data: {k: v}}");
  world.must(same);
  EXPECT_FALSE(same->created);
  EXPECT_EQ(same->object.revision, made->object.revision);
  const auto changed = apply(world, "configmaps", c, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {l: w}}");
  EXPECT_EQ(object_of(changed)["data"], json("{l: w}"));
}

TEST(RegistryApply, RefusesWhatDoesNotFit) {
  World world;
  struct Row {
    const char *yaml, *why;
  };
  for (const Row& row : {Row{"{kind: ConfigMap, metadata: {name: c}}", "invalid object type: /, Kind=ConfigMap"}, Row{"{apiVersion: v1, kind: Pod, metadata: {name: c}}", "invalid object type: /v1, Kind=Pod"},
                         Row{"{apiVersion: v1, kind: ConfigMap, metadata: {name: c, managedFields: []}}", "metadata.managedFields must be nil"},
                         Row{"{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, dat: {}}",
                             "failed to create typed patch object (/c; /v1, Kind=ConfigMap): .dat: field not declared in schema"},
                         Row{"{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}", "does not match the name on the URL"}}) {
    const auto done = apply(world, "configmaps", c, row.yaml);
    ASSERT_FALSE(done) << row.yaml;
    EXPECT_EQ(done.error().code, Code::Invalid);
    EXPECT_THAT(done.error().message, HasSubstr(row.why));
  }
  EXPECT_EQ(apply(world, "configmaps", {"nowhere", "c"}, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}").error().code, Code::NotFound);
}

TEST(RegistryApply, KeepsDefaultsAndValidates) {
  World world;
  const std::string pod = "{apiVersion: v1, kind: Pod, metadata: {name: c}, spec: {containers: [{name: m, image: i}]}}";
  const auto made = apply(world, "pods", c, pod);
  world.must(made);
  EXPECT_EQ(object_of(made)["spec"]["restartPolicy"].string(), "Always");
  const auto again = apply(world, "pods", c, pod);
  world.must(again);
  EXPECT_EQ(again->object.revision, made->object.revision);
  EXPECT_THAT(message_of(apply(world, "pods", c, "{apiVersion: v1, kind: Pod, metadata: {name: c}, spec: {containers: [{name: m}]}}")), HasSubstr("is invalid: [spec.containers[0].image: Required value"));
}

TEST(RegistryApply, StatusHasItsOwnOwners) {
  World world;
  world.must(world.create("pods", small_pod, "default", {.field_manager = "maker"}));
  const kube::ObjectKey web{"default", "web"};
  const auto done = apply(world, "pods", web, "{apiVersion: v1, kind: Pod, metadata: {name: web}, status: {message: m}, spec: {nodeName: x}}", {.field_manager = "agent"}, "status");
  world.must(done);
  const Json pod = object_of(done);
  EXPECT_EQ(pod["status"]["message"].string(), "m");
  EXPECT_FALSE(pod["spec"].has("nodeName"));
  const Json& entry = pod["metadata"]["managedFields"].items().front();
  EXPECT_EQ(entry["subresource"].string(), "status");
  EXPECT_EQ(kube::print_json(entry["fieldsV1"]), R"({"f:status":{"f:message":{}}})");
  EXPECT_EQ(apply(world, "pods", {"default", "none"}, "{apiVersion: v1, kind: Pod, metadata: {name: none}}", {.field_manager = "agent"}, "status").error().code, Code::NotFound);
}

TEST(RegistryApply, DryRunWritesNothing) {
  World world;
  const auto shown = apply(world, "configmaps", c, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {k: v}}", {.dry_run = true, .field_manager = "a"});
  world.must(shown);
  EXPECT_FALSE(managers(object_of(shown)).empty());
  EXPECT_FALSE(world.registry->get(*world.kind("configmaps"), c).has_value());
  world.must(apply(world, "configmaps", c, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {k: v}}"));
  const auto before = world.registry->revision();
  world.must(apply(world, "configmaps", c, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {k: w}}", {.dry_run = true, .field_manager = "a"}));
  EXPECT_EQ(world.registry->revision(), before);
}

TEST(RegistryApply, NamesAVersionOnlyOnce) {
  World world;
  const auto made = apply(world, "configmaps", c, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {k: v}}");
  const std::string with = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, resourceVersion: '%'}, data: {k: w}}";
  const auto at = [&](const std::string& version) { return std::string(with).replace(with.find('%'), 1, version); };
  world.must(apply(world, "configmaps", c, at(std::to_string(made->object.revision))));
  EXPECT_EQ(apply(world, "configmaps", c, at(std::to_string(made->object.revision))).error().code, Code::Conflict);
}

TEST(Managed, FollowsCreatesUpdatesAndPatches) {
  World world;
  const auto kind = world.kind("configmaps");
  world.must(world.create("configmaps", "{metadata: {name: c, managedFields: [{manager: liar}]}, data: {k: v}}", "default", {.user_agent = "maker/v1"}));
  Json object = world.get(*kind, c);
  EXPECT_EQ(managers(object), R"(maker:Update:{"f:data":{".":{},"f:k":{}}})");
  object.child("data").set("l", "w");
  world.must(world.update(*kind, object, "", {.field_manager = "second"}));
  EXPECT_EQ(managers(world.get(*kind, c)), R"(maker:Update:{"f:data":{".":{},"f:k":{}}} second:Update:{"f:data":{"f:l":{}}})");
  world.must(world.patch(*kind, c, "{data: {l: null}}", kube::PatchType::Merge, "", {.field_manager = "third"}));
  EXPECT_EQ(managers(world.get(*kind, c)), R"(maker:Update:{"f:data":{".":{},"f:k":{}}})");
}

TEST(Managed, CanBeWrittenByThoseWhoMoveOwnership) {
  World world;
  const auto kind = world.kind("configmaps");
  world.must(world.create("configmaps", "{metadata: {name: c}, data: {k: v}}", "default", {.field_manager = "kubectl-client-side-apply"}));
  // As kubectl does when it moves from client-side to server-side apply.
  const char* move = R"([{op: replace, path: /metadata/managedFields, value: [{manager: kubectl, operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:data": {"f:k": {}}}}]}])";
  world.must(world.patch(*kind, c, move, kube::PatchType::JsonPatch, "", {.field_manager = "kubectl"}));
  EXPECT_EQ(managers(world.get(*kind, c)), R"(kubectl:Apply:{"f:data":{"f:k":{}}})");
  world.must(world.patch(*kind, c, "{metadata: {managedFields: [{}]}}", kube::PatchType::Merge, "", {.field_manager = "x"}));
  EXPECT_FALSE(world.get(*kind, c)["metadata"].has("managedFields"));
  // Nobody is known: updates leave it so, an apply begins anew.
  world.must(world.patch(*kind, c, "{data: {l: w}}", kube::PatchType::Merge, "", {.field_manager = "x"}));
  EXPECT_FALSE(world.get(*kind, c)["metadata"].has("managedFields"));
  EXPECT_EQ(apply(world, "configmaps", c, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {l: z}}").error().message,
            "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.l");
}

TEST(Managed, SealedSecretsHaveOwnersToo) {
  World world;
  world.must(world.create("secrets", "{metadata: {name: c}, data: {k: dg==}}", "default", {.field_manager = "m"}));
  EXPECT_EQ(managers(world.get(*world.kind("secrets"), c)), R"(m:Update:{"f:data":{".":{},"f:k":{}},"f:type":{}})");
}

TEST(Managed, IsCutOutOfTheBytes) {
  const Json object = json(R"({metadata: {name: c, annotations: {x: '","managedFields":[{'}}, data: {k: v}})");
  const kube::Resource resource{"", "v1", "configmaps", "ConfigMap", true};
  const std::string managed = R"([{"fieldsV1":{"k:{\"a\":\"]\"}":{}},"manager":"\"}]"}])";
  const std::string with = join(canonical(object, resource, managed), 7), without = join(canonical(object, resource), 7);
  EXPECT_EQ(managed_fields_of(with), managed);
  EXPECT_EQ(without_managed_fields(with), without);
  EXPECT_EQ(managed_fields_of(without), "");
  EXPECT_EQ(without_managed_fields(without), without);
}

}  // namespace
}  // namespace fairlead::apiserver
