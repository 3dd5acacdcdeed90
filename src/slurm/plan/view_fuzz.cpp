// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/view.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const auto view = slurm::read_slurm_view(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!view) return 0;
  for (const auto& [name, node] : view->nodes) {
    INVARIANT(!name.empty() && !node.state.empty() && node.cpus >= 0);
    INVARIANT(!slurm::is_empty(*view, node) || view->jobs_on(name).empty());
  }
  for (const auto& job : view->jobs) INVARIANT(job.id[0] >= '0' && job.id[0] <= '9');
  return 0;
}
