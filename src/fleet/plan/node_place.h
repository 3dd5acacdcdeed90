// SPDX-License-Identifier: Apache-2.0
// What a Node says of where it is, in the words that AWS's own programs read: `spec.providerID` as nodes of HyperPod have it, and the labels of region and zone. The zone is the pool of volumes that the node reaches. Pure; docs/design/063-kubernetes-orchestrator.md.
//
// A providerID cannot be changed once it is set, and somebody else may hold on to it: only what we wrote ourselves is changed or taken away, and of that we keep a note (kPlaceNote). What was there before us stays, labels too.
// Sources: kubernetes.io, "Well-Known Labels, Annotations and Taints"; kubernetes-sigs/aws-ebs-csi-driver v1.64.0, pkg/cloud/metadata (which ids it takes for a HyperPod node's).
#pragma once
#include <optional>
#include <string>

#include "kube/json.h"

namespace fairlead::fleet {

inline constexpr const char* kPlaceNote = "fairlead.dev/place";  // of a Node: {providerID, labels: {KEY: VALUE}} that we gave it
inline constexpr const char* kRegionLabel = "topology.kubernetes.io/region";
inline constexpr const char* kZoneLabel = "topology.kubernetes.io/zone";
inline constexpr const char* kNoCloudYet = "node.cloudprovider.kubernetes.io/uninitialized";  // taint: somebody is about to say it

struct NodePlace {
  std::string region;
  std::string zone;      // empty: it reaches no pool, or that is not known now. Then nothing is said, and nothing taken back
  std::string cluster;   // its id, as in its ARN
  std::string instance;
};

// aws:///ZONE/sagemaker/cluster/hyperpod-CLUSTER-INSTANCE
std::string provider_id(const NodePlace& place);

// A merge patch, with the version of the Node that it is decided on; null: nothing is to be written. place: nothing: the node is no instance of a cluster that Kubernetes orchestrates.
// id_changes: the API lets a providerID be changed (the embedded engine's does).
kube::Json plan_node_place(const kube::Json& node, const std::optional<NodePlace>& place, bool id_changes);

}  // namespace fairlead::fleet
