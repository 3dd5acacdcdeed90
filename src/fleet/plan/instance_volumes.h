// SPDX-License-Identifier: Apache-2.0
// The volume of an instance whose group names a key: an encrypted Volume of a pool that its node reaches, attached there, called as the instance is. Who has the cluster says what is to be; the node's agent mounts it (api/instance_volume.h). Pure; docs/design/081-keys-of-instance-volumes.md.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "api/cluster.h"
#include "api/volume.h"
#include "api/volume_key.h"
#include "kube/json.h"

namespace fairlead::fleet {

struct InstanceVolumeFacts {
  const kube::Json& instance;
  const api::InstanceGroup& group;      // with a key and a size
  std::string node;                     // that the instance has
  const kube::Json* volume = nullptr;   // of the instance's name; null: there is none
  const kube::Json* attachment = nullptr;  // of that and the node
  const std::vector<api::PoolFacts>& pools;
  const std::vector<api::VolumeKey>& keys;
  Instant now;
};
// One write at most, and what the volume waits for. Both objects are owned by the Instance, and go with it; a pool lets go of what is mounted once that has ended.
struct InstanceVolumeStep {
  kube::Json create_volume, create_attachment;  // null: not now
  std::int64_t grow_to = 0;                     // bytes, of the Volume's spec; 0: it is as large
  std::string trouble;                          // in words; empty: nothing but time
};
InstanceVolumeStep plan_instance_volume(const InstanceVolumeFacts& facts);

}  // namespace fairlead::fleet
