// SPDX-License-Identifier: Apache-2.0
// On a further machine: does what the pool's daemon asks in its VolumeHost, and tells of it (docs/design/077-volumes-on-other-machines.md). The daemon's side is one of pool_controllers.h.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kube/controller.h"
#include "volumes/machine.h"

namespace fairlead::volumes {

struct HostSite {
  kube::KubeApi& api;
  const Clock& clock;
  std::string pool, host;            // names: of the VolumePool, and of this machine
  std::string id;                    // of this machine (host.id)
  std::string node_selector{};       // for a VolumeHost that is made now
  std::function<std::unique_ptr<Machine>(const std::string& pool_id)> machine;
  std::function<void()> report{};    // wakes the second of them; none: it is called by itself
};
// One for each volume that is asked for, and one that tells: a volume that hangs holds up no other, and not that this machine lives.
std::vector<std::unique_ptr<kube::Controller>> host_controllers(const HostSite& site);

// What `fairlead-volumes host` asks of an API.
kube::Access host_access();

}  // namespace fairlead::volumes
