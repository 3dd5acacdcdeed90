// SPDX-License-Identifier: Apache-2.0
#include "fleet/power_control.h"

#include "fleet/ipmi.h"
#include "fleet/redfish.h"

namespace fairlead::fleet {

namespace {

class EitherControl final : public PowerControl {
 public:
  Result<PowerState> state(const BmcAccess& access) override { return of(access).state(access); }
  Result<void> act(const BmcAccess& access, PowerAction action) override { return of(access).act(access, action); }

 private:
  PowerControl& of(const BmcAccess& access) { return access.bmc.kind == api::Bmc::Kind::Ipmi ? *ipmi_ : *redfish_; }
  std::unique_ptr<PowerControl> redfish_ = make_redfish_control(), ipmi_ = make_ipmi_control();
};

}  // namespace

std::unique_ptr<PowerControl> make_power_control() { return std::make_unique<EitherControl>(); }

}  // namespace fairlead::fleet
