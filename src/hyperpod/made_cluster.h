// SPDX-License-Identifier: Apache-2.0
// Clusters that CreateCluster made, as the API tells of them. For the operations alone.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>

#include "api/cluster.h"
#include "hyperpod/operations.h"

namespace fairlead::hyperpod {

Answer<Json> describe_made(const Sources& sources, const Site& site, const Json& cluster, Instant now);
Answer<Json> list_made_nodes(const Sources& sources, const Json& cluster, const Json& input);
Answer<Json> describe_made_node(const Sources& sources, const Json& cluster, const Json& input);

// The instance of a node of this cluster: by its id, or, of logical ids (all in one pass), the ones that they have now.
std::optional<Json> instance_by_id(const Sources& sources, const Json& cluster, const std::string& id);
std::map<std::string, Json> instances_by_logical_id(const Sources& sources, const Json& cluster, const std::set<std::string>& ids);

}  // namespace fairlead::hyperpod
