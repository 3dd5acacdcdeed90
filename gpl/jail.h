// SPDX-License-Identifier: GPL-3.0-or-later
// Makes the shared root of a cluster a place to live in on this node: /mnt/jail is the current version with proc, devices, Slurm's sockets and files of this container mounted inside, so that `chroot /mnt/jail`,
// an SSH session and a job step find a whole system with a working Slurm client.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"
#include "jail_layout.h"

namespace fairlead::companion {

inline constexpr const char* kJailVolume = "/mnt/jail-volume";
inline constexpr const char* kJail = "/mnt/jail";

struct Bind {
  std::string from, to;  // of the container, in the jail
  Kind kind = Kind::Folder;
  bool needed = true;    // the node does not start without it
  friend bool operator==(const Bind&, const Bind&) = default;
};
// In the order in which they are mounted: what lies below another comes after it. `sub_mounts` is the value of FAIRLEAD_JAIL_MOUNTS: lines NAME=PATH, each mounted at /mnt/jail-mounts/NAME.
std::vector<Bind> jail_binds(const JailRoot& root, const std::string& volume, const std::string& sub_mounts);

// FAIRLEAD_JAIL=mount: mounts all that (the container needs CAP_SYS_ADMIN) and writes the plug-in and plugstack.conf to /run/fairlead. FAIRLEAD_JAIL=link: /mnt/jail is a link to the current version, for
// containers that only read it. Not set: nothing is done, the volume itself is at /mnt/jail. Done again, it does nothing.
Result<void> prepare_jail();
bool lives_in_jail();  // FAIRLEAD_JAIL=mount

}  // namespace fairlead::companion
