// SPDX-License-Identifier: Apache-2.0
// What a cluster stands on and can be wrong under it while it runs: keys, clocks, the state volume, claims. Each is a condition with what to do; none of them changes anything that runs.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kube/object.h"
#include "slurm/plan/view.h"

namespace fairlead::slurm {

// Condition KeysMatch: do all pods (of this cluster, by name; borrowed) have the munge key that the Secret holds now? Pods of which it is not known do not count. `secret` null: it is gone.
kube::Condition keys_condition(const std::string& name, const kube::Json* secret, const std::vector<const kube::Json*>& pods);

// Condition ClocksAgree: the head's clock beside the operator's. Munge refuses what is older than five minutes, or from the future. None: the head was not asked.
std::optional<kube::Condition> clocks_condition(const std::optional<SlurmView>& view, Instant now);

// Condition StateVolumeHasRoom. None: not known.
std::optional<kube::Condition> state_condition(const std::optional<SlurmView>& view);

// Claims that pods wait for and that no volume is bound to, with the storage class that should have made one. `mounted`: names of claims in pods that have not begun.
std::vector<std::string> unbound_claims(const std::map<std::string, kube::Json>& claims, const std::vector<std::string>& mounted);
std::vector<std::string> claims_waited_for(const std::vector<const kube::Json*>& pods);

}  // namespace fairlead::slurm
