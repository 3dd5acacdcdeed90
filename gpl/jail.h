// SPDX-License-Identifier: GPL-3.0-or-later
// Makes the shared root of a cluster a place to live in on this node: /mnt/jail is the current version with proc, devices, Slurm's sockets and files of this container mounted inside, so that `chroot /mnt/jail`,
// an SSH session and a job step find a whole system with a working Slurm client.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "jail_layout.h"

namespace fairlead::companion {

inline constexpr const char* kJailVolume = "/mnt/jail-volume";
inline constexpr const char* kJail = "/mnt/jail";                    // a link to one of
inline constexpr const char* kJailVersions = "/mnt/jail-versions";   // V: a version's mounts; .V: they are complete

struct Bind {
  std::string from, to;  // of the container, in the jail
  Kind kind = Kind::Folder;
  bool needed = true;    // the node does not start without it
  friend bool operator==(const Bind&, const Bind&) = default;
};
// In the order in which they are mounted: what lies below another comes after it. `sub_mounts` is the value of FAIRLEAD_JAIL_MOUNTS: lines NAME=PATH, each mounted at /mnt/jail-mounts/NAME.
std::vector<Bind> jail_binds(const JailRoot& root, const std::string& volume, const std::string& sub_mounts);

// FAIRLEAD_JAIL=mount: mounts all that below /mnt/jail-versions/V (the container needs CAP_SYS_ADMIN), makes /mnt/jail a link to it and writes the plug-in and plugstack.conf to /run/fairlead. FAIRLEAD_JAIL=link: /mnt/jail is a link to the current version, for
// containers that only read it. Not set: nothing is done, the volume itself is at /mnt/jail. Done again, it does nothing.
Result<void> prepare_jail();
bool lives_in_jail();  // FAIRLEAD_JAIL=mount

// Mounts the version that is current now, unless it is mounted, and has /mnt/jail lead to it: by one rename, so that whoever opens it finds a whole root before and after. The volume was told first that this node uses it.
// Gives the version; nothing is unmounted.
Result<std::string> enter_current(const std::string& node);

// Takes down the mounts of every version but the one that /mnt/jail leads to and those that `in_use` names, and tells the volume. Gives the versions that are mounted then.
Result<std::set<std::string>> leave_versions(const std::string& node, const std::set<std::string>& in_use);
std::string own_node();                     // the pod's name
std::set<std::string> mounted_versions();   // or half so
// The versions that are mounted here and the root of a process that can be seen, with every one that cannot be told apart: unknown is in use.
std::set<std::string> versions_in_use();

// Starts a process beside the daemon that follows `current`: new steps and sessions enter the new version, what runs keeps the old one, whose mounts go when nothing on this node has had it as its root for a while. It keeps
// the rights that it is started with. Where nothing can change (an adopted root, no jail) none is started. Its errors are logged: the node goes on with the version that it has.
void keep_jail();
// Before this container ends, when its daemon has: the volume is told which versions processes still live in, so that a node that never comes back keeps no other.
void leave_jail();

}  // namespace fairlead::companion
