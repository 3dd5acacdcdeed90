// SPDX-License-Identifier: Apache-2.0
// What is due for the power of a host that has a BMC (docs/design/057): from what is asked (its Machine), what was done (status.power) and what its BMC and its Node say, one action at most, what is written down before it, and whether the host is proven to be dead. Pure.
#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "api/machine.h"

namespace fairlead::fleet {

// As a BMC tells and takes them. Names: Redfish (DMTF DSP2046, ComputerSystem.PowerState and ResetType).
enum class PowerState { On, Off, Changing };
enum class PowerAction { On, ForceOff, GracefulShutdown, ForceRestart };
const char* name(PowerState state);
const char* name(PowerAction action);

struct PowerSeen {
  std::optional<PowerState> state;  // by its BMC; none: it did not say
  std::string why;                  // why not
  std::string lease;                // spec.renewTime of its Node's Lease, read after `state`; empty: there is none
  std::string boot;                 // status.nodeInfo.bootID of its Node; empty: not known
  bool ready = false;               // its Node
  bool declared = false;            // its Node carries our word that it is out of service
};

struct PowerPlan {
  api::PowerRecord record;          // from now on; written down before anything is done
  std::optional<PowerAction> act;   // sent once that is written
  std::optional<bool> in_service;   // what its Node has to say from now on: true before `act`, false after the record; none: it says so already
  std::chrono::nanoseconds look_again_after{};
};

// Its BMC has to have said Off for so long, and its agent to have reported nothing meanwhile (it does every 10 s), until the host counts as dead; at looks of which none is further from the next than this: while nobody looked, nobody may have listened to the agent either.
inline constexpr std::chrono::seconds kProofOfDeath{30}, kLookGap{20};
// An agent that was told to reboot has so long for it before the BMC does it.
inline constexpr std::chrono::minutes kRebootByAgent{15};

// Equal arguments give equal plans. A reboot is sent by the BMC once for each request, and once more after 14 minutes in which nothing came of it.
PowerPlan plan_power(const api::Machine& machine, const PowerSeen& seen, Instant now);

}  // namespace fairlead::fleet
