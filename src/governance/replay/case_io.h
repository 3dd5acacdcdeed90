// SPDX-License-Identifier: Apache-2.0
// Reading what cases hold, and telling how an answer differs from the wanted one. For the files of this folder.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "governance/plan/cycle.h"
#include "governance/plan/kueue_read.h"
#include "governance/plan/world.h"
#include "kube/json.h"

namespace fairlead::governance {

// Lists of objects ("clusterQueues") or one ("clusterQueue"), into the spec. A ResourceFlavor list may be an array, or an object by name.
Result<void> read_flavors(const kube::Json& list, const std::string& path, WorldSpec& into);
Result<void> read_queues(const kube::Json& list, const std::string& path, WorldSpec& into);
Result<void> read_cohorts(const kube::Json& list, const std::string& path, WorldSpec& into);
Result<void> read_local_queues(const kube::Json& list, const std::string& path, WorldSpec& into);
Result<void> read_workloads(const kube::Json& list, const std::string& path, const RequestRules& rules, WorldSpec& into);
Result<void> read_topologies(const kube::Json& list, const std::string& path, WorldSpec& into);
void read_nodes(const kube::Json& nodes, const kube::Json& pods, WorldSpec& into);
void read_gates(const kube::Json& gates, Gates& into);
Result<RequestRules> read_request_rules(const kube::Json& transformations, const kube::Json& excluded_prefixes);

// {"{\"Flavor\":\"red\",\"Resource\":\"cpu\"}": 1000}
Result<std::map<FlavorResource, Amount>> read_usage(const kube::Json& usage, const std::string& path);
std::string usage_key(const std::string& flavor, const std::string& resource);
// Adds it to the queue named; unknown queues and columns are passed over.
void use(World& world, std::string_view queue, const std::map<FlavorResource, Amount>& usage);

// "" if they are equal. Else the path and both values. Objects: members of `wanted` and of `got`; null, "", 0, false, [] and {} are as if absent. Quantities are told by read_amounts before.
std::string difference(const kube::Json& wanted, const kube::Json& got, const std::string& path = "");

kube::Json admission_json(const Admission& admission);  // in the API's form, quantities canonical
// The same from a case: read and written anew, so that spellings do not matter.
Result<kube::Json> normal_admission(const kube::Json& admission, const std::string& path);
kube::Json assignment_json(const World& world, const Assignment& assignment);

}  // namespace fairlead::governance
