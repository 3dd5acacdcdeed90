// SPDX-License-Identifier: Apache-2.0
#include "base/own_program.h"

#include <unistd.h>

#include <array>
#include <climits>

namespace fairlead {

Result<std::string> own_program() {
  std::array<char, PATH_MAX> path;
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  if (size <= 0) return fail_errno(size < 0 ? errno : ENOENT, "find our own program: read /proc/self/exe");
  std::string out(path.data(), static_cast<std::size_t>(size));
  // The kernel's word for a file that has another name or none now (proc(5)). A new one lies at the old place after an upgrade.
  constexpr std::string_view replaced = " (deleted)";
  if (out.ends_with(replaced)) out.resize(out.size() - replaced.size());
  return out;
}

Result<std::string> program_beside(std::string_view name) {
  auto own = own_program();
  if (!own) return own;
  own->replace(own->rfind('/') + 1, std::string::npos, name);
  return own;
}

}  // namespace fairlead
