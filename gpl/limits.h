// SPDX-License-Identifier: GPL-3.0-or-later
// Limits that the SlurmCluster gives a container (securityLimitsConfig), in the words of limits.conf(5). Daemons do not log in, so PAM never applies them: the first process takes them on, and the daemon, its
// steps and their children inherit them. Sessions of sshd get them from PAM, by /etc/security/limits.conf.
#pragma once
#include <string>

#include "base/limits.h"

namespace fairlead::companion {

// Writes /etc/security/limits.conf and takes the limits on. A hard limit that may not be raised (no CAP_SYS_RESOURCE) is left as it is and logged.
Result<void> take_limits(const std::string& text);

}  // namespace fairlead::companion
