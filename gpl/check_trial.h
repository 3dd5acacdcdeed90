// SPDX-License-Identifier: GPL-3.0-or-later
// A check is tried on a worker that nobody may use (docs/design/022): a reservation for user nobody takes the place of the drain until its job has ended.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "nodes.h"

namespace fairlead::companion {

struct Trial {
  std::string node, reservation;
};
inline constexpr std::string_view kTrialName = "fairlead-check-";  // begins the name of each reservation of ours
bool trial_name(std::string_view text);

// Output of `scontrol -o show reservations`: those of ours, over one node each and for user nobody alone. Invalid: a line was not understood.
Result<std::vector<Trial>> read_trials(std::string_view text);
Result<std::vector<Trial>> look_at_trials();  // errors as of ask_slurm

// Out of service for checks: drained by one, or being tried.
std::size_t out_for_checks(const std::vector<NodeRecord>& nodes, const std::vector<Trial>& trials);

// check-try NODE RESERVATION REASON: where the node is drained with exactly that reason, it is reserved for nobody, then undrained. Exit status 3: it is drained otherwise, or somebody else's.
int begin_trial(const std::string& node, const std::string& reservation, const std::string& reason);
// check-settle NODE RESERVATION|- REASON NEW|-: NEW: the node is drained with it, unless somebody else has taken it out; "-": a drain with exactly that reason is lifted. Then the reservation goes.
int settle(const std::string& node, const std::string& reservation, const std::string& reason, const std::string& next);

}  // namespace fairlead::companion
