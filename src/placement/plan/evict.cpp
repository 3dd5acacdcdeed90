// SPDX-License-Identifier: Apache-2.0
#include "placement/plan/evict.h"

#include <fmt/format.h>

#include <algorithm>

#include "placement/plan/match.h"

namespace fairlead::placement {
namespace {

// How long the pod stays under this taint; none: for ever.
std::optional<std::chrono::seconds> patience(const Pod& pod, const Taint& taint, const EvictionOptions& options) {
  std::optional<std::chrono::seconds> shortest;
  bool tolerated = false;
  for (const Toleration& toleration : pod.tolerations) {
    if (!tolerates(toleration, taint)) continue;
    tolerated = true;
    if (toleration.seconds) shortest = std::min(shortest.value_or(std::chrono::seconds::max()), std::chrono::seconds(*toleration.seconds));
  }
  if (tolerated) return shortest;
  const bool about_reach = taint.key == "node.kubernetes.io/unreachable" || taint.key == "node.kubernetes.io/not-ready";
  return about_reach ? options.grace : std::chrono::seconds(0);
}

}  // namespace

EvictionPlan plan_evictions(const Node& node, std::vector<Pod> pods, Instant now, const EvictionOptions& options) {
  std::sort(pods.begin(), pods.end(), [](const Pod& a, const Pod& b) { return a.key < b.key; });
  EvictionPlan plan;
  for (const Pod& pod : pods) {
    if (pod.finished || pod.deleting || pod.node != node.name) continue;
    std::optional<Instant> due;
    std::string why;
    for (const Taint& taint : node.taints) {
      if (taint.effect != Effect::NoExecute) continue;
      const auto stays = patience(pod, taint, options);
      if (!stays || *stays > std::chrono::hours(24 * 365 * 100)) continue;
      const Instant leaves = taint.added.value_or(now) + *stays;
      if (due && *due <= leaves) continue;
      due = leaves;
      why = stays->count() == 0 ? fmt::format("taint {}:NoExecute is not tolerated", taint.key)
                                : fmt::format("taint {}:NoExecute is tolerated for {} s only", taint.key, stays->count());
    }
    if (!due) continue;
    if (*due <= now) {
      plan.evictions.push_back({pod.key, pod.uid, std::move(why)});
    } else {
      plan.look_again_at = std::min(plan.look_again_at.value_or(*due), *due);
    }
  }
  return plan;
}

}  // namespace fairlead::placement
