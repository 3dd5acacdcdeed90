// SPDX-License-Identifier: Apache-2.0
#include "kube/object.h"

#include <gtest/gtest.h>

namespace fairlead::kube {
namespace {

const Instant t0 = *parse_time("2026-01-02T03:04:05Z");

Json json(std::string_view text) {
  auto parsed = parse_json(text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *std::move(parsed) : Json();
}

TEST(Object, ReadsMetadata) {
  const Json pod = json(R"({"metadata":{"name":"a","namespace":"s","uid":"u","resourceVersion":"7","labels":{"x":"1","bad":2},"annotations":{"y":"2"},"deletionTimestamp":"2026-01-02T03:04:05Z"}})");
  EXPECT_EQ(key_of(pod), (ObjectKey{"s", "a"}));
  EXPECT_EQ(key_of(pod).text(), "s/a");
  EXPECT_EQ((ObjectKey{"", "n"}).text(), "n");
  EXPECT_EQ(uid_of(pod), "u");
  EXPECT_EQ(version_of(pod), "7");
  EXPECT_TRUE(deleting(pod));
  EXPECT_FALSE(deleting(Json()));
  EXPECT_EQ(labels_of(pod), (std::map<std::string, std::string>{{"x", "1"}}));
  EXPECT_EQ(annotations_of(pod), (std::map<std::string, std::string>{{"y", "2"}}));
}

TEST(Object, FinalizersAreASet) {
  Json object = json(R"({"metadata":{"name":"a"}})");
  add_finalizer(object, "f/one");
  add_finalizer(object, "f/two");
  add_finalizer(object, "f/one");
  EXPECT_EQ(print_json(object["metadata"]["finalizers"]), R"(["f/one","f/two"])");
  EXPECT_TRUE(has_finalizer(object, "f/two"));
  remove_finalizer(object, "f/one");
  remove_finalizer(object, "absent");
  EXPECT_EQ(print_json(object["metadata"]["finalizers"]), R"(["f/two"])");
  remove_finalizer(object, "f/two");
  EXPECT_EQ(print_json(object), R"({"metadata":{"name":"a"}})");
  Json odd = json(R"({"metadata":"text"})");
  remove_finalizer(odd, "x");
  add_finalizer(odd, "x");
  EXPECT_TRUE(has_finalizer(odd, "x"));
}

TEST(Object, OwnersReferToTheirController) {
  const Json owner = json(R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","uid":"u-1"}})");
  Json child;
  child.child("metadata").child("ownerReferences").push(json(R"({"kind":"Other","name":"o"})"));
  EXPECT_EQ(controller_of(child), nullptr);
  child.child("metadata").child("ownerReferences").push(owner_reference(owner));
  ASSERT_NE(controller_of(child), nullptr);
  EXPECT_EQ(print_json(*controller_of(child)), R"({"apiVersion":"v1","kind":"Pod","name":"p","uid":"u-1","controller":true,"blockOwnerDeletion":true})");
}

TEST(Condition, TransitionTimeMovesOnlyWithStatus) {
  Json object = json(R"({"metadata":{"generation":3}})");
  EXPECT_TRUE(set_condition(object, {"Ready", "False", "Starting", "0 of 2"}, t0));
  EXPECT_EQ(print_json(object["status"]["conditions"]),
            R"([{"type":"Ready","status":"False","lastTransitionTime":"2026-01-02T03:04:05Z","reason":"Starting","message":"0 of 2","observedGeneration":3}])");
  EXPECT_FALSE(set_condition(object, {"Ready", "False", "Starting", "0 of 2"}, t0 + 1h));
  EXPECT_TRUE(set_condition(object, {"Ready", "False", "Starting", "1 of 2"}, t0 + 1h));
  EXPECT_EQ((*find_condition(object, "Ready"))["lastTransitionTime"].string(), "2026-01-02T03:04:05Z");
  EXPECT_TRUE(set_condition(object, {"Ready", "True", "Started", ""}, t0 + 2h));
  EXPECT_EQ((*find_condition(object, "Ready"))["lastTransitionTime"].string(), "2026-01-02T05:04:05Z");
  EXPECT_TRUE(condition_is_true(object, "Ready"));
  object.child("metadata").set("generation", 4);
  EXPECT_FALSE(set_condition(object, {"Ready", "True", "Started", ""}, t0 + 3h)) << "observedGeneration alone is no change";
  EXPECT_EQ((*find_condition(object, "Ready"))["observedGeneration"].integer(), 4);
  EXPECT_TRUE(set_condition(object, {"Other", "Unknown", "R", ""}, t0));
  EXPECT_EQ(object["status"]["conditions"].items().size(), 2u);
  EXPECT_EQ(find_condition(object, "Absent"), nullptr);
  EXPECT_FALSE(condition_is_true(object, "Other"));
}

TEST(Resource, ApiVersionJoinsGroupAndVersion) {
  EXPECT_EQ(resources::pods.api_version(), "v1");
  EXPECT_EQ(resources::leases.api_version(), "coordination.k8s.io/v1");
  EXPECT_FALSE(resources::machines.namespaced);
  EXPECT_TRUE(resources::slurm_clusters.namespaced);
}

}  // namespace
}  // namespace fairlead::kube
