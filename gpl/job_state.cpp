// SPDX-License-Identifier: GPL-3.0-or-later
#include "job_state.h"

#include <chrono>
#include <thread>

#include "base/files.h"

namespace fairlead::companion {
namespace {

constexpr std::string_view kForm("PROTOCOL_VERSION\0", 17);
constexpr std::size_t kProtocolAt = 4 + kForm.size(), kTimeAt = kProtocolAt + 2, kIdAt = kTimeAt + 8, kEnd = kIdAt + 4;

std::uint64_t number(std::string_view bytes, std::size_t at, std::size_t size) {
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < size; ++i) out = out << 8 | static_cast<unsigned char>(bytes[at + i]);
  return out;
}

}  // namespace

Result<JobStateHead> read_job_state(std::string_view bytes) {
  if (bytes.size() < kEnd || number(bytes, 0, 4) != kForm.size() || bytes.substr(4, kForm.size()) != kForm) return fail(Code::Invalid, "this is no job_state as Slurm 22.05 to 23.11 write it");
  JobStateHead out{.protocol = static_cast<unsigned>(number(bytes, kProtocolAt, 2)), .saved_at = static_cast<std::int64_t>(number(bytes, kTimeAt, 8)), .next_id = static_cast<std::uint32_t>(number(bytes, kIdAt, 4))};
  if (out.next_id > kHighestId) return fail(Code::Invalid, "job_state names a next id that Slurm does not give: " + std::to_string(out.next_id));
  return out;
}

Result<std::string> with_next_id(std::string bytes, std::uint32_t next_id) {
  auto head = read_job_state(bytes);
  if (!head) return std::unexpected(std::move(head.error()));
  if (next_id > kHighestId) return fail(Code::Exhausted, "the ids of jobs are used up: the next one would be " + std::to_string(next_id));
  for (std::size_t i = 0; i < 4; ++i) bytes[kIdAt + i] = static_cast<char>(next_id >> (8 * (3 - i)));
  return bytes;
}

Result<std::string> read_job_state_file(const std::string& folder) {
  // While slurmctld exchanges the file there is none of that name for a moment.
  for (int i = 0;; ++i) {
    auto bytes = read_file(folder + "/job_state", 4096_MiB);
    if (bytes || bytes.error().code != Code::NotFound) return bytes;
    if (i == 20) return read_file(folder + "/job_state.old", 4096_MiB);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace fairlead::companion
