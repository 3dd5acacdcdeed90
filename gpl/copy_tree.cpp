// SPDX-License-Identifier: GPL-3.0-or-later
#include "copy_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>

#include "base/fd.h"

namespace fairlead::companion {
namespace {

constexpr int kDeepest = 512;  // of folders in one another; each holds three descriptors

class Copier {
 public:
  Copier(int top, const CopyOptions& options) : top_(top), options_(options) {}

  Result<void> folder(int from, int to, const std::string& path, int depth) {
    if (depth > kDeepest) return fail(Code::Exhausted, path + ": too many folders in one another");
    Fd copy(::openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!copy) return fail_errno(errno, "open " + path);
    DIR* raw = ::fdopendir(copy.get());
    if (!raw) return fail_errno(errno, "read " + path);
    copy.release();
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(raw, &::closedir);
    while (true) {
      errno = 0;
      const dirent* entry = ::readdir(dir.get());
      if (!entry && errno != 0) return fail_errno(errno, "read " + path);
      if (!entry) break;
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (options_.on_entry) options_.on_entry();
      if (auto done = this->entry(from, to, std::string(name), path + "/" + entry->d_name, depth); !done) return done;
      ++copied_.entries;
    }
    struct stat info{};
    if (::fstat(from, &info) != 0) return fail_errno(errno, "stat " + path);
    return dress(from, to, info, path);
  }

  Copied take() { return std::move(copied_); }

