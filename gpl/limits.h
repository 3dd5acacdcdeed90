// SPDX-License-Identifier: GPL-3.0-or-later
// Limits that the SlurmCluster gives a container (securityLimitsConfig), in the words of limits.conf(5). Daemons do not log in, so PAM never applies them: the first process takes them on, and the daemon, its
// steps and their children inherit them. Sessions of sshd get them from PAM, by /etc/security/limits.conf.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fairlead::companion {

struct Limit {
  int resource = 0;       // RLIMIT_...
  bool soft = true, hard = true;
  std::uint64_t value = 0;  // in the unit of setrlimit; RLIM_INFINITY: none
  std::string line;       // for messages
};

// Lines for root and for everybody; those of other users and groups are PAM's. Invalid: a line was not understood, and none counts.
Result<std::vector<Limit>> read_limits(std::string_view text);

// Writes /etc/security/limits.conf and takes the limits on. A hard limit that may not be raised (no CAP_SYS_RESOURCE) is left as it is and logged.
Result<void> take_limits(const std::string& text);

}  // namespace fairlead::companion
