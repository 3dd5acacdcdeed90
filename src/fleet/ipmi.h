// SPDX-License-Identifier: Apache-2.0
// Power by IPMI 2.0 (RMCP+) through ipmitool, which has to be installed on the server's machine. IPMI has no certificates: whoever stands between can take the place of the BMC, so Redfish is to be preferred.
#pragma once
#include <memory>
#include <string_view>

#include "fleet/power_control.h"

namespace fairlead::fleet {

// Of `chassis power status`. Invalid: another text.
Result<PowerState> read_ipmi_status(std::string_view text);

std::unique_ptr<PowerControl> make_ipmi_control(std::string program = "ipmitool");

}  // namespace fairlead::fleet
