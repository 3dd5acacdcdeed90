// SPDX-License-Identifier: Apache-2.0
// The operations that are served, each a translation to objects and back (docs/hyperpod-compatibility.md).
#pragma once
#include "api/alarms.h"
#include "api/identity_crds.h"
#include "hyperpod/cluster_index.h"
#include "hyperpod/entity.h"
#include "hyperpod/front.h"
#include "hyperpod/provisioning.h"
#include "kube/cache.h"
#include "kube/kube_api.h"

namespace fairlead::hyperpod {

// Must outlive the operations.
struct Sources {
  kube::KubeApi& api;           // what is written, and read where it has to be the newest
  const Model& model;
  const kube::Reader& clusters; // SlurmClusters
  const ClusterIndex& index;    // of these, and of Clusters
  const kube::Reader& nodes;
  const kube::Reader& made;     // Clusters: what CreateCluster asked for
  const kube::Reader& instances;
  const Directory& directory;
  std::string eks_cluster;      // name of the Kubernetes that this server works with; empty: EKS is not served
  std::string eks_version{}, eks_authentication{};  // of it, as DescribeCluster of EKS tells them
  std::string space = api::identities::default_space;  // the server's
  ReadObject read_object = {};  // S3 as this server serves it; null: it does not
  const api::Alarms* alarms = nullptr;  // by which updates of software are rolled back; null: this server knows of none
};

// ListClusters, DescribeCluster, ListClusterNodes, DescribeClusterNode: of Clusters, and of the SlurmClusters that are there by other means.
void add_cluster_operations(Operations& operations, const Sources& sources);
// CreateCluster, UpdateCluster, DeleteCluster.
void add_cluster_change_operations(Operations& operations, const Sources& sources);
// BatchAddClusterNodes, BatchDeleteClusterNodes, BatchRebootClusterNodes, BatchReplaceClusterNodes, StartClusterHealthCheck.
void add_batch_operations(Operations& operations, const Sources& sources);
// AttachClusterNodeNetworkInterface: NetworkInterfaces, which an administrator has made.
void add_interface_operations(Operations& operations, const Sources& sources);
// AttachClusterNodeVolume, DetachClusterNodeVolume: Attachments of Volumes.
void add_node_volume_operations(Operations& operations, const Sources& sources);
// ListClusterEvents, DescribeClusterEvent: ClusterEvents.
void add_event_operations(Operations& operations, const Sources& sources);
// ClusterSchedulerConfigs and ComputeQuotas: objects SchedulerConfig and ComputeQuota.
void add_governance_operations(Operations& operations, const Sources& sources);
// Training plans, their extensions and reserved capacity: objects TrainingPlan.
void add_training_plan_operations(Operations& operations, const Sources& sources);
// AddTags, ListTags, DeleteTags: of all of these.
void add_tag_operations(Operations& operations, const Sources& sources);

Operations all_operations(const Sources& sources);

// A Cluster; else a SlurmCluster, which these operations tell of and do not change.
inline bool is_made(const Json& cluster) { return kube::space_of(cluster).empty(); }
// The cluster of input's ClusterName, if the caller may do this to it. Who may not learns nothing of what is there.
Answer<Json> allowed_cluster(const Sources& sources, const Call& call, const char* action, const Json& input);
// The same, fresh from the API, for changes. ValidationException: it was made by other means. ConflictException: it is being deleted.
Answer<Json> cluster_to_change(const Sources& sources, const Call& call, const char* action, const Json& input);
// A Cluster by name or ARN, of the API itself: one that was made a moment ago may not be known here yet, and who made it asks for it at once. O(all Clusters) for an ARN: for who may alone. ResourceNotFound: none.
Answer<Json> find_fresh(const Sources& sources, const Site& site, const std::string& name_or_arn);
// Reads, changes the spec by `apply`, writes; who was faster is read again. The whole takes its turn with the controller's writes.
Answer<Json> change_cluster(const Sources& sources, const Json& cluster, const char* action, const std::function<Answer<void>(Json& cluster)>& apply);

// Of its name or ARN; where two namespaces have one of the name, only the ARN tells them apart (ValidationException). ResourceNotFound: none.
Answer<Json> find_cluster(const Sources& sources, const Site& site, const std::string& name_or_arn);
std::string cluster_arn(const Site& site, const Json& cluster);

}  // namespace fairlead::hyperpod
