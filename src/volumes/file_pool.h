// SPDX-License-Identifier: Apache-2.0
// A pool in a folder of a file system, shown by the kernel's loop devices with direct I/O. Copies need XFS with reflink (or another with FICLONE). Sources: ioctl_ficlone(2), loop(4), Linux' include/uapi/linux/loop.h.
//   FOLDER/pool.id             what this pool is called for ever
//   FOLDER/ID.volume, ID.snapshot, ID.part, with the id in the attribute user.fairlead.volume
// What is encrypted begins with a header of 1 MiB, and says so in the attribute user.fairlead.luks; sizes are without it.
// Volumes with an engine (src/disk) are shown by a loop device on the file that it serves: /run/fairlead-volumes/POOL/ID/disk/ID.POOLID.disk, POOL being the first 8 characters of the pool's id.
#pragma once
#include <memory>
#include <string>

#include "volumes/keyring.h"
#include "volumes/pool.h"

namespace fairlead::volumes {

// The folder has to be there; it is given an id if it has none and is empty. Invalid: it holds files of others. Conflict: another process has it. Needs root for devices. engine: the program fairlead-disk, or unix://SOCKET of who keeps engines (engine_keeper.h); empty: none is started here.
// keyring: that wraps keys of encrypted volumes (volumes/luks.h), borrowed; none: there are none here. shows: what engines that are started show: auto (a ublk device where the kernel has what is needed) or file.
Result<std::unique_ptr<Pool>> open_file_pool(const std::string& folder, const std::string& engine = "", Keyring* keyring = nullptr, const std::string& shows = "auto");

}  // namespace fairlead::volumes
