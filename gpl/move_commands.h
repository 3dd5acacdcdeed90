// SPDX-License-Identifier: GPL-3.0-or-later
// What the container that keeps sets is asked for when a cluster moves, and what it does of itself (cluster_move.h).
#pragma once
#include <string>
#include <vector>

#include "set_settings.h"

namespace fairlead::companion {

// True: the cluster is being exported or imported, or has gone; no sets are made.
bool carry_on_moves(const Settings& settings, Instant now, const std::string& version);
// ,"export":{...},"import":{...} of those there are; never a code.
std::string moves_json(const Settings& settings);

bool is_move_command(const std::string& command);
// export-begin | export-status ID | export-abort | export-hand-over (prints the code) | export-read (the set, as a tar, to stdout)
// import-begin ID CLUSTER SUM SET BYTES | import-put ID OFFSET (a piece of the tar on stdin) | import-fill ID | import-open (the code on stdin)
int run_move_command(const Settings& settings, const std::vector<std::string>& arguments);

}  // namespace fairlead::companion
