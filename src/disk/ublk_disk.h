// SPDX-License-Identifier: Apache-2.0
// Serves an image as a block device of the kernel's ublk, with limits, and answers at a socket. Sources: Linux' Documentation/block/ublk.rst, include/uapi/linux/ublk_cmd.h.
//   FOLDER/control     the socket (blocks/disk_control.h), which tells the device's number
#pragma once
#include <functional>

#include "blocks/ublk.h"
#include "disk/fuse_disk.h"

namespace fairlead::disk {

// As serve_disk, for an image whose I/O is done when its call is back. The device bears the mark of place.name (blocks::ublk_mark). One that an engine of this name has left when it died is taken away first. Unavailable: somebody has that one open.
// It has 16 threads with 512 KiB each, each for one request at a time, and with all else less than 20 MB.
Result<void> serve_ublk(Image& image, const DiskPlace& place, const blocks::DiskLimits& limits, const Clock& clock, const std::function<void()>& ready);

}  // namespace fairlead::disk
