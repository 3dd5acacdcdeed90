// SPDX-License-Identifier: Apache-2.0
// What the kernel's loop devices need beside mount(8) and losetup(8).
#pragma once
#include <string>

#include "base/result.h"

namespace fairlead {

// From now on the device (`/dev/loop3`) reads and writes its file past the page cache (LOOP_SET_DIRECT_IO); what is dirty there is written first. Idempotent, and safe while the device is used. Needs root.
// Without it everything is held in memory twice, a full disk is found out after the write was answered, and a sync of one file in the image waits until all that was written into the image is on disk.
// False: not with this file (a tmpfs, or a disk whose sectors are larger than the device's), and the device goes on as it was. An error: it cannot be asked.
Result<bool> loop_past_cache(const std::string& device);

}  // namespace fairlead
