// SPDX-License-Identifier: Apache-2.0
// Inside of books.h.
#pragma once
#include <algorithm>
#include <string>

#include "governance/plan/books.h"

namespace fairlead::governance {

// Of more equal workloads than this that wait, the amount that is missing is not kept up once they know why they wait.
inline constexpr std::size_t kept_up = 8;

inline bool held(const WorkloadSpec& spec) { return spec.reserved.is && spec.admission.has_value(); }

inline std::int32_t left_of(const WorkloadSpec& spec, const std::string& pod_set, std::int32_t count) {
  const auto reclaimed = spec.reclaimable.find(pod_set);
  return reclaimed == spec.reclaimable.end() ? count : count - std::clamp(reclaimed->second, 0, count);
}

// What an admission uses of a resource, after pods that have ended for good.
inline Amount used(const WorkloadSpec& spec, const HeldPodSet& pods, const std::string& resource) {
  const auto usage = pods.usage.find(resource);
  if (usage == pods.usage.end()) return 0;
  const auto asked = std::find_if(spec.pod_sets.begin(), spec.pod_sets.end(), [&](const PodSetSpec& one) { return one.name == pods.name; });
  const std::int32_t all = asked == spec.pod_sets.end() ? pods.count.value_or(0) : asked->count;
  const std::int32_t count = pods.count.value_or(all), left = left_of(spec, pods.name, all);
  return left >= count || count == 0 ? usage->second : times(usage->second / count, left);
}

template <class Map, class Key>
const typename Map::mapped_type* find_in(const Map& map, const Key& key) {
  const auto at = map.find(key);
  return at == map.end() ? nullptr : &at->second;
}

}  // namespace fairlead::governance
