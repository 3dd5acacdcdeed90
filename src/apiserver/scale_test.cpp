// SPDX-License-Identifier: Apache-2.0
#include "apiserver/scale.h"

#include <gtest/gtest.h>

#include "apiserver/registry_test_kit.h"

namespace fairlead::apiserver {
namespace {

using test::json;

const ScalePaths paths{".spec.size", ".status.running", ".status.selector"};

TEST(Scale, IsMadeOfAnObject) {
  const auto scale = scale_of(json("{metadata: {name: w, namespace: d, uid: u, resourceVersion: '7', labels: {a: b}}, spec: {size: 3}, status: {running: 2, selector: a=b}}"), paths);
  ASSERT_TRUE(scale);
  EXPECT_EQ(*scale, json("{kind: Scale, apiVersion: autoscaling/v1, metadata: {name: w, namespace: d, uid: u, resourceVersion: '7'}, spec: {replicas: 3}, status: {replicas: 2, selector: a=b}}"));
  EXPECT_EQ((*scale_of(json("{spec: {size: 0}}"), paths))["status"], json("{replicas: 0}"));
  EXPECT_EQ(scale_of(json("{spec: {}}"), paths).error().code, Code::Internal);
}

TEST(Scale, IsTakenBack) {
  EXPECT_EQ(*with_scale(json("{spec: {size: 3, x: y}}"), json("{spec: {replicas: 5}}"), paths), json("{spec: {size: 5, x: y}}"));
  EXPECT_EQ(*with_scale(json("{}"), json("{spec: {}}"), paths), json("{spec: {size: 0}}"));
  for (const char* wrong : {"{spec: {replicas: -1}}", "{spec: {replicas: x}}", "{spec: {replicas: 1.5}}", "{spec: {replicas: 3000000000}}"})
    EXPECT_FALSE(with_scale(json("{spec: {size: 3}}"), json(wrong), paths).has_value()) << wrong;
  EXPECT_FALSE(with_scale(json("{spec: 4}"), json("{spec: {replicas: 1}}"), paths).has_value());
}

TEST(Scale, PathsAreSimple) {
  EXPECT_TRUE(simple_path(".spec.a").has_value());
  for (const char* path : {"", "spec", ".", ".spec.", ".spec[0]", ".spec['a']"}) EXPECT_FALSE(simple_path(path).has_value()) << path;
}

}  // namespace
}  // namespace fairlead::apiserver
