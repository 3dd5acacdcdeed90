// SPDX-License-Identifier: GPL-3.0-or-later
#include "users.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "base/clock.h"
#include "jail_layout.h"

namespace fairlead::companion {
namespace {

Result<Fd> lock_of(int root) {
  auto etc = open_in_root(root, "/etc", O_RDONLY | O_DIRECTORY);
  if (!etc) return std::unexpected(std::move(etc.error()));
  Fd lock(::openat(etc->get(), ".pwd.lock", O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!lock) return fail_errno(errno, "open the lock of the users");
  struct flock whole{};
  whole.l_type = F_WRLCK;
  while (::fcntl(lock.get(), F_OFD_SETLKW, &whole) != 0)
    if (errno != EINTR) return fail_errno(errno, "lock the users");
  return lock;
}

// The version that is current if `root` is another one; empty: it is that one, or there are none.
Result<std::string> other_current(int root, const std::string& volume) {
  const Fd at(::open(volume.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!at && errno == ENOENT) return std::string();
  if (!at) return fail_errno(errno, "open " + volume);
  auto current = find_root(at.get());
  if (!current && current.error().code == Code::NotFound) return std::string();
  if (!current) return std::unexpected(std::move(current.error()));
  struct stat one{}, other{};
  if (::fstat(root, &one) != 0 || ::fstatat(at.get(), current->path.c_str(), &other, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno(errno, "look at the shared root");
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino ? std::string() : current->layout == Layout::Versions ? current->version : volume;
}

}  // namespace

Result<LockedUsers> lock_users(const std::string& jail, const std::string& volume, std::chrono::milliseconds patience) {
  const SystemClock clock;
  std::chrono::nanoseconds since{};
  for (bool first = true;; first = false) {
    char path[PATH_MAX];
    if (!::realpath(jail.c_str(), path)) return fail_errno(errno, "look for " + jail);
    const Fd root(::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!root) return fail_errno(errno, std::string("open ") + path);
    auto lock = lock_of(root.get());
    if (!lock) return std::unexpected(std::move(lock.error()));
    auto other = other_current(root.get(), volume);
    if (!other) return std::unexpected(std::move(other.error()));
    if (other->empty()) return LockedUsers{std::move(*lock), path};
    // Only from now on: somebody may have held the lock for long.
    if (first) since = clock.monotonic();
    if (clock.monotonic() - since >= patience) return fail(Code::Unavailable, fmt::format("{} is the shared root now, and this node has not followed yet; nothing was changed, try again", *other));
    lock->reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace fairlead::companion
