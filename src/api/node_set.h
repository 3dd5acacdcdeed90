// SPDX-License-Identifier: Apache-2.0
// NodeSet (slurm.nebius.ai/v1alpha1): workers of one kind, of which a SlurmCluster may have several beside or instead of spec.slurmNodes.worker. Its workers are the pods and Slurm nodes SET-0, SET-1, ...;
// all have feature SET in Slurm.
#pragma once
#include <string>
#include <vector>

#include "api/slurm_cluster.h"

namespace fairlead::api {

inline const kube::Resource kNodeSets{"slurm.nebius.ai", "v1alpha1", "nodesets", "NodeSet", true};
inline const kube::Resource kActiveChecks{"slurm.nebius.ai", "v1alpha1", "activechecks", "ActiveCheck", true};
inline constexpr const char* kNodeSetLabel = "fairlead.dev/node-set";
inline constexpr const char* kNodeSetFinalizer = "fairlead.dev/workers";  // its workers are drained before it goes

// The one that has taken it up, which is fixed from then on (status.clusterName), else spec.clusterName; empty: the only SlurmCluster of its namespace.
std::string cluster_of_node_set(const kube::Json& object);
// Never fails: what cannot be read becomes a problem of the set. Volumes and node filter that stand in the set are put among the cluster's, under names that no user can give.
WorkerSet read_node_set(const kube::Json& object, const std::string& default_image, SlurmCluster& cluster);
// Reads all of `objects` that name this cluster (or none, where `only` says that it is the only one), by name, and checks them against one another and the cluster.
void add_node_sets(SlurmCluster& cluster, const std::vector<const kube::Json*>& objects, const std::string& default_image, bool only);

// The cluster as the workers of one kind see it: `worker`, `worker_set` and `set` are theirs. The first is that of spec.slurmNodes.worker, unless that section is not given and a set has the name "worker": that set
// takes over its workers as they run. Then the sets in order; of one that is being deleted the size is 0. What is `held` is neither made nor taken away: the workers of a section that is not given, and of a
// set that cannot be carried out.
std::vector<SlurmCluster> worker_views(const SlurmCluster& cluster);

}  // namespace fairlead::api
