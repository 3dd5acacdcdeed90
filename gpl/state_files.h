// SPDX-License-Identifier: GPL-3.0-or-later
// What slurmctld saved, looked at before it is started on it (docs/design/026-state-files.md). Slurm 22.05 goes on with an earlier save, and then with no job at all, where it can neither open nor map a file of its state, and its first
// save replaces what was there. So nothing is started on files that it would not read.
#pragma once
#include <sys/types.h>

#include <string>

#include "base/result.h"

namespace fairlead::companion {

// Can slurmctld, as `user`, read every file that it would begin with? `was_saved`: it saved here before, so that there must be a job_state. Changes nothing. A few system calls, whatever their size: it is asked in the time of a takeover.
//   Invalid: one is empty, no file, or missing. Unavailable: one cannot be read, now or by that user.
Result<void> check_state(const std::string& state, bool was_saved, uid_t user, gid_t group);

// Slurm saves FILE into FILE.new, makes that FILE by a second name, and removes the first. Where it was killed between the last two, both are one file, and the next save begins by emptying it: killed then, nothing is left of what
// was confirmed. So what is called *.new goes before a slurmctld is started. None may run on `state`.
Result<void> remove_unfinished_saves(const std::string& state);

// A slurmctld that ran as root left files that one of `user` cannot read. Where a file of the state belongs to root, all that root owns there is given to `user`, those files last: killed at any point and called again it is the same.
Result<void> give_state_to(const std::string& state, uid_t user, gid_t group);

}  // namespace fairlead::companion
