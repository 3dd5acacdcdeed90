// SPDX-License-Identifier: Apache-2.0
// What happens to clusters, as HyperPod has it come by EventBridge. Pure. Source of the three forms: Amazon SageMaker's developer guide, "Events that Amazon SageMaker AI sends to Amazon EventBridge"; docs/design/054.
#pragma once
#include <optional>

#include "notify/plan/event.h"

namespace fairlead::notify {

// A ClusterEvent in one of the forms; nothing: it has none of this. `cluster`: the Cluster that it is of. Each form of one event has an id of its own, the same however often it is made.
// ClusterEvent: every one, with the failure's words, which AWS leaves out. StateChange: of what the cluster is, with what DescribeCluster tells of it. NodeHealth: an instance was found well or not, by a deep health check, by its silence, or by a label of its node or a reason in Slurm.
std::optional<Event> eventbridge_event(DetailType type, const kube::Json& event, const kube::Json& cluster);

}  // namespace fairlead::notify
