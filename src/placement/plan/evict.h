// SPDX-License-Identifier: Apache-2.0
// Which pods must leave a node because of its NoExecute taints, and when.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "placement/plan/views.h"

namespace fairlead::placement {

struct EvictionOptions {
  // How long a pod that says nothing of its own stays on a node that is not ready or cannot be reached (as Kubernetes' DefaultTolerationSeconds).
  std::chrono::seconds grace{300};
};
struct Eviction {
  kube::ObjectKey pod;
  std::string uid;
  std::string why;  // "taint node.kubernetes.io/unreachable:NoExecute is tolerated for 300 s only"
  friend bool operator==(const Eviction&, const Eviction&) = default;
};
struct EvictionPlan {
  std::vector<Eviction> evictions;        // by namespace and name
  std::optional<Instant> look_again_at;   // when the next one is due, if nothing changes
  friend bool operator==(const EvictionPlan&, const EvictionPlan&) = default;
};

// `pods`: those on this node. A taint that does not say when it was added counts from `now`, so it evicts at once only those without any toleration for it.
EvictionPlan plan_evictions(const Node& node, std::vector<Pod> pods, Instant now, const EvictionOptions& options);

}  // namespace fairlead::placement
