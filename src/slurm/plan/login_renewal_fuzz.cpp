// SPDX-License-Identifier: Apache-2.0
// What a login container says of the people in it, where people are root.
#include "slurm/plan/login_renewal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (const auto read = fairlead::slurm::read_sessions({reinterpret_cast<const char*>(data), size}))
    for (const auto& name : read->people) INVARIANT(!name.empty() && name.size() <= 64);
  return 0;
}
