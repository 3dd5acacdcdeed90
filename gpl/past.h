// SPDX-License-Identifier: GPL-3.0-or-later
// What a worker settles with Slurm before its slurmd starts: what was lost with the slurmd before it, where it is now, and whose pod it is (docs/design/012).
#pragma once
#include <string>

namespace fairlead::companion {

// Returns when slurmd may start. `host`: its node. `server`: HOST:PORT of slurmctld. Waits as long as Slurm does not answer (slurmd could do nothing either), as long as another pod may still run this node's jobs, and for the
// 65 s in which messages to lost jobs may be under way.
void settle_the_past(const std::string& host, const std::string& server);

}  // namespace fairlead::companion
