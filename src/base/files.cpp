// SPDX-License-Identifier: Apache-2.0
#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>

namespace fairlead {
namespace {

int open_at2(int folder, const char* path, std::uint64_t flags, std::uint64_t mode, std::uint64_t resolve) {
  open_how how{};
  how.flags = flags | O_CLOEXEC;
  how.mode = mode;
  how.resolve = resolve;
  while (true) {
    const long fd = ::syscall(SYS_openat2, folder, path, &how, sizeof how);
    if (fd >= 0) return static_cast<int>(fd);
    // EAGAIN: a rename raced with the resolution of "..".
    if (errno != EINTR && errno != EAGAIN) return -1;
  }
}

std::string folder_of(const std::string& path) {
  const auto slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<void> write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "write " + path);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

enum class Durability { Durable, Atomic };

Result<void> write_file(const std::string& path, std::string_view bytes, mode_t mode, Durability durability) {
  static std::atomic<unsigned> counter{0};
  const std::string folder = folder_of(path);
  std::string temporary;
  Fd fd;
  for (int attempt = 0; !fd; ++attempt) {
    temporary = folder + "/.tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter.fetch_add(1));
    fd = Fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    // A name can be left from a crashed process that had our pid.
    if (!fd && (errno != EEXIST || attempt == 1000)) return fail_errno(errno, "create " + temporary);
  }
  const auto undo = [&](std::unexpected<Error> error) -> Result<void> {
    ::unlink(temporary.c_str());
    return error;
  };
  if (::fchmod(fd.get(), mode) != 0) return undo(fail_errno(errno, "chmod " + temporary));
  if (auto written = write_all(fd.get(), bytes, temporary); !written) return undo(std::unexpected(std::move(written.error())));
  if (durability == Durability::Durable && ::fsync(fd.get()) != 0) return undo(fail_errno(errno, "fsync " + temporary));
  if (::rename(temporary.c_str(), path.c_str()) != 0) return undo(fail_errno(errno, "rename to " + path));
  if (durability == Durability::Atomic) return {};
  const Fd parent(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent) return fail_errno(errno, "open " + folder);
  if (::fsync(parent.get()) != 0) return fail_errno(errno, "fsync " + folder);
  return {};
}

// Removes what is in the folder `fd`. Deeper than `depth_limit` a subfolder is moved up beside the first level instead of held open,
// so that a tree made deep on purpose cannot use up our descriptors.
class TreeRemover {
 public:
  explicit TreeRemover(int top) : top_(top) {}

