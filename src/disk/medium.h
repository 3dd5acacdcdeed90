// SPDX-License-Identifier: Apache-2.0
// What a volume lies on, byte by byte: a file, or an image in a Ceph pool (src/ceph). Who has it open has it alone.
#pragma once
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace fairlead::disk {

inline constexpr std::int64_t kSector = 4096;

// Who is told how an I/O ended that was begun: once, with 0 or an errno, by any thread, perhaps before the call that began it is back.
class Completion {
 public:
  virtual void complete(int error) = 0;

 protected:
  ~Completion() = default;
};

// Thread-safe. Calls of I/O give 0 or an errno, and do all of it or fail; what they are given is whole sectors, aligned, within the size.
class Medium {
 public:
  virtual ~Medium() = default;
  virtual std::string name() const = 0;                // for messages
  virtual bool is_remote() const { return false; }     // over a network, whose client needs memory, too
  virtual Result<std::int64_t> size() = 0;             // bytes, as it is now
  virtual int read(char* into, std::size_t size, std::int64_t at) = 0;
  virtual int write(const char* from, std::size_t size, std::int64_t at) = 0;
  virtual std::int64_t seek(std::int64_t at, int whence) = 0;                    // SEEK_DATA, SEEK_HOLE; below 0: -errno
  virtual int zero(std::int64_t at, std::int64_t size, bool give_back) = 0;      // reads as zeros afterwards; give_back: its room, too
  virtual int sync() = 0;
  // Whether I/O can be begun here, to end later; else only what is above is called. The bytes it was given stay where they are until then. What has ended is in the next sync.
  virtual bool is_async() const { return false; }
  virtual void read_async(char*, std::size_t, std::int64_t, Completion& completion) { completion.complete(EOPNOTSUPP); }
  virtual void write_async(const char*, std::size_t, std::int64_t, Completion& completion) { completion.complete(EOPNOTSUPP); }
};

}  // namespace fairlead::disk
