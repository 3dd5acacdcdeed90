// SPDX-License-Identifier: Apache-2.0
// Block devices of the kernel that a process serves (ublk): /dev/ublkbN, and /dev/ublkcN where requests come to its process (disk/ublk_disk.h). Sources: Linux' Documentation/block/ublk.rst, include/uapi/linux/ublk_cmd.h.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace fairlead::blocks {

// Devices of the machine know no names: whoever makes one leaves 64 bits with it, which are those of what it shows, and a link with the whole name: /dev/fairlead-ublk/NAME -> ../ublkbN. A link counts only with the bits.
std::uint64_t ublk_mark(const std::string& name);  // of SHA-256
Result<void> link_ublk(const std::string& name, int number);  // NAME has no slash
void unlink_ublk(const std::string& name);
Result<std::vector<std::string>> ublk_links();                // names
// Whether files of devices made from now on are seen here: /dev is the kernel's, not a container's.
bool sees_new_devices();

struct UblkDevice {
  int number = -1;
  std::uint64_t mark = 0;
  bool served = false;  // by a process that is there
  std::string name() const { return "ublkb" + std::to_string(number); }  // in /sys/block, once it was started
  std::string path() const { return "/dev/ublkb" + std::to_string(number); }
  friend bool operator==(const UblkDevice&, const UblkDevice&) = default;
};

// What the kernel is asked for, at /dev/ublk-control. Thread-safe. Needs root.
// Devices are made so that they stay when their process dies, and give errors (UBLK_F_USER_RECOVERY_FAIL_IO), as a loop device does whose file is gone: mounted or not, they are there until they are taken away.
class Ublk {
 public:
  // Unsupported: says what is missing. Needed are devices that grow (Linux 6.16), requests that are each served by a thread of its own (6.16), and devices that are not taken from who has them open (later; 7.2 has that).
  static Result<std::unique_ptr<Ublk>> open();

  Result<std::vector<UblkDevice>> devices();                                             // of all makers, by number
  Result<bool> is(int number, std::uint64_t mark);                                       // numbers are given out again
  // How the data of requests moves. By the server's memory: the kernel copies it. As pages: the kernel hands them to the server's ring, which gives them to I/O of its own, unseen and not copied (UBLK_F_AUTO_BUF_REG, Linux 6.16).
  enum class Data { Copied, Pages };
  bool hands_pages() const { return hands_pages_; }
  Result<UblkDevice> make(unsigned depth, std::uint32_t most_bytes, std::uint64_t mark, Data data);  // not started
  // Waits until each of its requests is waited for. Of pages it takes those that are aligned to 512 bytes, as loop devices on direct I/O do.
  Result<void> start(int number, std::int64_t size, bool read_only, std::uint32_t most_bytes, Data data);
  Result<void> grow(int number, std::int64_t size);
  Result<void> stop(int number);    // Conflict: somebody has it open. What is stopped is Ok
  Result<void> remove(int number);  // of one that is stopped; gone is Ok. It is over once its process has closed its /dev/ublkcN

  Ublk(const Ublk&) = delete;
  Ublk& operator=(const Ublk&) = delete;

 private:
  explicit Ublk(Fd control) : control_(std::move(control)) {}
  int command(std::uint32_t what, int number, void* at, std::size_t size, std::uint64_t word);  // 0 or more, or -errno
  const Fd control_;
  bool hands_pages_ = false;
};

}  // namespace fairlead::blocks