  Result<void> clear(int fd, const std::string& shown, int depth) {
    for (bool found = true; found;) {
      found = false;
      Fd copy(::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (!copy) return fail_errno(errno, "open " + shown);
      DIR* raw = ::fdopendir(copy.get());
      if (raw == nullptr) return fail_errno(errno, "read " + shown);
      copy.release();
      const std::unique_ptr<DIR, int (*)(DIR*)> dir(raw, &::closedir);
      while (const dirent* entry = ::readdir(dir.get())) {
        const std::string name = entry->d_name;
        if (name == "." || name == "..") continue;
        found = true;
        if (auto removed = remove(fd, name, shown + "/" + name, depth); !removed) return removed;
      }
    }
    return {};
  }

  Result<void> remove(int folder, const std::string& name, const std::string& shown, int depth) {
    constexpr int depth_limit = 64;
    if (::unlinkat(folder, name.c_str(), 0) == 0 || errno == ENOENT) return {};
    if (errno != EISDIR && errno != EPERM) return fail_errno(errno, "remove " + shown);
    if (::unlinkat(folder, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return {};
    if (errno == EBUSY) return fail(Code::Unavailable, "remove " + shown + ": something is mounted there");
    if (errno != ENOTEMPTY && errno != EEXIST) return fail_errno(errno, "remove " + shown);
    if (depth >= depth_limit) {
      const std::string moved = ".deep-" + std::to_string(counter_++);
      if (::renameat(folder, name.c_str(), top_, moved.c_str()) == 0) return {};
      return fail_errno(errno, "move " + shown);
    }
    const Fd fd(open_at2(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS));
    if (!fd && errno == EXDEV) return fail(Code::Unavailable, "remove " + shown + ": something is mounted there");
    if (!fd && errno == ENOENT) return {};
    if (!fd) return fail_errno(errno, "open " + shown);
    if (auto cleared = clear(fd.get(), shown, depth + 1); !cleared) return cleared;
    if (::unlinkat(folder, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return {};
    return fail_errno(errno, "remove " + shown);
  }

 private:
  int top_;
  unsigned counter_ = 0;
};

}  // namespace

Result<std::string> read_file(const std::string& path, Bytes limit) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "open " + path);
  struct stat info{};
  std::string out;
  if (::fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
    if (info.st_size > limit.value) return fail(Code::Exhausted, path + " is larger than " + print(limit));
    out.reserve(static_cast<std::size_t>(info.st_size));
  }
  // The size is only a hint: files of /proc say 0, and a file may grow while it is read.
  char chunk[64 * 1024];
  while (true) {
    const ssize_t n = ::read(fd.get(), chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "read " + path);
    if (n == 0) return out;
    if (static_cast<std::int64_t>(out.size()) + n > limit.value) return fail(Code::Exhausted, path + " is larger than " + print(limit));
    out.append(chunk, static_cast<std::size_t>(n));
  }
}

Result<void> write_file_durably(const std::string& path, std::string_view bytes, mode_t mode) {
  return write_file(path, bytes, mode, Durability::Durable);
}
Result<void> write_file_atomically(const std::string& path, std::string_view bytes, mode_t mode) {
  return write_file(path, bytes, mode, Durability::Atomic);
}

Result<void> make_dirs(const std::string& path, mode_t mode) {
  if (path.empty()) return fail(Code::Invalid, "make a folder: empty path");
  for (std::size_t at = 0; at != std::string::npos;) {
    at = path.find('/', at + 1);
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), mode) == 0 || errno == EEXIST) continue;
    const int error = errno;
    struct stat info{};
    if (::stat(part.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) continue;  // a read-only file system says EROFS before EEXIST
    return fail_errno(error, "make folder " + part);
  }
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return fail_errno(errno, "make folder " + path);
  if (!S_ISDIR(info.st_mode)) return fail(Code::Exists, "make folder " + path + ": there is a file of that name");
  return {};
}

Result<void> remove_tree(const std::string& given) {
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::string name = path.substr(path.find_last_of('/') + 1);
  if (name.empty() || name == "." || name == ".." || name == "/") return fail(Code::Invalid, "remove \"" + given + "\": not the name of a folder");
  const std::string parent = folder_of(path);
  const Fd folder(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder && errno == ENOENT) return {};
  if (!folder) return fail_errno(errno, "open " + parent);
  const Fd top(open_at2(folder.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS));
  if (!top && errno == EXDEV) return fail(Code::Unavailable, "remove " + path + ": something is mounted there");
  // Not a folder (or not there): remove() says the rest.
  return TreeRemover(top.get()).remove(folder.get(), name, path, 0);
}

Result<std::vector<std::string>> list_dir(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), &::closedir);
  if (!dir) return fail_errno(errno, "open " + path);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) return fail_errno(errno, "read " + path);
  std::sort(names.begin(), names.end());
  return names;
}

bool exists(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0;
}

Result<Fd> open_beneath(const std::string& root, const std::string& path, int flags, mode_t mode) {
  const Fd folder(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return fail_errno(errno, "open " + root);
  const std::string shown = "open \"" + path + "\" in " + root;
  if (path.find('\0') != std::string::npos) return fail(Code::Invalid, shown + ": a null byte in the name");
  // openat2 refuses a mode without O_CREAT.
  const std::uint64_t create_mode = (flags & (O_CREAT | O_TMPFILE)) & O_CREAT ? mode : 0;
  Fd fd(open_at2(folder.get(), path.empty() ? "." : path.c_str(), static_cast<std::uint64_t>(flags), create_mode,
                 RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS));
  if (!fd && errno == EXDEV) return fail(Code::Forbidden, shown + ": it leads out of the folder");
  if (!fd) return fail_errno(errno, shown);
  return fd;
}

}  // namespace fairlead
