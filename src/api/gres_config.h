// SPDX-License-Identifier: Apache-2.0
// Lines of gres.conf (Slurm 22.05, src/common/gres.c). slurmctld looks at none of their values and drops the result of reading them, so a trial of it shows nothing; slurmd ends by fatal(), and the steps of its
// worker with it. A line that cannot be read ends those of all sets, for the file is one.
#pragma once
#include <string>
#include <vector>

namespace fairlead::api {

// What is wrong with the lines of one kind of workers, as sentences "line 2, Fil: ..."; none: slurmd reads them. Whether the files are there only a worker can tell. O(length).
std::vector<std::string> check_gres_lines(const std::vector<std::string>& lines);

}  // namespace fairlead::api
