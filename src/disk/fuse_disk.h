// SPDX-License-Identifier: Apache-2.0
// Serves an image as the one file of a FUSE file system, with limits, and answers at a socket. Sources: libfuse 3.14 (fuse_lowlevel.h), Linux' include/uapi/linux/fuse.h, ROOT_STORAGE_DAEMONS of systemd.
//   FOLDER/disk/NAME   the file (root's)
//   FOLDER/control     the socket (blocks/disk_control.h)
#pragma once
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "blocks/disk_control.h"
#include "disk/image.h"

namespace fairlead::disk {

struct DiskPlace {
  std::string folder;     // absolute; made if it is not there
  std::string name;       // of the file
};

// Until it is told to stop, or somebody unmounts it. `ready` is called once it serves and answers. What an engine that died has left in the folder is cleared away first, which is safe: the image is locked. Needs root.
// It has 16 threads with 512 KiB each, and with all else less than 20 MB; on an asynchronous medium 8 threads, 5 MB for what is written, and 4 MiB at most that are being read.
Result<void> serve_disk(Image& image, const DiskPlace& place, const blocks::DiskLimits& limits, const Clock& clock, const std::function<void()>& ready);

}  // namespace fairlead::disk
