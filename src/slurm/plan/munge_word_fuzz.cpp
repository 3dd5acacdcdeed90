// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/munge_word.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const auto word = slurm::read_munge_word(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!word) return 0;
  INVARIANT(!word->status.empty() && word->status.size() < 40);
  INVARIANT(slurm::munge_words(*word).size() < 200);
  return 0;
}
