// SPDX-License-Identifier: GPL-3.0-or-later
// The container that keeps sets of a cluster: makes one now and then, removes old ones, carries restores out (docs/design/017).
#pragma once
#include <string>
#include <vector>

namespace fairlead::companion {

// For ever. FAIRLEAD_SET_SECONDS or FAIRLEAD_SET_SCHEDULE (crontab), FAIRLEAD_SET_KEEP, FAIRLEAD_SET_PARTS (state,database,jail), FAIRLEAD_SLURM_CLUSTER; for tests FAIRLEAD_SETS, FAIRLEAD_STATE, FAIRLEAD_JAIL_VOLUME.
int run_set_keeper();
int check_sets();  // 0: no two more should have been made since the newest
bool is_set_command(const std::string& command);
// sets [--json] | make-set | restore-set SET|latest [--parts A,B] [--dry-run] | set-status
int run_set_command(const std::vector<std::string>& arguments);

}  // namespace fairlead::companion
