// SPDX-License-Identifier: Apache-2.0
// What is said to a volume's engine (src/disk), and what it answers: one line each, over a unix socket that root alone reaches.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fairlead::blocks {

struct DiskLimits {
  std::int64_t iops = 0, bytes_per_second = 0;  // 0: none
  friend bool operator==(const DiskLimits&, const DiskLimits&) = default;
};

struct DiskStatus {
  std::int64_t pid = 0, size = 0;               // bytes: as it shows it
  DiskLimits limits;
  std::int64_t reads = 0, writes = 0, read_bytes = 0, written_bytes = 0, waited_ns = 0;  // since it began; waited: for the limits, in sum
  std::int64_t ublk = -1;                       // it shows the volume as /dev/ublkbN itself; -1: as a file
  bool failed = false;                          // syncing failed, or its device was taken away: it takes no more, and has to be attached anew
  friend bool operator==(const DiskStatus&, const DiskStatus&) = default;
};

struct DiskRequest {
  enum class Do { Status, Limit, Grow, Stop };  // Grow: look at the file's size; Stop: refused while it is open
  Do what = Do::Status;
  DiskLimits limits;
  friend bool operator==(const DiskRequest&, const DiskRequest&) = default;
};
inline constexpr std::size_t kDiskLine = 512;   // bytes at most, with its end

// Invalid: not one of these.
Result<DiskRequest> read_disk_request(std::string_view line);
std::string print(const DiskRequest& request);
// An answer: a status, or an error of the engine's ("CODE words").
Result<DiskStatus> read_disk_answer(std::string_view line);
std::string print(const DiskStatus& status);
std::string print_disk_error(const Error& error);

// Asks the engine at the socket. NotFound: there is none (no socket, or nobody listens). Unavailable: it does not answer in time, and whether it serves is not known. Else its own errors.
Result<DiskStatus> ask_disk(const std::string& socket, const DiskRequest& request, std::chrono::milliseconds limit = std::chrono::seconds(3));

}  // namespace fairlead::blocks
