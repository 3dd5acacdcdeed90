// SPDX-License-Identifier: Apache-2.0
// Why a workload does not run, as values: which rule failed, where in the tree, for what, by how much. Text, in Kueue's words, is made at the edge.
#pragma once
#include <string>
#include <string_view>

#include "governance/plan/world.h"

namespace fairlead::governance {

struct Why {
  enum class Kind {
    ResourceUnavailable,  // the queue has no quota for `resource` at all
    FlavorNotFound,
    UntoleratedTaint,     // `detail`: the taint
    NodeAffinity,
    NotAllowed,           // the workload names others
    NotNominated,         // another flavor was chosen at first, and the choice stands
    NotProvided,          // the flavor has no quota for `resource`
    ExceedsMax,           // `earlier` + `asked` > `most`, whoever else stops
    NeedsMore,            // `missing` now
    TopologyUnsupported, TopologyUnknown, LevelUnknown, TopologyOnly,
    Topology,             // `detail`: of the placement
  };
  Kind kind = Kind::NeedsMore;
  FlavorId flavor = none;
  ResourceId resource = none;
  Amount earlier = 0, asked = 0, most = 0, missing = 0;
  NodeId node = no_node;  // whose limit it is: a borrower's cap, or the root that has no more
  std::string detail;
  friend bool operator==(const Why&, const Why&) = default;
};
std::string text(const World& world, const Why& why);

// In order of severity.
enum class NoFitReason { None, TopologyPlacementFailed, WaitingForQuota, ExceedsMaxQuota, NoMatchingFlavor };
std::string_view text(NoFitReason reason);  // as in condition QuotaReserved; "" for None

// The lowest node of the path whose limit is what `available` comes from.
NodeId limiting_node(const Ledger& ledger, NodeId leaf, Column column);
// Queues of the tree that use the column beyond what is theirs, by amount and name: who could give it back.
std::vector<std::pair<NodeId, Amount>> borrowers_of(const Ledger& ledger, NodeId leaf, Column column);

}  // namespace fairlead::governance
