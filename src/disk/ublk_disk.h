// SPDX-License-Identifier: Apache-2.0
// Serves an image as a block device of the kernel's ublk, with limits, and answers at a socket. Sources: Linux' Documentation/block/ublk.rst, include/uapi/linux/ublk_cmd.h.
//   FOLDER/control     the socket (blocks/disk_control.h), which tells the device's number
#pragma once
#include <functional>

#include "blocks/ublk.h"
#include "disk/fuse_disk.h"

namespace fairlead::disk {

// As serve_disk, for an image whose I/O is done when its call is back. The device bears the mark of place.name (blocks::ublk_mark). One that an engine of this name has left when it died is taken away first. Unavailable: somebody has that one open.
// It has 16 threads, each for one request of up to 512 KiB at a time. Where the kernel hands over pages and the image lies in a file as it is, that file is read and written by these: nothing is copied, and it has 4 MB of memory. Else each thread has a room of 512 KiB, to and from which the kernel copies; with all else less than 20 MB.
Result<void> serve_ublk(Image& image, const DiskPlace& place, const blocks::DiskLimits& limits, const Clock& clock, const std::function<void()>& ready);

}  // namespace fairlead::disk
