// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/topology_reason.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::governance {
namespace {

std::string quoted(const std::string& name) {
  std::string out = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string with_exclusions(std::string words, const TopologyExclusions& exclusions) {
  if (exclusions.any()) words += fmt::format(". Total nodes: {}; excluded: {}", exclusions.nodes, text(exclusions));
  return words;
}

std::string no_fit(const TopologyReason& reason) {
  const std::string_view unit = reason.slices ? "slice" : "pod";
  if (reason.fit == 0) return fmt::format("topology {} doesn't allow to fit any of {} {}(s)", quoted(reason.topology), reason.wanted, unit);
  return fmt::format("topology {} allows to fit only {} out of {} {}(s)", quoted(reason.topology), reason.fit, reason.wanted, unit);
}

std::string no_fit_layers(const TopologyReason& reason) {
  std::string words = fmt::format("topology {} doesn't allow to fit", quoted(reason.topology));
  for (const TopologyReason::Layer& layer : reason.layers) words += fmt::format("; {}/{} slice(s) fit on level {}", layer.fit, layer.wanted, layer.level);
  return words;
}

}  // namespace

std::string text(const TopologyExclusions& exclusions) {
  std::vector<std::string> parts;
  if (exclusions.selector > 0) parts.push_back(fmt::format("nodeSelector: {}", exclusions.selector));
  if (exclusions.affinity > 0) parts.push_back(fmt::format("affinity: {}", exclusions.affinity));
  if (exclusions.domain > 0) parts.push_back(fmt::format("topologyDomain: {}", exclusions.domain));
  for (const auto& [taint, count] : exclusions.taints) parts.push_back(fmt::format("taint {}: {}", quoted(taint), count));
  for (const auto& [resource, count] : exclusions.resources) parts.push_back(fmt::format("resource {}: {}", quoted(resource), count));
  std::sort(parts.begin(), parts.end());
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string text(const TopologyReason& reason) {
  using Kind = TopologyReason::Kind;
  switch (reason.kind) {
    case Kind::None: return {};
    case Kind::BadUpdate: return fmt::format("invalid podSetUpdate for PodSet {}, error: {}", reason.level, reason.other);
    case Kind::LevelNotSpecified: return "topology level not specified";
    case Kind::NoLevel: return "no requested topology level: " + reason.level;
    case Kind::NoSliceLevel: return "no requested topology level for slices: " + reason.level;
    case Kind::SliceAboveAsk: return fmt::format("podset slice topology {} is above the podset topology {}", reason.level, reason.other);
    case Kind::NoSliceSize: return "slice topology requested, but slice size not provided";
    case Kind::NoLayerLevel: return "no requested topology level for additional slice layer: " + reason.level;
    case Kind::LayerNotBelow: return fmt::format("additional slice layer topology {} must be at a lower level than {}", reason.level, reason.other);
    case Kind::LayerNotDividing: return fmt::format("additional slice layer size {} must evenly divide parent layer size {}", reason.fit, reason.wanted);
    case Kind::NoDomains: return "no topology domains at level: " + reason.level;
    case Kind::NoFit: return with_exclusions(no_fit(reason), reason.exclusions);
    case Kind::NoFitLayers: return with_exclusions(no_fit_layers(reason), reason.exclusions);
    case Kind::Unplaceable: return fmt::format("topology {} has room in sum, but no distribution of the pods was found", quoted(reason.topology));
    case Kind::StaleDomain:
      return "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale domain " + reason.other;
    case Kind::NoReplacement: return "cannot find replacement assignment for unhealthy node: " + reason.other;
  }
  return {};
}

}  // namespace fairlead::governance
