// SPDX-License-Identifier: Apache-2.0
// What `install --volumes` puts into a cluster beside the server: a pool and the node's part of the CSI driver on each chosen node, and once the controller's part with the standard sidecars. Pure.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::cli {

struct VolumeOptions {
  std::string size;                            // of the file that holds each node's pool; "xfs": the folder is on XFS with reflink; empty: no volumes
  std::string folder = "/var/lib/fairlead-volumes";  // of each node
  std::string kubelet_dir = "/var/lib/kubelet";      // the kubelet's --root-dir
  std::string nodes;                           // labels of those that get a pool, NAME=VALUE by comma; empty: all without taints
  std::string image = "fairlead-volumes:" FAIRLEAD_VERSION;
  std::string provisioner_image, attacher_image, resizer_image;
  std::string snapshotter_image;               // empty: no VolumeSnapshots
  bool engines = true;                         // volumes with limits, by a second pod on each node
  bool encryption = false;                     // encrypted volumes; takes engines
  bool storage_class = false;                  // one called fairlead
};
// Invalid: names the flag.
Result<void> check_volumes(const VolumeOptions& options);
// Of options that were checked. Equal arguments give equal manifests.
std::vector<kube::Json> volume_manifests(const VolumeOptions& options, const std::string& space);

inline constexpr const char* kVolumeEngines = "fairlead-volumes-engines";  // the DaemonSet whose pods keep engines of volumes
// Who may lose a disk with those pods: "data on w0", for each Attachment of a Volume with an engine there. One whose Volume is not known counts.
std::vector<std::string> served_by_engines(const std::vector<kube::Json>& volumes, const std::vector<kube::Json>& attachments);

}  // namespace fairlead::cli
