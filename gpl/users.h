// SPDX-License-Identifier: GPL-3.0-or-later
// Whose users a node may change: those of the version of the shared root that is current while their lock is held.
#pragma once
#include <chrono>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace fairlead::companion {

struct LockedUsers {
  Fd lock;           // held as long as it is open; the one that useradd in the jail takes
  std::string root;  // whose /etc/passwd it is, with the node's mounts in it
};
// `jail`: the root, or a link to the one that this node enters; `volume`: the jail volume, or a path that is not there. Waits for the lock as long as it takes: then, and only then, it is seen whether that version is still
// the current one, for an update holds the lock until another one is. Until the node has followed it waits `patience`, then Unavailable.
Result<LockedUsers> lock_users(const std::string& jail, const std::string& volume, std::chrono::milliseconds patience);

}  // namespace fairlead::companion
