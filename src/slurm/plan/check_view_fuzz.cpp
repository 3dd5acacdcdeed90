// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/check_view.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const auto view = slurm::read_check_view(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!view) return 0;
  for (const auto& [name, node] : view->nodes) INVARIANT(!name.empty() && !node.state.empty());
  for (const auto& job : view->jobs) INVARIANT(job.id.find_first_not_of("0123456789") == job.id.npos && job.run.find_first_not_of("0123456789") == job.run.npos && job.exit_code >= 0);
  return 0;
}
