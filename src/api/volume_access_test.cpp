// SPDX-License-Identifier: Apache-2.0
#include "api/volume_access.h"

#include <gtest/gtest.h>

#include "api/volume.h"

namespace fairlead::api {
namespace {

namespace resources = kube::resources;

const kube::Resource kPersistentVolumes{"", "v1", "persistentvolumes", "PersistentVolume", false};

// A pod of every node has a pool's rights: they are to make or delete nothing that people ask for.
TEST(VolumeAccess, APoolsDaemonFollowsObjectsAndMakesNone) {
  const kube::Access pool = pool_access();
  EXPECT_TRUE(pool.allows("update", kVolumes, "status", "", "x"));
  for (const kube::Resource& one : {kVolumes, kSnapshots, kAttachments})
    for (const char* const verb : {"create", "delete", "patch"}) EXPECT_FALSE(pool.allows(verb, one, "", "", "x")) << verb << " " << one.plural;
  EXPECT_FALSE(pool.allows("delete", kVolumePools, "", "", "x"));
  EXPECT_FALSE(pool.allows("get", kPersistentVolumes, "", "", "x"));
  EXPECT_FALSE(pool.allows("update", resources::nodes, "", "", "x"));
}

TEST(VolumeAccess, TheDriverSaysNothingOfWhatAPoolHas) {
  const kube::Access driver = driver_access();
  for (const char* const verb : {"create", "delete"}) EXPECT_TRUE(driver.allows(verb, kAttachments, "", "", "x"));
  for (const kube::Resource& one : {kVolumes, kSnapshots, kAttachments, kVolumePools}) EXPECT_FALSE(driver.allows("update", one, "status", "", "x")) << one.plural;
}

TEST(VolumeAccess, SidecarsReadNoSecretsAndHaveLeasesOfTheirOwn) {
  for (const kube::Access& one : {sidecar_access("ops"), snapshotter_access("ops")}) {
    for (const char* const verb : {"get", "list", "watch", "create"}) EXPECT_FALSE(one.allows(verb, resources::secrets, "", "ops", "x")) << verb;
    EXPECT_FALSE(one.allows("update", resources::leases, "", "ops", "fairlead-server"));
    EXPECT_FALSE(one.allows("create", resources::leases, "", "default", "x"));
  }
  EXPECT_TRUE(sidecar_access("ops").allows("update", resources::leases, "", "ops", "external-resizer-csi-fairlead-dev"));
  const kube::Resource capacities{"storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", true};
  EXPECT_TRUE(sidecar_access("ops").allows("create", capacities, "", "ops", "x"));
  EXPECT_FALSE(sidecar_access("ops").allows("create", capacities, "", "default", "x"));
  EXPECT_TRUE(sidecar_access("ops").allows("patch", resources::claims, "status", "any", "x"));
}

}  // namespace
}  // namespace fairlead::api
