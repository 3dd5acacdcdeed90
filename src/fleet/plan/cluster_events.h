// SPDX-License-Identifier: Apache-2.0
// What is to be told of a cluster, from what its status said and what it says now (ListClusterEvents of HyperPod's API). Pure.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "api/cluster.h"
#include "base/clock.h"

namespace fairlead::fleet {

struct InstanceChange {
  const kube::Json* object = nullptr;   // with the status of before
  const kube::Json* status = nullptr;   // of now; null: it is let go of
};
// ClusterEvents, without namespace and owner. The name of each follows from what happened: told again, it is the same.
// Of what goes well on many instances of a group at once, a few are told by name, and how many more.
std::vector<kube::Json> cluster_events(const kube::Json& cluster, const kube::Json& status, const std::vector<InstanceChange>& instances, Instant now);

// Of a group's status: it waits for machines.
bool lacks_machines(const kube::Json& group);

inline constexpr std::size_t kMostEvents = 500;               // of one cluster; as AWS keeps them
inline constexpr std::chrono::hours kEventAge{90 * 24};
// Those that are one too many, or too old.
std::vector<const kube::Json*> events_to_forget(const std::vector<kube::Json>& events, Instant now);

}  // namespace fairlead::fleet
