// SPDX-License-Identifier: Apache-2.0
// Where a claim's content is on a node: from the claim, the PersistentVolume that it is bound to, and the node. Pure.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::node {

struct ClaimPlace {
  std::string path;    // on the node, absolute and without ".."
  std::string type;    // what must be there, as the type of a hostPath; a local volume is a Directory
  bool local = false;  // a local volume: unlike a hostPath it belongs to its claims, so a pod's fsGroup may take it
  std::string volume;  // of the driver csi.fairlead.dev, by its id: it is mounted for each pod, and has no path of its own
  std::string file_system;               // of such a one; empty: whatever is on it
  std::vector<std::string> mount_options;
  bool read_only = false;
  bool block = false;  // volumeMode Block, of csi.fairlead.dev alone: containers have its device
};

// The volume that the claim is bound to. Unavailable: to none yet.
Result<std::string> volume_of_claim(const kube::Json& claim);

// Unavailable: the volume belongs to another claim. Unsupported: a kind of volume that no node of ours mounts. Invalid: its path, or a node affinity (core/v1 NodeSelector) that does not hold here.
Result<ClaimPlace> place_of_claim(const kube::Json& claim, const kube::Json& volume, const kube::Json& node);

// Terms are alternatives; the expressions and fields of one hold together; an empty term holds nowhere.
bool node_selector_holds(const kube::Json& selector, const kube::Json& node);

}  // namespace fairlead::node
