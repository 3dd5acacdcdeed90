// SPDX-License-Identifier: Apache-2.0
// The two searches behind find_victims, for its own files.
#pragma once
#include <algorithm>

#include "governance/plan/victims.h"

namespace fairlead::governance {

struct Search {
  World& world;
  const Need& need;

  std::vector<Victim> classical();
  std::vector<Victim> fair();

  bool fits(bool may_borrow) const;
  void give_back(std::vector<Victim>& victims, bool may_borrow);
  bool within_quota(NodeId node) const {  // on every contested column
    return std::none_of(need.contested.begin(), need.contested.end(), [&](Column c) { return world.ledger.borrowing(node, c); });
  }
  bool by_history() const { return world.rules.usage_history && world.rules.gates.usage_history; }
};

}  // namespace fairlead::governance
