// SPDX-License-Identifier: GPL-3.0-or-later
#include "rights.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace fairlead::companion {

Result<void> give_up(int capability) {
  const auto failed = [&](const char* what) { return fail(Code::Forbidden, fmt::format("give up capability {}: {}: {}; the container needs CAP_SETPCAP for that", capability, what, std::strerror(errno))); };
  // First, for it needs a right that the sets below may hold.
  if (::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1 && ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) return failed("bounding set");
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_LOWER, capability, 0, 0) != 0) return failed("ambient set");
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capget, &header, sets) != 0) return failed("capget");
  const unsigned bit = ~(1U << (capability % 32));
  __user_cap_data_struct& of = sets[capability / 32];
  of.effective &= bit;
  of.permitted &= bit;
  of.inheritable &= bit;
  if (::syscall(SYS_capset, &header, sets) != 0) return failed("capset");
  return {};
}

}  // namespace fairlead::companion
