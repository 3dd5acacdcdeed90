// SPDX-License-Identifier: Apache-2.0
// A volume as its engine reads and writes it: whole blocks of 4 KiB, encrypted or not, on a medium that is a file or an image in a Ceph pool.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "disk/cipher.h"
#include "disk/medium.h"

namespace fairlead::disk {

// Thread-safe. The I/O calls give 0 or an errno; buffers, offsets and sizes are multiples of kSector, else EINVAL.
class Image {
 public:
  static constexpr std::int64_t kSector = disk::kSector;
  // `begins`: the byte of the medium at which the data begins; cipher: none: it lies there as it is. Invalid: the medium is not of whole blocks, or ends before that.
  static Result<std::unique_ptr<Image>> open(std::unique_ptr<Medium> medium, bool read_only, std::int64_t begins = 0, std::unique_ptr<Cipher> cipher = nullptr);

  std::int64_t size() const { return size_; }
  bool read_only() const { return read_only_; }
  bool is_encrypted() const { return cipher_ != nullptr; }
  bool failed() const { return failed_; }
  Result<std::int64_t> look_again();  // at the size, which others raise
  int read(char* into, std::size_t size, std::int64_t at);
  // room: of as many bytes as are written, aligned like them, or where they are themselves; used where they are not written as they are.
  int write(const char* from, std::size_t size, std::int64_t at, char* room);
  // The same, where the medium is asynchronous; `completion` gives what it is told to finish_read or finish_write, which say what it comes to.
  bool is_async() const { return medium_->is_async(); }
  void read_async(std::size_t size, std::int64_t at, Completion& completion);
  int finish_read(int error, char* data, std::size_t size, std::int64_t at);  // data: all of it in one piece; not looked at where it is not encrypted
  void write_async(const char* from, std::size_t size, std::int64_t at, char* room, Completion& completion);
  int finish_write(int error) { return failing(error); }
  // The same by the kernel alone, where it lies in a file as it is: the file's descriptor, or -1, and the byte of it at which the data begins. finish_write says what a write comes to.
  int direct_file() const { return cipher_ ? -1 : medium_->direct_file(); }
  std::int64_t begins() const { return begins_; }
  bool is_held(const char* room) const { return medium_->is_held(room); }
  std::int64_t seek(std::int64_t at, int whence);  // SEEK_DATA, SEEK_HOLE; below 0: -errno
  int zero(std::int64_t at, std::int64_t size, bool give_back);  // reads as zeros afterwards; give_back: its room, too
  // What was written before is durable. Once that has failed it fails for ever: the kernel may have dropped what it could not write, and says so once (fsync(2), "fsyncgate").
  int sync();

 private:
  Image(std::unique_ptr<Medium> medium, std::int64_t size, bool read_only, std::int64_t begins, std::unique_ptr<Cipher> cipher) : medium_(std::move(medium)), read_only_(read_only), begins_(begins), cipher_(std::move(cipher)), size_(size) {}
  int failing(int error);
  int prepare(const char*& from, std::size_t size, std::int64_t at, char* room) const;
  const std::unique_ptr<Medium> medium_;
  const bool read_only_;
  const std::int64_t begins_;
  const std::unique_ptr<Cipher> cipher_;
  std::atomic<std::int64_t> size_;
  std::atomic<bool> failed_ = false;
};

}  // namespace fairlead::disk
