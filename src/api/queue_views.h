// SPDX-License-Identifier: Apache-2.0
// Parts of what task governance shows: the tree of quotas and the lines of queues, in the form in which the engine tells them (governance/plan/views.h). Pure.
#pragma once
#include <string>
#include <vector>

#include "kube/json.h"

namespace fairlead::api {

// The tree of quotas; with a name only that cohort, queue or team and what is below it. Null: there is none of that name.
kube::Json part_of_quotas(const kube::Json& view, const std::string& name);

struct QueueFilter {
  std::string space, queue;  // empty: all. A queue: ClusterQueue, LocalQueue or team.
  bool all = false;          // running ones, too
};
kube::Json part_of_queue(const kube::Json& view, const QueueFilter& filter);

// Do some of these flavors give pods places? Then what is told of queues is told of all nodes and pods, too.
bool places_matter(const std::vector<kube::Json>& objects);

}  // namespace fairlead::api
