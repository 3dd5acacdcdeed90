// SPDX-License-Identifier: Apache-2.0
#include "storage/plan/ephemeral_claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairlead::storage {
namespace {

using kube::Json;
using testing::HasSubstr;

const Json pod = *kube::parse_json(R"({"metadata": {"name": "train-0", "namespace": "team", "uid": "u1"}, "status": {"phase": "Pending"}, "spec": {"volumes": [
  {"name": "cache", "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "5Gi"}}}}}}]}})");
const Json& volume = pod["spec"]["volumes"].items()[0];

TEST(EphemeralClaim, IsMadeForItsPodAndGoesWithIt) {
  const EphemeralNext next = next_for_ephemeral(pod, volume, std::nullopt);
  ASSERT_TRUE(next.make.is_object());
  const Json& metadata = next.make["metadata"];
  EXPECT_EQ(metadata["name"].string(), "train-0-cache");
  EXPECT_EQ(metadata["namespace"].string(), "team");
  EXPECT_EQ(metadata["labels"]["a"].string(), "b");
  const Json& owner = metadata["ownerReferences"].items()[0];
  EXPECT_EQ(owner["kind"].string() + " " + owner["name"].string() + " " + owner["uid"].string(), "Pod train-0 u1");
  EXPECT_TRUE(owner["controller"].boolean());
  EXPECT_EQ(next.make["spec"], volume["ephemeral"]["volumeClaimTemplate"]["spec"]);
  EXPECT_TRUE(next_for_ephemeral(pod, volume, next.make).make.is_null());
  EXPECT_EQ(next_for_ephemeral(pod, volume, next.make).why, "");
}

TEST(EphemeralClaim, AnothersOfItsNameIsNotTaken) {
  Json claim = next_for_ephemeral(pod, volume, std::nullopt).make;
  claim.child("metadata").erase("ownerReferences");
  EXPECT_THAT(next_for_ephemeral(pod, volume, claim).why, HasSubstr("was not created for pod team/train-0"));
  Json before = next_for_ephemeral(pod, volume, std::nullopt).make;
  Json next_of_its_name = pod;
  next_of_its_name.child("metadata").set("uid", "u2");
  EXPECT_THAT(next_for_ephemeral(next_of_its_name, volume, before).why, HasSubstr("pod is not owner")) << "the claim of a pod that had this name before";
  EXPECT_TRUE(next_for_ephemeral(next_of_its_name, volume, before).make.is_null());
}

TEST(EphemeralClaim, NothingIsMadeForOneThatEnds) {
  for (const char* phase : {"Succeeded", "Failed"}) {
    Json ended = pod;
    ended.child("status").set("phase", phase);
    EXPECT_TRUE(next_for_ephemeral(ended, volume, std::nullopt).make.is_null());
  }
  Json going = pod;
  going.child("metadata").set("deletionTimestamp", "2026-11-28T00:00:00Z");
  EXPECT_TRUE(next_for_ephemeral(going, volume, std::nullopt).make.is_null());
}

}  // namespace
}  // namespace fairlead::storage
