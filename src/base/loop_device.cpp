// SPDX-License-Identifier: Apache-2.0
#include "base/loop_device.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>

#include <cerrno>

#include "base/fd.h"

namespace fairlead {

Result<bool> loop_past_cache(const std::string& device) {
  const Fd opened(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
  loop_info64 seen{};
  if (!opened || ::ioctl(opened.get(), LOOP_GET_STATUS64, &seen) != 0) return fail_errno(errno, "look at " + device);
  if ((seen.lo_flags & LO_FLAGS_DIRECT_IO) != 0) return true;
  if (::ioctl(opened.get(), LOOP_SET_DIRECT_IO, 1UL) == 0) return true;
  if (errno == EINVAL) return false;
  return fail_errno(errno, "set " + device + " to direct I/O");
}

}  // namespace fairlead
