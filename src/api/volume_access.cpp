// SPDX-License-Identifier: Apache-2.0
#include "api/volume_access.h"

#include "api/volume.h"
#include "api/volume_key.h"
#include "kube/leader.h"

namespace fairlead::api {

namespace resources = kube::resources;

namespace {

constexpr const char* kStorage = "storage.k8s.io";
constexpr const char* kSnapshotGroup = "snapshot.storage.k8s.io";
const kube::Resource kPersistentVolumes{"", "v1", "persistentvolumes", "PersistentVolume", false};
const kube::Resource kStorageClasses{kStorage, "v1", "storageclasses", "StorageClass", false};
const kube::Resource kAttributesClasses{kStorage, "v1", "volumeattributesclasses", "VolumeAttributesClass", false};
const kube::Resource kCsiNodes{kStorage, "v1", "csinodes", "CSINode", false};
const kube::Resource kVolumeAttachments{kStorage, "v1", "volumeattachments", "VolumeAttachment", false};
const kube::Resource kCapacities{kStorage, "v1", "csistoragecapacities", "CSIStorageCapacity", true};
const kube::Resource kReplicaSets{"apps", "v1", "replicasets", "ReplicaSet", true};
const kube::Resource kVolumeSnapshots{kSnapshotGroup, "v1", "volumesnapshots", "VolumeSnapshot", true};
const kube::Resource kSnapshotContents{kSnapshotGroup, "v1", "volumesnapshotcontents", "VolumeSnapshotContent", false};
const kube::Resource kSnapshotClasses{kSnapshotGroup, "v1", "volumesnapshotclasses", "VolumeSnapshotClass", false};

const std::vector<std::string> kLook{"get", "list", "watch"};

}  // namespace

kube::Access pool_access() {
  kube::Access out;
  for (const kube::Resource& one : {kVolumes, kSnapshots, kAttachments, kVolumePools}) out.may({"get", "list", "watch", "update"}, one).may({"update"}, one, "status");
  out.may({"create"}, kVolumePools).may(kLook, resources::nodes);
  return out;
}

kube::Access pool_keys_access() {
  kube::Access out;
  return out.may({"get", "create", "update"}, resources::secrets, "", kVolumeKeySpace).may({"get"}, kVolumeKeys);
}

kube::Access driver_access() {
  kube::Access out;
  out.may({"get", "list", "watch", "create", "update", "delete"}, kVolumes).may({"get", "list", "watch", "create", "delete"}, kSnapshots).may({"get", "list", "watch", "create", "delete"}, kAttachments).may({"get", "list"}, kVolumePools).may({"get"}, resources::nodes);
  return out;
}

kube::Access sidecar_access(const std::string& space) {
  kube::Access out;
  // csi-provisioner
  out.may({"get", "list", "watch", "create", "patch", "delete"}, kPersistentVolumes).may({"get", "list", "watch", "update"}, resources::claims).may(kLook, kStorageClasses).may(kLook, kCsiNodes).may(kLook, resources::nodes);
  // What each pool has left, for the scheduler; these go with the Deployment, which is found by way of the pod.
  out.may({"get", "list", "watch", "create", "update", "patch", "delete"}, kCapacities, "", space).may({"get"}, kReplicaSets, "", space);
  // csi-attacher
  out.may({"get", "list", "watch", "patch"}, kVolumeAttachments).may({"patch"}, kVolumeAttachments, "status");
  // csi-resizer
  out.may({"patch"}, resources::claims, "status").may(kLook, resources::pods).may(kLook, kAttributesClasses);
  out.may({"list", "watch", "create", "update", "patch"}, resources::events);
  for (int i = 0; i < 3; ++i) out.add(kube::leader_access({space, kSidecarLeases[i]}));
  return out;
}

kube::Access snapshotter_access(const std::string& space) {
  kube::Access out;
  out.may(kLook, kSnapshotClasses).may({"get", "list", "watch", "update", "patch"}, kSnapshotContents).may({"update", "patch"}, kSnapshotContents, "status");
  out.may({"get", "list", "watch", "update"}, kVolumeSnapshots);  // csi-provisioner's
  return out.add(kube::leader_access({space, kSidecarLeases[3]}));
}

}  // namespace fairlead::api
