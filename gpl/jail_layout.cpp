// SPDX-License-Identifier: GPL-3.0-or-later
#include "jail_layout.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>

#include "base/encoding.h"
#include "base/files.h"

namespace fairlead::companion {
namespace {

int open_at2(int root, const char* path, int flags, std::uint64_t resolve) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags) | O_CLOEXEC;
  how.resolve = resolve;
  while (true) {
    const long fd = ::syscall(SYS_openat2, root, path, &how, sizeof how);
    if (fd >= 0) return static_cast<int>(fd);
    if (errno != EINTR && errno != EAGAIN) return -1;  // EAGAIN: a rename raced with the resolution of ".."
  }
}

// A file's bytes, or empty: longer ones are not ours.
Result<std::string> read_small(int folder, const char* name) {
  const Fd fd(::openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return fail_errno(errno, std::string("open ") + name);
  char bytes[256];
  const ssize_t size = ::read(fd.get(), bytes, sizeof bytes);
  if (size < 0) return fail_errno(errno, std::string("read ") + name);
  return std::string(bytes, static_cast<std::size_t>(size));
}

}  // namespace

std::string_view text(Layout layout) { return layout == Layout::Versions ? "versions" : "adopted"; }

bool is_version_name(std::string_view name) {
  const auto good = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  return !name.empty() && name.size() <= 64 && name[0] != '-' && std::all_of(name.begin(), name.end(), good);
}

Result<Layout> read_layout(int volume) {
  auto marker = read_small(volume, kJailMarker);
  if (!marker) return std::unexpected(std::move(marker.error()));
  const std::string_view word = trim(*marker);
  if (word == text(Layout::Versions)) return Layout::Versions;
  if (word == text(Layout::Adopted)) return Layout::Adopted;
  return fail(Code::Invalid, fmt::format("{} on the jail volume says \"{}\", which this version does not know", kJailMarker, word));
}

Result<JailRoot> find_root(int volume) {
  auto layout = read_layout(volume);
  if (!layout) return std::unexpected(std::move(layout.error()));
  if (*layout == Layout::Adopted) return JailRoot{.layout = Layout::Adopted, .version = "", .path = "."};
  char target[256];
  const ssize_t size = ::readlinkat(volume, kCurrent, target, sizeof target);
  if (size < 0) return fail_errno(errno, "read the link \"current\" of the jail volume");
  const std::string path(target, static_cast<std::size_t>(size));
  const std::string prefix = std::string(kVersions) + "/";
  if (!path.starts_with(prefix) || !is_version_name(path.substr(prefix.size()))) return fail(Code::Invalid, fmt::format("\"current\" of the jail volume leads to {}, which is no version", path));
  const Fd root(open_at2(volume, path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS));
  if (!root) return fail_errno(errno, "open " + path + " on the jail volume");
  return JailRoot{.layout = Layout::Versions, .version = path.substr(prefix.size()), .path = path};
}

Result<bool> same_file(const std::string& a, const std::string& b) {
  struct stat of[2] = {};
  for (int i = 0; i < 2; ++i)
    if (::stat((i == 0 ? a : b).c_str(), &of[i]) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) return false;
      return fail_errno(errno, "look at " + (i == 0 ? a : b));
    }
  return of[0].st_dev == of[1].st_dev && of[0].st_ino == of[1].st_ino;
}

Result<Fd> open_in_root(int root, const std::string& path, int flags) {
  Fd fd(open_at2(root, path.c_str(), flags, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS));
  if (!fd) return fail_errno(errno, "open " + path + " in the jail");
  return fd;
}

Result<Fd> mount_point(int root, const std::string& path, Kind kind) {
  const int flags = O_PATH | (kind == Kind::Folder ? O_DIRECTORY : 0);
  auto there = open_in_root(root, path, flags);
  if (there || there.error().code != Code::NotFound) return there;
  for (std::size_t at = path.find_first_not_of('/'); at != std::string::npos;) {
    const std::size_t end = path.find('/', at);
    const std::string name = path.substr(at, end == std::string::npos ? end : end - at);
    auto parent = open_in_root(root, at > 1 ? path.substr(0, at) : "/", O_RDONLY | O_DIRECTORY);
    if (!parent) return parent;
    if (end == std::string::npos && kind == Kind::File) {
      const Fd made(::openat(parent->get(), name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644));
      if (!made && errno != EEXIST) return fail_errno(errno, "make " + path + " in the jail");
    } else if (::mkdirat(parent->get(), name.c_str(), 0755) != 0 && errno != EEXIST) {
      return fail_errno(errno, "make " + path + " in the jail");
    }
    at = end == std::string::npos ? end : path.find_first_not_of('/', end);
  }
  return open_in_root(root, path, flags);
}

}  // namespace fairlead::companion
