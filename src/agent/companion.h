// SPDX-License-Identifier: Apache-2.0
// The companion of Slurm's containers (fairlead-slurm) on a node: pods mount it from the node's own file system, so that it has the version of the controllers and not that of the image.
#pragma once
#include <string>

#include "base/result.h"

namespace fairlead::agent {

// Makes `folder`/fairlead-slurm equal to the program `source` (mode 0755) and tells whether that took a write. A reader sees the old file or the new one; who runs the old one goes on with it.
// Forbidden, Unavailable, Exhausted: the file system's answers.
Result<bool> place_companion(const std::string& source, const std::string& folder);

}  // namespace fairlead::agent
