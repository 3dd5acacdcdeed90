// SPDX-License-Identifier: Apache-2.0
#include "disk/file_medium.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"

namespace fairlead::disk {
namespace {

class FileMedium final : public Medium {
 public:
  FileMedium(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {
    struct statx about {};
    takes_any_sector_ = ::statx(fd_.get(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &about) == 0 && (about.stx_mask & STATX_DIOALIGN) != 0 && about.stx_dio_mem_align > 0 && about.stx_dio_mem_align <= 512 &&
                        about.stx_dio_offset_align > 0 && about.stx_dio_offset_align <= kSector;
  }
  std::string name() const override { return path_; }
  Result<std::int64_t> size() override {
    struct stat about {};
    if (::fstat(fd_.get(), &about) != 0) return fail_errno(errno, "look at " + path_);
    return about.st_size;
  }
  int read(char* into, std::size_t size, std::int64_t at) override {
    while (size > 0) {
      const ssize_t got = ::pread(fd_.get(), into, size, at);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return errno;
      if (got == 0) return EIO;  // beyond the end of the file: it was asked for within the size
      into += got, at += got, size -= static_cast<std::size_t>(got);
    }
    return 0;
  }
  int write(const char* from, std::size_t size, std::int64_t at) override {
    while (size > 0) {
      const ssize_t put = ::pwrite(fd_.get(), from, size, at);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return errno;
      if (put == 0) return EIO;
      from += put, at += put, size -= static_cast<std::size_t>(put);
    }
    return 0;
  }
  int direct_file() const override { return takes_any_sector_ ? fd_.get() : -1; }
  std::int64_t seek(std::int64_t at, int whence) override {
    const off_t found = ::lseek(fd_.get(), at, whence);
    return found < 0 ? -errno : found;
  }
  int zero(std::int64_t at, std::int64_t size, bool give_back) override { return ::fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE | (give_back ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE), at, size) == 0 ? 0 : errno; }
  int sync() override { return ::fdatasync(fd_.get()) == 0 ? 0 : errno; }

 private:
  const Fd fd_;
  const std::string path_;
  bool takes_any_sector_ = false;  // of memory; not known: no
};

}  // namespace

Result<std::unique_ptr<Medium>> open_file_medium(const std::string& path, bool read_only) {
  Fd fd(::open(path.c_str(), (read_only ? O_RDONLY : O_RDWR) | O_DIRECT | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return fail_errno(errno, "open " + path);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? fail(Code::Conflict, path + " is served by another process") : fail_errno(errno, "lock " + path);
  struct stat about {};
  if (::fstat(fd.get(), &about) != 0) return fail_errno(errno, "look at " + path);
  if (!S_ISREG(about.st_mode)) return fail(Code::Invalid, path + " is no file");
  return std::make_unique<FileMedium>(std::move(fd), path);
}

}  // namespace fairlead::disk