  Result<void> single(int from, int to, const std::string& name, const std::string& path) {
    struct stat info{};
    if (::fstatat(from, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno(errno, "stat " + path);
    if (S_ISREG(info.st_mode)) return file(from, to, name, path);
    if (S_ISLNK(info.st_mode)) return link(from, to, name, info, path);
    if (!S_ISDIR(info.st_mode)) return S_ISSOCK(info.st_mode) ? Result<void>{} : special(to, name, info, path);
    if (::mkdirat(to, name.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno(errno, "make folder " + path);
    const Fd inner(::openat(from, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    const Fd made(::openat(to, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!inner || !made) return fail_errno(errno, "open " + path);
    return dress(inner.get(), made.get(), info, path);
  }

 private:
  Result<void> entry(int from, int to, const std::string& name, const std::string& path, int depth) {
    struct stat info{};
    if (::fstatat(from, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) return {};  // a live source: gone since it was listed
      return fail_errno(errno, "stat " + path);
    }
    if (options_.leave_out.contains(path)) return place_holder(to, name, info, path);
    if (S_ISDIR(info.st_mode)) {
      if (::mkdirat(to, name.c_str(), 0700) != 0) return fail_errno(errno, "make folder " + path);
      const Fd inner(::openat(from, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
      const Fd made(::openat(to, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
      if (!inner || !made) return fail_errno(errno, "open " + path);
      return folder(inner.get(), made.get(), path, depth + 1);
    }
    if (info.st_nlink > 1) {
      const auto [first, is_first] = linked_.try_emplace({info.st_dev, info.st_ino}, path.substr(1));
      if (!is_first) {
        if (::linkat(top_, first->second.c_str(), to, name.c_str(), 0) == 0) return {};
        return fail_errno(errno, "link " + path);
      }
    }
    if (S_ISREG(info.st_mode)) return file(from, to, name, path);
    if (S_ISLNK(info.st_mode)) return link(from, to, name, info, path);
    if (S_ISSOCK(info.st_mode)) return {};
    return special(to, name, info, path);
  }

  Result<void> place_holder(int to, const std::string& name, const struct stat& info, const std::string& path) {
    if (S_ISDIR(info.st_mode)) {
      // Its mode is that of what is mounted there now; one that everybody may write (/tmp) is so in the copy, too.
      if (::mkdirat(to, name.c_str(), 0755) != 0) return fail_errno(errno, "make folder " + path);
      const mode_t mode = (info.st_mode & 0002) != 0 ? 01777 : 0755;
      return ::fchmodat(to, name.c_str(), mode, 0) == 0 ? Result<void>{} : Result<void>(fail_errno(errno, "chmod " + path));
    }
    const Fd made(::openat(to, name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0644));
    return made ? Result<void>{} : Result<void>(fail_errno(errno, "make " + path));
  }

  Result<void> file(int from, int to, const std::string& name, const std::string& path) {
    const Fd in(::openat(from, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!in) return fail_errno(errno, "open " + path);
    struct stat info{};
    if (::fstat(in.get(), &info) != 0) return fail_errno(errno, "stat " + path);
    const Fd out(::openat(to, name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!out) return fail_errno(errno, "make " + path);
    if (::ioctl(out.get(), FICLONE, in.get()) != 0)
      if (auto done = bytes(in.get(), out.get(), info.st_size, path); !done) return done;
    copied_.bytes += static_cast<std::uint64_t>(info.st_size);
    return dress(in.get(), out.get(), info, path);
  }

  // From data to data: what lies between are holes.
  Result<void> bytes(int in, int out, off_t size, const std::string& path) {
    if (::ftruncate(out, size) != 0) return fail_errno(errno, "make room for " + path);
    for (off_t at = 0; at < size;) {
      off_t data = ::lseek(in, at, SEEK_DATA);
      if (data < 0 && errno == ENXIO) return {};  // nothing but a hole
      off_t end = data < 0 ? size : ::lseek(in, data, SEEK_HOLE);
      if (data < 0) data = at;  // a file system that cannot tell: all is data
      if (end < 0) end = size;
      for (at = data; at < end;) {
        off_t from = at, to = at;
        ssize_t n = kernel_copies_ ? ::copy_file_range(in, &from, out, &to, static_cast<std::size_t>(end - at), 0) : -1;
        if (n < 0 && (!kernel_copies_ || errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)) {
          kernel_copies_ = false;
          n = by_hand(in, out, at, end);
        }
        if (n < 0) return fail_errno(errno, "copy " + path);
        if (n == 0) return {};  // it has become shorter
        at += n;
      }
    }
    return {};
  }

  ssize_t by_hand(int in, int out, off_t at, off_t end) {
    const auto wanted = std::min<off_t>(end - at, static_cast<off_t>(buffer_.size()));
    const ssize_t n = ::pread(in, buffer_.data(), static_cast<std::size_t>(wanted), at);
    for (ssize_t done = 0; done < n;) {
      const ssize_t written = ::pwrite(out, buffer_.data() + done, static_cast<std::size_t>(n - done), at + done);
      if (written < 0) return -1;
      done += written;
    }
    return n;
  }

  Result<void> link(int from, int to, const std::string& name, const struct stat& info, const std::string& path) {
    std::string target(4096, '\0');
    const ssize_t size = ::readlinkat(from, name.c_str(), target.data(), target.size());
    if (size < 0) return fail_errno(errno, "read link " + path);
    target.resize(static_cast<std::size_t>(size));
    if (::symlinkat(target.c_str(), to, name.c_str()) != 0) return fail_errno(errno, "make link " + path);
    return own(to, name, info, path);
  }

  Result<void> special(int to, const std::string& name, const struct stat& info, const std::string& path) {
    if (::mknodat(to, name.c_str(), info.st_mode, info.st_rdev) != 0) {
      if (errno != EPERM && errno != EOPNOTSUPP) return fail_errno(errno, "make " + path);
      missed(path, "device", errno);
      return {};
    }
    if (::fchmodat(to, name.c_str(), info.st_mode & 07777, 0) != 0) return fail_errno(errno, "chmod " + path);
    return own(to, name, info, path);
  }

  static Result<void> own(int to, const std::string& name, const struct stat& info, const std::string& path) {
    if (::fchownat(to, name.c_str(), info.st_uid, info.st_gid, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno(errno, "chown " + path);
    const timespec times[2] = {info.st_atim, info.st_mtim};
    if (::utimensat(to, name.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno(errno, "set the times of " + path);
    return {};
  }

  // Owner before mode: a change of owner clears set-user-id. Attributes after the owner: it clears file capabilities, too. Times last.
  Result<void> dress(int in, int out, const struct stat& info, const std::string& path) {
    if (::fchown(out, info.st_uid, info.st_gid) != 0) return fail_errno(errno, "chown " + path);
    if (auto done = attributes(in, out, path); !done) return done;
    if (::fchmod(out, info.st_mode & 07777) != 0) return fail_errno(errno, "chmod " + path);
    const timespec times[2] = {info.st_atim, info.st_mtim};
    if (::futimens(out, times) != 0) return fail_errno(errno, "set the times of " + path);
    return {};
  }

  Result<void> attributes(int in, int out, const std::string& path) {
    char names[16 * 1024];
    const ssize_t size = ::flistxattr(in, names, sizeof names);
    if (size < 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) return {};
    if (size < 0) return fail_errno(errno, "list attributes of " + path);
    std::string value;
    for (const char* name = names; name < names + size; name += std::strlen(name) + 1) {
      // What the container's file system and the machine's policy keep there for themselves.
      if (std::strncmp(name, "trusted.", 8) == 0 || std::strcmp(name, "security.selinux") == 0) continue;
      value.resize(64 * 1024);
      const ssize_t length = ::fgetxattr(in, name, value.data(), value.size());
      if (length < 0) return fail_errno(errno, fmt::format("read {} of {}", name, path));
      if (::fsetxattr(out, name, value.data(), static_cast<std::size_t>(length), 0) == 0) continue;
      if (errno != EOPNOTSUPP && errno != EPERM) return fail_errno(errno, fmt::format("set {} of {}", name, path));
      missed(path, name, errno);
    }
    return {};
  }

  void missed(const std::string& path, const char* what, int error) {
    if (++copied_.without <= 5) copied_.examples.push_back(fmt::format("{}: {}: {}", path, what, std::strerror(error)));
  }

  const int top_;
  const CopyOptions& options_;
  Copied copied_;
  std::map<std::pair<dev_t, ino_t>, std::string> linked_;  // the first name of a file with several
  bool kernel_copies_ = true;
  std::vector<char> buffer_ = std::vector<char>(256 * 1024);
};

}  // namespace

Result<Copied> copy_tree(int from, int to, const CopyOptions& options) {
  Copier copier(to, options);
  if (auto done = copier.folder(from, to, "", 0); !done) return std::unexpected(std::move(done.error()));
  return copier.take();
}

Result<Copied> copy_entry(int from, int to, const std::string& name, const std::string& path) {
  const CopyOptions options;
  Copier copier(to, options);
  if (auto done = copier.single(from, to, name, path); !done) return std::unexpected(std::move(done.error()));
  return copier.take();
}

}  // namespace fairlead::companion
