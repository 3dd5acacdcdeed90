// SPDX-License-Identifier: Apache-2.0
#include "apiserver/local_api.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apiserver/registry_names.h"
#include "apiserver/registry_test_kit.h"
#include "kube/cache.h"
#include "kube/many.h"

namespace fairlead::apiserver {
namespace {

using kube::Json;
using test::World;

constexpr std::string_view pod = "{metadata: {name: p, labels: {app: x}}, spec: {containers: [{name: a, image: i, command: [sleep, '1000'], env: [{name: A, value: b}]}]}}";

TEST(LocalApi, CachesGetWhatTheStoreHoldsWithoutManagedFields) {
  World world;
  ASSERT_TRUE(world.create("pods", pod));
  const auto key = kube::ObjectKey{"default", "p"};
  const auto listed = world.api->list(kube::resources::pods, "");
  ASSERT_TRUE(listed && listed->items.size() == 1 && listed->at_rest.size() == 1);
  EXPECT_EQ(listed->at_rest[0].json(), listed->items[0]);
  EXPECT_EQ(listed->items[0], *world.api->get(kube::resources::pods, key));
  EXPECT_FALSE(listed->items[0]["metadata"].has("managedFields"));

  const auto watch = world.api->watch(kube::resources::pods, "", {.resource_version = listed->resource_version});
  ASSERT_TRUE(watch);
  ASSERT_TRUE(world.patch(*world.kind("pods"), key, "{metadata: {labels: {app: z}}}"));
  const auto event = (*watch)->next(std::chrono::seconds(10));
  ASSERT_TRUE(event && *event);
  ASSERT_TRUE((*event)->at_rest);
  EXPECT_EQ((*event)->at_rest.json(), (*event)->object);
  EXPECT_EQ((*event)->object["metadata"]["labels"]["app"].string(), "z");
  // The store and two lists have the same bytes in memory, not three copies.
  const auto stored = world.store->get(store_key(kube::resources::pods, key));
  ASSERT_TRUE(stored);
  const long held = stored->value.held().use_count();
  const auto again = world.api->list(kube::resources::pods, "");
  EXPECT_EQ(stored->value.held().use_count(), held + 1);
}

TEST(LocalApi, ABindingIsAnsweredWithAStatus) {
  World world;
  ASSERT_TRUE(world.create("pods", pod));
  const Json binding = test::json("{apiVersion: v1, kind: Binding, metadata: {name: p, namespace: default}, target: {apiVersion: v1, kind: Node, name: node-1}}");
  const auto bound = world.api->post(kube::resources::pods, {"default", "p"}, "binding", binding);
  ASSERT_TRUE(bound) << bound.error().message;
  EXPECT_EQ((*bound)["kind"].string(), "Status");
  EXPECT_EQ((*bound)["status"].string(), "Success");
  EXPECT_EQ((*world.api->get(kube::resources::pods, {"default", "p"}))["spec"]["nodeName"].string(), "node-1");
  const auto twice = world.api->post(kube::resources::pods, {"default", "p"}, "binding", binding);
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, Code::Conflict);
}

TEST(LocalApi, ManyWritesAreAnsweredOneByOneInTheirOrder) {
  World world;
  const auto of_pod = [](const std::string& name) {
    Json object = test::json(pod);
    object.child("metadata").set("name", name).set("namespace", "default");
    return object;
  };
  const auto made = kube::create_all(*world.api, kube::resources::pods, {of_pod("a"), of_pod("not a name"), of_pod("a"), of_pod("b")});
  ASSERT_EQ(made.size(), 4u);
  EXPECT_TRUE(made[0] && made[3]);
  EXPECT_EQ(made[1].error().code, Code::Invalid);
  EXPECT_EQ(made[2].error().code, Code::Exists);
  const Json binding = test::json("{apiVersion: v1, kind: Binding, target: {apiVersion: v1, kind: Node, name: node-1}}");
  const auto bound = kube::post_all(*world.api, kube::resources::pods, "binding", {{{"default", "gone"}, binding}, {{"default", "a"}, binding}, {{"default", "b"}, binding}});
  ASSERT_EQ(bound.size(), 3u);
  EXPECT_EQ(bound[0].error().code, Code::NotFound);
  EXPECT_TRUE(bound[1] && bound[2]);
  EXPECT_EQ((*world.api->get(kube::resources::pods, {"default", "b"}))["spec"]["nodeName"].string(), "node-1");
  EXPECT_TRUE(kube::create_all(*world.api, kube::resources::pods, {}).empty());
  const auto unknown = kube::create_all(*world.api, {"no.such", "v1", "things", "Thing", true}, {of_pod("c")});
  ASSERT_EQ(unknown.size(), 1u);
  EXPECT_EQ(unknown[0].error().code, Code::NotFound);
}

TEST(LocalApi, AWatchThatIsClosedEndsWhateverItHolds) {
  World world;
  const auto watch = world.api->watch(kube::resources::pods, "", {});
  ASSERT_TRUE(watch);
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(world.create("pods", fmt::format("{{metadata: {{name: {}}}, spec: {{containers: [{{name: a, image: i}}]}}}}", name)));
  for (const char* name : {"a", "b"}) {
    const auto event = (*watch)->next(std::chrono::seconds(10));
    ASSERT_TRUE(event && *event);
    EXPECT_EQ(kube::name_of((*event)->object), name);
  }
  (*watch)->close();
  EXPECT_FALSE((*watch)->next(std::chrono::seconds(10)));
}

}  // namespace
}  // namespace fairlead::apiserver
