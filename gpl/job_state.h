// SPDX-License-Identifier: GPL-3.0-or-later
// The head of slurmctld's file job_state: which id the next job gets. slurmctld takes it from there at its start, and never gives one below it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fairlead::companion {

struct JobStateHead {
  unsigned protocol = 0;      // SLURM_PROTOCOL_VERSION
  std::int64_t saved_at = 0;  // seconds
  std::uint32_t next_id = 0;
};
// Invalid: not as Slurm 22.05 to 23.11 begin it.
Result<JobStateHead> read_job_state(std::string_view bytes);
// The same file with another next id.
Result<std::string> with_next_id(std::string bytes, std::uint32_t next_id);

// Of a folder of state: job_state or, where slurmctld is exchanging it or died in that, job_state.old. NotFound: none of both is there.
Result<std::string> read_job_state_file(const std::string& folder);

inline constexpr std::uint32_t kHighestId = 0x03ff'0000;  // MaxJobId at its default; ids of federated jobs use the bits above

}  // namespace fairlead::companion
