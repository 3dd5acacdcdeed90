// SPDX-License-Identifier: Apache-2.0
// The operations that are served, each a translation to objects and back (docs/hyperpod-compatibility.md).
#pragma once
#include "hyperpod/cluster_index.h"
#include "hyperpod/entity.h"
#include "hyperpod/front.h"
#include "kube/cache.h"
#include "kube/kube_api.h"

namespace fairlead::hyperpod {

// Must outlive the operations.
struct Sources {
  kube::KubeApi& api;           // what is written, and read where it has to be the newest
  const Model& model;
  const kube::Reader& clusters; // SlurmClusters
  const ClusterIndex& index;    // of the same
  const kube::Reader& nodes;
};

// ListClusters, DescribeCluster, ListClusterNodes, DescribeClusterNode: of the SlurmClusters that are there, whoever made them.
void add_cluster_operations(Operations& operations, const Sources& sources);
// ClusterSchedulerConfigs and ComputeQuotas: objects SchedulerConfig and ComputeQuota.
void add_governance_operations(Operations& operations, const Sources& sources);
// AddTags, ListTags, DeleteTags: of all of these.
void add_tag_operations(Operations& operations, const Sources& sources);

Operations all_operations(const Sources& sources);

// Of its name or ARN; where two namespaces have one of the name, only the ARN tells them apart (ValidationException). ResourceNotFound: none.
Answer<Json> find_cluster(const Sources& sources, const Site& site, const std::string& name_or_arn);
std::string cluster_arn(const Site& site, const Json& cluster);

}  // namespace fairlead::hyperpod
