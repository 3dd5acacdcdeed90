// SPDX-License-Identifier: Apache-2.0
// May this pod be on that node? One question each, as Kubernetes answers it. Pure.
#pragma once
#include <optional>
#include <string>

#include "placement/plan/views.h"

namespace fairlead::placement {

bool tolerates(const Toleration& toleration, const Taint& taint);
bool tolerates(const Pod& pod, const Taint& taint);
// The first taint with an effect that forbids the node to the pod. NoSchedule and NoExecute forbid.
const Taint* first_forbidding_taint(const Pod& pod, const Node& node);
// How many PreferNoSchedule taints it does not tolerate.
int disliked_taints(const Pod& pod, const Node& node);

bool matches(const NodeTerm& term, const Node& node);
// nodeSelector and required node affinity.
bool selects(const Pod& pod, const Node& node);
// Sum of the weights of preferred terms that hold.
std::int64_t preference(const Pod& pod, const Node& node);
// Is `other` one of the pods that the term means? `spaces`: labels of the namespaces, for terms that select by them.
using Spaces = std::map<std::string, kube::Labels>;
bool means(const PodTerm& term, const Pod& other, const Spaces& spaces = {});

}  // namespace fairlead::placement
