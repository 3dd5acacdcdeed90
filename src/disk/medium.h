// SPDX-License-Identifier: Apache-2.0
// What a volume lies on, byte by byte: a file, or an image in a Ceph pool (src/ceph). Who has it open has it alone.
#pragma once
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace fairlead::disk {

inline constexpr std::int64_t kSector = 4096;
inline constexpr std::size_t kCopied = 64 << 10;  // bytes that an asynchronous medium copies when they are written, and never holds

// Who is told how an I/O ended that was begun: once, by any thread, perhaps before the call that began it is back.
class Completion {
 public:
  // error: 0 or an errno. data: what was read, in order, where it lies until this is back.
  virtual void complete(int error, std::span<const iovec> data) = 0;

 protected:
  ~Completion() = default;
};

// Thread-safe. Calls of I/O give 0 or an errno, and do all of it or fail; what they are given is whole sectors, aligned, within the size.
class Medium {
 public:
  virtual ~Medium() = default;
  virtual std::string name() const = 0;                // for messages
  virtual Result<std::int64_t> size() = 0;             // bytes, as it is now
  virtual std::int64_t seek(std::int64_t at, int whence) = 0;                    // SEEK_DATA, SEEK_HOLE; below 0: -errno
  virtual int zero(std::int64_t at, std::int64_t size, bool give_back) = 0;      // reads as zeros afterwards; give_back: its room, too
  virtual int sync() = 0;
  // Of a medium it is one of two: either I/O is done when its call is back ...
  virtual int read(char*, std::size_t, std::int64_t) { return EOPNOTSUPP; }
  virtual int write(const char*, std::size_t, std::int64_t) { return EOPNOTSUPP; }
  // The descriptor of a file of the same bytes, read and written past the page cache by memory that need be aligned to 512 bytes only, so that the kernel can do it with pages that this process never sees; -1: there is none.
  virtual int direct_file() const { return -1; }
  // ... or it is begun, as over a network, and ends later. What is written stays as it is until its end was told, and, if it is more than kCopied, is_held says no. What has ended is in the next sync.
  virtual bool is_async() const { return false; }
  virtual void read_async(std::size_t, std::int64_t, Completion& completion) { completion.complete(EOPNOTSUPP, {}); }
  virtual void write_async(const char*, std::size_t, std::int64_t, Completion& completion) { completion.complete(EOPNOTSUPP, {}); }
  // Whether somebody may look still at what was written from there, although its end was told: a message on its way that nobody waits for any more.
  virtual bool is_held(const char*) const { return false; }
};

}  // namespace fairlead::disk
