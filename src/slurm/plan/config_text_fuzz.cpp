// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/config_text.h"

#include "base/result.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  for (const auto& entry : slurm::read_config_text(std::string_view(reinterpret_cast<const char*>(data), size)).entries) {
    const auto again = slurm::read_config_text(slurm::print_config(entry));
    INVARIANT(again.problems.empty() && again.entries.size() == 1);
    INVARIANT(again.entries[0].key == entry.key && again.entries[0].value == entry.value && again.entries[0].more == entry.more);
  }
  return 0;
}
