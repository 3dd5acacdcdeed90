// SPDX-License-Identifier: Apache-2.0
#include "node/mounts.h"

#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/encoding.h"
#include "base/files.h"

namespace fairlead::node {
namespace {

// mountinfo writes blanks and backslashes as \040.
std::string unescape(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

Result<std::vector<std::string>> mount_points() {
  auto text = read_file("/proc/self/mountinfo");
  if (!text) return std::unexpected(std::move(text.error()));
  std::vector<std::string> out;
  for (const std::string& line : split(*text, '\n')) {
    const auto fields = split(line, ' ');
    if (fields.size() > 4) out.push_back(unescape(fields[4]));
  }
  return out;
}

}  // namespace

Result<ScopedMount> ScopedMount::make(const std::string& type, const std::string& source, std::string target, unsigned long flags,
                                      const std::string& options) {
  if (::mount(source.c_str(), target.c_str(), type.c_str(), flags, options.empty() ? nullptr : options.c_str()) != 0)
    return fail_errno(errno, fmt::format("mount {} on {}", type, target));
  return ScopedMount(std::move(target));
}

Result<ScopedMount> ScopedMount::bind(const std::string& source, std::string target) {
  if (::mount(source.c_str(), target.c_str(), nullptr, MS_BIND, nullptr) != 0)
    return fail_errno(errno, fmt::format("mount {} on {}", source, target));
  return ScopedMount(std::move(target));
}

Result<ScopedMount> ScopedMount::bind(const Fd& source, std::string target) {
  return bind(fmt::format("/proc/self/fd/{}", source.get()), std::move(target));
}

ScopedMount::~ScopedMount() {
  if (!target_.empty()) ::umount2(target_.c_str(), MNT_DETACH);
}

Result<bool> is_mount_point(const std::string& path) {
  struct statx info{};
  if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, 0, &info) != 0) {
    if (errno == ENOENT) return false;
    return fail_errno(errno, "look at " + path);
  }
  return (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

Result<void> unmount_below(const std::string& path) {
  auto points = mount_points();
  if (!points) return std::unexpected(std::move(points.error()));
  std::reverse(points->begin(), points->end());
  for (const std::string& point : *points) {
    if (point != path && !point.starts_with(path + "/")) continue;
    if (::umount2(point.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0 && errno != EINVAL && errno != ENOENT)
      return fail_errno(errno, "unmount " + point);
  }
  return {};
}

Result<void> in_child(const char* doing, const std::function<int()>& work) {
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno(errno, doing);
  if (pid == 0) ::_exit(work());
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return fail_errno(errno, doing);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  if (WIFEXITED(status)) return fail_errno(WEXITSTATUS(status), doing);
  return fail(Code::Internal, fmt::format("{}: killed by signal {}", doing, WTERMSIG(status)));
}

}  // namespace fairlead::node
