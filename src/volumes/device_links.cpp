// SPDX-License-Identifier: Apache-2.0
#include "volumes/device_links.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <optional>

namespace fairlead::volumes {
namespace {

bool is_name(const std::string& name) {
  for (const std::string_view begin : {"/dev/xvd", "/dev/sd"})
    if (name.starts_with(begin) && name.size() == begin.size() + 1 && name.back() >= 'a' && name.back() <= 'z') return true;
  return false;
}
// Relative: it holds in whatever /dev the nodes of this machine have.
std::string target_of(const std::string& device) { return device.substr(device.rfind('/') + 1); }

// What the link says; empty text: it is no link; nothing: there is nothing.
Result<std::optional<std::string>> read_link(const std::string& name) {
  struct stat about {};
  if (::lstat(name.c_str(), &about) != 0) return errno == ENOENT ? Result<std::optional<std::string>>(std::nullopt) : fail_errno(errno, "look at " + name);
  if (!S_ISLNK(about.st_mode)) return std::optional<std::string>("");
  char text[PATH_MAX];
  const ssize_t size = ::readlink(name.c_str(), text, sizeof text);
  if (size < 0) return fail_errno(errno, "read " + name);
  return std::optional<std::string>(std::string(text, static_cast<std::size_t>(size)));
}

}  // namespace

Result<void> link_device(const std::string& name, const std::string& device) {
  if (!is_name(name) || !device.starts_with("/dev/")) return fail(Code::Invalid, fmt::format("\"{}\" is no name of a device: /dev/xvdf to /dev/xvdz, /dev/sdf to /dev/sdz", name.substr(0, 40)));
  const auto now = read_link(name);
  if (!now) return std::unexpected(now.error());
  if (*now) return **now == target_of(device) ? Result<void>() : fail(Code::Exists, fmt::format("there is a {} on this machine already: the volume is {}", name, device));
  if (::symlink(target_of(device).c_str(), name.c_str()) != 0 && errno != EEXIST) return fail_errno(errno, "make " + name);
  return {};
}

Result<void> unlink_device(const std::string& name, const std::string& device) {
  if (!is_name(name) || target_of(device).empty()) return {};
  const auto now = read_link(name);
  if (!now) return std::unexpected(now.error());
  if (!*now || (*now)->empty() || **now != target_of(device)) return {};  // what is no link is a device of the machine's own
  return ::unlink(name.c_str()) == 0 || errno == ENOENT ? Result<void>() : Result<void>(fail_errno(errno, "remove " + name));
}

}  // namespace fairlead::volumes
