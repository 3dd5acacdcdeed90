// SPDX-License-Identifier: Apache-2.0
// Why pods found no place: a value, and its text in Kueue's words.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fairlead::governance {

// Leaves that could not hold a single pod, by cause.
struct TopologyExclusions {
  std::int64_t nodes = 0;  // looked at in all
  std::int64_t selector = 0, affinity = 0, domain = 0;
  std::map<std::string, std::int64_t> taints, resources;
  bool any() const { return selector || affinity || domain || !taints.empty() || !resources.empty(); }
  friend bool operator==(const TopologyExclusions&, const TopologyExclusions&) = default;
};
std::string text(const TopologyExclusions& exclusions);  // "nodeSelector: 2, taint \"a=b:NoSchedule\": 1"

struct TopologyReason {
  enum class Kind {
    None,
    BadUpdate,           // of an admission check; `level`: the pod set, `other`: what contradicts what
    LevelNotSpecified,
    NoLevel,             // `level`: asked for, not of this topology
    NoSliceLevel,
    SliceAboveAsk,       // `level`: of the slices; `other`: of the pod set
    NoSliceSize,
    NoLayerLevel,
    LayerNotBelow,       // `level` must be below `other`
    LayerNotDividing,    // `fit`: the layer's size; `wanted`: of the layer above
    NoDomains,           // at `level`
    NoFit,               // `fit` out of `wanted` pods (or slices)
    NoFitLayers,         // `layers`
    Unplaceable,         // counts said yes and no distribution was found
    StaleDomain,         // `other`: a domain of the present assignment that is gone
    NoReplacement,       // `other`: the node
  };
  struct Layer {
    std::string level;
    std::int64_t fit = 0, wanted = 0;
    friend bool operator==(const Layer&, const Layer&) = default;
  };
  Kind kind = Kind::None;
  std::string topology, level, other;
  std::int64_t fit = 0, wanted = 0;
  bool slices = false;
  std::vector<Layer> layers;
  TopologyExclusions exclusions;
  bool none() const { return kind == Kind::None; }
  friend bool operator==(const TopologyReason&, const TopologyReason&) = default;
};
std::string text(const TopologyReason& reason);  // "" for none

}  // namespace fairlead::governance
