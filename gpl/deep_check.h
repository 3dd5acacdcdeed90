// SPDX-License-Identifier: GPL-3.0-or-later
// A deep health check of one machine, in a pod on it: processors, memory and disk under load with results that are compared, and the devices that it is to have. A fault is a wrong result, an error of the kernel or a device that is missing; slowness is told and is none.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "base/result.h"

namespace fairlead::companion {

struct DeepCheckOptions {
  std::chrono::seconds limit{60};      // of all parts together: a third of it each
  int gpus = 0;                        // that the machine is to have; counted by nvidia-smi where the container has it
  std::string folder = "/tmp";         // on the disk that is tried
  std::uint64_t most_disk = 256 << 20; // bytes written there
  std::uint64_t most_memory = 0;       // bytes; 0: half of what is free
  std::string last_word = "/dev/termination-log";
  int flip_at = -1;                    // for tests: this result of the processors' part is made wrong; -1: none
};
Result<DeepCheckOptions> deep_check_options(const std::map<std::string, std::string>& environment);  // Invalid: which one is wrong

inline constexpr int kFaultFound = 10;  // a status that nothing else ends with: not 1, as programs complain that could not begin
// 0: all well; kFaultFound: a fault, whose words are the last word and the last line of stdout; 125: the check itself could not be made (no room), which says nothing of the machine.
int run_deep_check(const DeepCheckOptions& options);

// The first test of hardware that failed, of what `dcgmi diag` prints as a table: "PCIe: Fail - GPU 3"; empty: none. Those of software and permissions (Deployment) do not count.
std::string dcgm_fault(std::string_view table);

// How many GPUs `nvidia-smi -L` lists.
int count_gpus(std::string_view listing);

}  // namespace fairlead::companion
