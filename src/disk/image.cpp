// SPDX-License-Identifier: Apache-2.0
#include "disk/image.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace fairlead::disk {

Result<std::unique_ptr<Image>> Image::open(const std::string& path, bool read_only, std::int64_t begins, std::unique_ptr<Cipher> cipher) {
  Fd fd(::open(path.c_str(), (read_only ? O_RDONLY : O_RDWR) | O_DIRECT | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return fail_errno(errno, "open " + path);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? fail(Code::Conflict, path + " is served by another process") : fail_errno(errno, "lock " + path);
  struct stat about {};
  if (::fstat(fd.get(), &about) != 0) return fail_errno(errno, "look at " + path);
  if (!S_ISREG(about.st_mode) || about.st_size % kSector != 0 || begins < 0 || begins % kSector != 0 || about.st_size < begins) return fail(Code::Invalid, fmt::format("{} is no file of whole blocks of {}", path, kSector));
  return std::unique_ptr<Image>(new Image(std::move(fd), path, about.st_size - begins, read_only, begins, std::move(cipher)));
}

Result<std::int64_t> Image::look_again() {
  struct stat about {};
  if (::fstat(fd_.get(), &about) != 0) return fail_errno(errno, "look at " + path_);
  if (about.st_size - begins_ < size_) return fail(Code::Internal, path_ + " has become smaller");
  size_ = (about.st_size - begins_) / kSector * kSector;
  return size_.load();
}

namespace {
bool whole(const void* buffer, std::size_t size, std::int64_t at) { return (reinterpret_cast<std::uintptr_t>(buffer) | size | static_cast<std::uint64_t>(at)) % Image::kSector == 0; }
}  // namespace

int Image::read(char* into, std::size_t size, std::int64_t at) {
  if (!whole(into, size, at)) return EINVAL;
  char* const all = into;
  const std::size_t whole_size = size;
  const std::int64_t first = at;
  at += begins_;
  while (size > 0) {
    const ssize_t got = ::pread(fd_.get(), into, size, at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return EIO;  // beyond the end of the file: it was asked for within the size
    into += got, at += got, size -= static_cast<std::size_t>(got);
  }
  return !cipher_ || cipher_->open(all, whole_size, first) ? 0 : EIO;
}

int Image::write(const char* from, std::size_t size, std::int64_t at, char* room) {
  if (read_only_) return EROFS;
  if (!whole(from, size, at)) return EINVAL;
  if (cipher_) {
    if (!cipher_->close(from, room, size, at)) return EIO;
    from = room;
  }
  at += begins_;
  while (size > 0) {
    const ssize_t put = ::pwrite(fd_.get(), from, size, at);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    if (put == 0) return EIO;
    from += put, at += put, size -= static_cast<std::size_t>(put);
  }
  return 0;
}

std::int64_t Image::seek(std::int64_t at, int whence) {
  if (whence != SEEK_DATA && whence != SEEK_HOLE) return -EINVAL;
  const off_t found = ::lseek(fd_.get(), begins_ + at, whence);
  return found < 0 ? -errno : found - begins_;
}

int Image::zero(std::int64_t at, std::int64_t size, bool give_back) {
  if (read_only_) return EROFS;
  if (!whole(nullptr, static_cast<std::size_t>(size), at)) return EINVAL;
  return ::fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE | (give_back ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE), begins_ + at, size) == 0 ? 0 : errno;
}

int Image::sync() {
  if (failed_) return EIO;
  if (::fdatasync(fd_.get()) == 0) return 0;
  const int error = errno;
  failed_ = true;
  return error;
}

}  // namespace fairlead::disk
