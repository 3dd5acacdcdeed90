// SPDX-License-Identifier: Apache-2.0
// Clusters that CreateCluster made, as the API tells of them. For the operations alone.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "api/cluster.h"
#include "hyperpod/operations.h"

namespace fairlead::hyperpod {

Answer<Json> describe_made(const Sources& sources, const Site& site, const Json& cluster);
Answer<Json> list_made_nodes(const Sources& sources, const Json& cluster, const Json& input);
Answer<Json> describe_made_node(const Sources& sources, const Json& cluster, const Json& input);

// The instance of a node of this cluster: by its id, or, by its logical id, the one that it has now. Nothing: there is none.
std::optional<Json> instance_by_id(const Sources& sources, const Json& cluster, const std::string& id);
std::optional<Json> instance_by_logical_id(const Sources& sources, const Json& cluster, const std::string& id);

}  // namespace fairlead::hyperpod
