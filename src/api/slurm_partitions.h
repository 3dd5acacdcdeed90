// SPDX-License-Identifier: Apache-2.0
// Which partitions of a SlurmCluster follow from a Cluster's groups, and which people put beside them (docs/design/050).
#pragma once
#include <string>
#include <vector>

#include "kube/json.h"

namespace fairlead::api {

inline constexpr const char* kPartitionsNote = "fairlead.dev/partitions";  // of a SlurmCluster: those of the Cluster, with commas

// SlurmConfigStrategy of `orchestrator` in a Cluster's spec. Merge, also where none is given: what people put there stays. Overwrite: it goes. Managed: an update is refused while there is any.
enum class SlurmConfigStrategy { Merge, Overwrite, Managed };
SlurmConfigStrategy read_strategy(const kube::Json& orchestrator);

// The name in "PartitionName=NAME ..."; empty: the line defines none.
std::string partition_of_line(const std::string& line);
// Lines of partitionConfiguration that are neither of those that the note names nor of `also` (such a list): in order.
std::vector<std::string> lines_of_people(const kube::Json& slurm_cluster, const std::string& also = {});

}  // namespace fairlead::api
