// SPDX-License-Identifier: Apache-2.0
// The port to the controllers on hosts' boards (BMC). Adapters: make_power_control (Redfish by HTTPS, IPMI by ipmitool) and FakePower (tests, simulation).
#pragma once
#include <memory>
#include <string>

#include "api/machine.h"
#include "base/result.h"
#include "fleet/plan/power_plan.h"

namespace fairlead::fleet {

struct BmcAccess {
  api::Bmc bmc;
  std::string user, password;  // never told, logged or put into argv
};

// Thread-safe; blocks for as long as a BMC takes (seconds; a minute at most).
class PowerControl {
 public:
  virtual ~PowerControl() = default;
  // Unavailable: it does not answer, or is not the one that is trusted (its key is told). Unauthorized: not with this user (by IPMI: Unavailable, since the board is then silent). NotFound: no such system. Invalid: it says what no BMC should.
  virtual Result<PowerState> state(const BmcAccess& access) = 0;
  // Returns when the BMC has taken it, which is before it is so; also when it is so already. Unsupported: it cannot do that.
  virtual Result<void> act(const BmcAccess& access, PowerAction action) = 0;
};

std::unique_ptr<PowerControl> make_power_control();

}  // namespace fairlead::fleet
