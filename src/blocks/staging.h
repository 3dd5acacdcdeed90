// SPDX-License-Identifier: Apache-2.0
// A volume that is attached to this machine becomes a mount at a place: formatted if it is certainly empty, checked if nobody has it mounted, grown to its device. Idempotent; docs/design/071-csi.md.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"

namespace fairlead::blocks {

struct Stage {
  std::string volume, place;
  std::string type;                // "ext4", "xfs"; empty: whatever is on it, and ext4 on an empty one
  std::vector<std::string> flags;  // of the mount
  bool read_only = false;          // a device that is read-only is so anyway
  std::string device = {};         // where its pool says that it is shown, "/dev/loop3"; empty: that is not known
};
// Blocks (a file system may be made). NotFound: no device of this machine shows it. Exists: it is there otherwise. Conflict: it holds something that is not mounted; it is left as it is. Internal: damaged, or something else is mounted there.
Result<void> stage(const Stage& wanted);

// Before a volume is mounted read-only by whoever: the log of the file system on it is replayed and it takes all of its device, as a mount for writing does. What is read then is what was synced, while `norecovery` alone shows what it was before the log.
// The volume is attached for writing, by the device `told` (empty: that is not known), and nobody has it mounted. Nothing is done to what is empty, or holds no file system of ours. NotFound: no device shows it. Internal: damaged.
Result<void> settle(const std::string& volume, const std::string& told = {});

// A folder at `path`, for a mount; what is missing above it is made too. Invalid: something else is there, a link too.
Result<void> make_folder(const std::string& path);

// What is mounted there takes all of its device, which may have grown. `known`: size of the device when that was seen last, 0 at first; set when it is so. Nothing is mounted there: nothing is done.
Result<void> grow_to_device(const std::string& place, std::int64_t& known);

}  // namespace fairlead::blocks
