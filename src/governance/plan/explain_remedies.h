// SPDX-License-Identifier: Apache-2.0
// Inside of explain.h: what would give a workload its quota, each done on a fork first.
#pragma once
#include <vector>

#include "governance/plan/explain.h"

namespace fairlead::governance {

// Done on a fork: does the workload get its quota? Then remedy.stops is what is pre-empted there.
bool helps(const Books& books, const kube::ObjectKey& workload, Remedy& remedy);

// Of a waiting one. `candidates`: whose end may help, the most promising first.
std::vector<Remedy> find_remedies(const Books& books, const kube::ObjectKey& workload, const std::vector<kube::ObjectKey>& candidates);

}  // namespace fairlead::governance
