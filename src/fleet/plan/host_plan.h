// SPDX-License-Identifier: Apache-2.0
// What is due for a host that joins: from its Machine and its Node, the phase, and what becomes of a request to reboot. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "api/machine.h"
#include "kube/json.h"

namespace fairlead::fleet {

struct HostPlan {
  std::string phase;  // Waiting, Starting, Running, Silent, PoweringOff, Off, Refused, Removing
  std::string why;    // one sentence
  bool forget = false;                      // our finalizer goes, and its Node if that is its own
  std::optional<api::RebootRecord> note;    // written down now, and nothing else is done in this round
  bool rebooted = false;                    // what was written down has happened
  std::string not_rebooted;                 // why that is not waited for any longer; empty: it is
  std::optional<std::chrono::nanoseconds> look_again_after;
};
struct HostView {
  const kube::Json* node = nullptr;        // of the machine's name; null: there is none
  std::optional<std::vector<std::string>> pods;  // that are bound to it and have not ended; asked for where it is deleted. nullopt: not known
  bool hosts_join = true;                  // false: not this engine's business
};
inline constexpr std::chrono::minutes kLongestReboot{30};
HostPlan plan_host(const api::Machine& machine, const HostView& view, Instant now);
// Is the Node that of a host that joined as this machine? Else it is somebody else's.
bool is_node_of(const api::Machine& machine, const kube::Json* node);

}  // namespace fairlead::fleet
