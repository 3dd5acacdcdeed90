// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/reasons.h"

#include <fmt/format.h>

#include <algorithm>

#include "governance/plan/kueue_read.h"

namespace fairlead::governance {

std::string text(const World& world, const Why& why) {
  const std::string flavor = why.flavor == none ? "" : world.flavors[why.flavor].name;
  const std::string resource = why.resource == none ? "" : world.resources[why.resource];
  const auto amount = [&](Amount value) { return amount_text(resource, value); };
  switch (why.kind) {
    case Why::Kind::ResourceUnavailable: return fmt::format("resource {} unavailable in ClusterQueue", resource);
    case Why::Kind::FlavorNotFound: return fmt::format("flavor {} not found", flavor);
    case Why::Kind::UntoleratedTaint: return fmt::format("untolerated taint {} in flavor {}", why.detail, flavor);
    case Why::Kind::NodeAffinity: return fmt::format("flavor {} doesn't match node affinity", flavor);
    case Why::Kind::NotAllowed: return fmt::format("skipping flavor {} due to WorkloadAllowedResourceFlavorAnnotation annotation", flavor);
    case Why::Kind::NotNominated: return fmt::format("skipping flavor {} as it is not found in the nomination mapping for resource {}", flavor, resource);
    case Why::Kind::NotProvided: return fmt::format("flavor {} does not provide resource {}", flavor, resource);
    case Why::Kind::ExceedsMax:
      return fmt::format("insufficient quota for {} in flavor {}, previously considered podsets requests ({}) + current podset request ({}) > maximum capacity ({})", resource, flavor, amount(why.earlier), amount(why.asked), amount(why.most));
    case Why::Kind::NeedsMore: return fmt::format("insufficient unused quota for {} in flavor {}, {} more needed", resource, flavor, amount(why.missing));
    case Why::Kind::TopologyUnsupported: return fmt::format("Flavor \"{}\" does not support TopologyAwareScheduling", flavor);
    case Why::Kind::TopologyUnknown: return fmt::format("Flavor \"{}\" information missing in TAS cache", flavor);
    case Why::Kind::LevelUnknown: return fmt::format("Flavor \"{}\" does not contain the requested level", flavor);
    case Why::Kind::TopologyOnly: return fmt::format("Flavor \"{}\" supports only TopologyAwareScheduling", flavor);
    case Why::Kind::Topology: return why.detail;
  }
  return {};
}

std::string_view text(NoFitReason reason) {
  switch (reason) {
    case NoFitReason::None: return "";
    case NoFitReason::TopologyPlacementFailed: return "TopologyPlacementFailed";
    case NoFitReason::WaitingForQuota: return "WaitingForQuota";
    case NoFitReason::ExceedsMaxQuota: return "ExceedsMaxQuota";
    case NoFitReason::NoMatchingFlavor: return "NoMatchingFlavor";
  }
  return "";
}

NodeId limiting_node(const Ledger& ledger, NodeId leaf, Column column) {
  NodeId limiting = leaf;
  for (NodeId node = leaf; ledger.has_parent(node); node = ledger.parent(node)) {
    const NodeId above = ledger.parent(node);
    // Its cap, if it takes less than what is there above; else the limit lies higher up.
    if (minus(ledger.available(node, column), ledger.local_available(node, column)) < ledger.available(above, column)) return node;
    limiting = above;
  }
  return limiting;
}

std::vector<std::pair<NodeId, Amount>> borrowers_of(const Ledger& ledger, NodeId leaf, Column column) {
  std::vector<std::pair<NodeId, Amount>> borrowers;
  for (const NodeId other : ledger.leaves(ledger.tree(leaf))) {
    const Amount borrowed = minus(ledger.usage(other, column), ledger.subtree(other, column));
    if (other != leaf && borrowed > 0) borrowers.emplace_back(other, borrowed);
  }
  std::stable_sort(borrowers.begin(), borrowers.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return borrowers;
}

}  // namespace fairlead::governance
