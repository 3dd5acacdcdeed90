// SPDX-License-Identifier: Apache-2.0
#include "disk/image.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

namespace fairlead::disk {
namespace {
bool whole(const void* buffer, std::size_t size, std::int64_t at) { return (reinterpret_cast<std::uintptr_t>(buffer) | size | static_cast<std::uint64_t>(at)) % Image::kSector == 0; }
}  // namespace

Result<std::unique_ptr<Image>> Image::open(std::unique_ptr<Medium> medium, bool read_only, std::int64_t begins, std::unique_ptr<Cipher> cipher) {
  const auto size = medium->size();
  if (!size) return std::unexpected(size.error());
  if (*size % kSector != 0 || begins < 0 || begins % kSector != 0 || *size < begins) return fail(Code::Invalid, fmt::format("{} is not of whole blocks of {}", medium->name(), kSector));
  return std::unique_ptr<Image>(new Image(std::move(medium), *size - begins, read_only, begins, std::move(cipher)));
}

Result<std::int64_t> Image::look_again() {
  const auto size = medium_->size();
  if (!size) return std::unexpected(size.error());
  if (*size - begins_ < size_) return fail(Code::Internal, medium_->name() + " has become smaller");
  size_ = (*size - begins_) / kSector * kSector;
  return size_.load();
}

// Shut out by a Ceph pool: nothing is ever written by this one again.
int Image::failing(int error) {
  if (error == ESHUTDOWN) failed_ = true;
  return error == ESHUTDOWN ? EIO : error;
}

int Image::read(char* into, std::size_t size, std::int64_t at) {
  return whole(into, size, at) ? finish_read(medium_->read(into, size, begins_ + at), into, size, at) : EINVAL;
}

void Image::read_async(std::size_t size, std::int64_t at, Completion& completion) { whole(nullptr, size, at) ? medium_->read_async(size, begins_ + at, completion) : completion.complete(EINVAL, {}); }

int Image::finish_read(int error, char* data, std::size_t size, std::int64_t at) {
  if (error != 0) return failing(error);
  return !cipher_ || cipher_->open(data, size, at) ? 0 : EIO;
}

// What is to be written, where it lies then; or why it is not.
int Image::prepare(const char*& from, std::size_t size, std::int64_t at, char* room) const {
  if (read_only_) return EROFS;
  if (!whole(from, size, at)) return EINVAL;
  if (cipher_) {
    if (!cipher_->close(from, room, size, at)) return EIO;
    from = room;
  }
  return 0;
}

int Image::write(const char* from, std::size_t size, std::int64_t at, char* room) {
  const int error = prepare(from, size, at, room);
  return error != 0 ? error : finish_write(medium_->write(from, size, begins_ + at));
}

void Image::write_async(const char* from, std::size_t size, std::int64_t at, char* room, Completion& completion) {
  const int error = prepare(from, size, at, room);
  error != 0 ? completion.complete(error, {}) : medium_->write_async(from, size, begins_ + at, completion);
}

std::int64_t Image::seek(std::int64_t at, int whence) {
  if (whence != SEEK_DATA && whence != SEEK_HOLE) return -EINVAL;
  const std::int64_t found = medium_->seek(begins_ + at, whence);
  return found < 0 ? found : found - begins_;
}

int Image::zero(std::int64_t at, std::int64_t size, bool give_back) {
  if (read_only_) return EROFS;
  if (!whole(nullptr, static_cast<std::size_t>(size), at)) return EINVAL;
  return failing(medium_->zero(begins_ + at, size, give_back));
}

int Image::sync() {
  if (failed_) return EIO;
  const int error = medium_->sync();
  if (error == 0) return 0;
  failed_ = true;
  return failing(error);
}

}  // namespace fairlead::disk
