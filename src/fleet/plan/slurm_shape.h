// SPDX-License-Identifier: Apache-2.0
// What a Cluster that Slurm orchestrates is made of: namespace, claims, NodeSets, SlurmCluster. Pure.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "api/cluster.h"
#include "api/slurm_partitions.h"

namespace fairlead::fleet {

inline constexpr const char* kJailClaim = "jail-pvc";                 // the shared root: homes and users
inline constexpr const char* kSpoolClaim = "controller-spool-pvc";    // Slurm's own state

struct ShapeOptions {
  std::string storage_class;     // of the two claims; empty: the site's default
  bool local_machines = false;   // nodes share the cores of one machine, and their GPUs are declared
  std::string jail_image;        // the root that nodes share is filled from it, where scripts are to change it
  std::map<std::string, std::string> ending;  // sets that are still there although their group is gone, and their partition: jobs run in it
};
inline constexpr const char* kPartitionNote = "fairlead.dev/partition";    // of a NodeSet

kube::Json namespace_of(const api::Cluster& cluster, const kube::Json& object);
bool is_namespace_of(const kube::Json& space, const api::Cluster& cluster);
std::vector<kube::Json> claims_of(const api::Cluster& cluster, const ShapeOptions& options);
// Sizes: of the instances that have machines, by group.
kube::Json node_set_of(const api::Cluster& cluster, const api::InstanceGroup& group, int size);
kube::Json slurm_cluster_of(const api::Cluster& cluster, const std::map<std::string, int>& sizes, const ShapeOptions& options);

// What stands in `wanted` laid over what is there: fields that are only there stay, lists are replaced as a whole.
kube::Json laid_over(kube::Json there, const kube::Json& wanted);
// The same for a SlurmCluster: of node filters, volume sources and partitions ours are put among those of people, by name; MaxNodeCount stands in customSlurmConfig where Slurm's default of ours would not do. `strategy`: Overwrite takes the partitions of people away.
kube::Json shaped(const kube::Json& there, const kube::Json& wanted, int nodes, api::SlurmConfigStrategy strategy = api::SlurmConfigStrategy::Merge);

}  // namespace fairlead::fleet
