// SPDX-License-Identifier: Apache-2.0
// What a Redfish service says of its systems, read from its answers (bytes from outside). Source: DMTF DSP0266 1.20 (protocol), DSP2046 (ComputerSystem).
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/power_control.h"

namespace fairlead::fleet {

struct RedfishSystem {
  PowerState state = PowerState::Changing;
  std::string reset;                      // path to which a reset is posted; empty: it offers none
  std::vector<std::string> reset_types;   // that it says it takes; empty: it does not say
};
// Of GET on a ComputerSystem. Invalid: no such document. Paths are of this service: another host's is never asked, and never gets the password.
Result<RedfishSystem> read_redfish_system(std::string_view body);
// The paths of a collection's members. Invalid.
Result<std::vector<std::string>> read_redfish_members(std::string_view body);
// Of GET on the service's root: the path of its systems.
Result<std::string> read_redfish_root(std::string_view body);
// What an error's body says, in one line of printable characters, 300 at most; empty: nothing.
std::string read_redfish_error(std::string_view body);
// The ResetType to post for an action; Unsupported: it takes none that would do.
Result<std::string> redfish_reset_type(const RedfishSystem& system, PowerAction action);

std::unique_ptr<PowerControl> make_redfish_control();

}  // namespace fairlead::fleet
