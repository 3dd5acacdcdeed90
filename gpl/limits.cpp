// SPDX-License-Identifier: GPL-3.0-or-later
#include "limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/files.h"
#include "base/log.h"

namespace fairlead::companion {

Result<void> take_limits(const std::string& text) {
  if (text.empty()) return {};
  auto limits = read_limits(text);
  if (!limits) return pass(std::move(limits.error()), "securityLimitsConfig");
  if (auto made = make_dirs("/etc/security", 0755); !made) return made;
  if (auto written = write_file_atomically("/etc/security/limits.conf", text.ends_with('\n') ? text : text + "\n", 0644); !written) return written;
  for (const Limit& limit : *limits) {
    rlimit now{};
    ::getrlimit(static_cast<__rlimit_resource>(limit.resource), &now);
    if (limit.hard) now.rlim_max = limit.value;
    if (limit.soft) now.rlim_cur = limit.value;
    now.rlim_cur = std::min(now.rlim_cur, now.rlim_max);
    if (::setrlimit(static_cast<__rlimit_resource>(limit.resource), &now) != 0)
      log_warn("a limit was not taken on", {{"line", limit.line}, {"reason", std::strerror(errno)}, {"remedy", errno == EPERM ? "raising a hard limit needs CAP_SYS_RESOURCE: give the container runtime the limit" : ""}});
  }
  return {};
}

}  // namespace fairlead::companion
