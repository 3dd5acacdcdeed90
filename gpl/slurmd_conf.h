// SPDX-License-Identifier: GPL-3.0-or-later
// The folder in which slurmd keeps the configuration that slurmctld sent it.
#pragma once
#include <map>
#include <string>

#include "base/result.h"

namespace fairlead::companion {

inline constexpr const char* kSlurmdConf = "/run/slurm/conf";  // slurmd's link to it

// Writes `files` (name: content) there, as slurmd 22.05 does with those that it is sent: what is not among them goes, if it is one that slurmctld sends; all else stays. slurm.conf last, as its first line tells of which
// generation all of them are. NotFound: there is no such folder.
Result<void> put_slurmd_conf(const std::string& folder, const std::map<std::string, std::string>& files);

}  // namespace fairlead::companion
