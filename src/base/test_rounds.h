// SPDX-License-Identifier: Apache-2.0
// How many seeds or rounds a test with chance in it runs: a sample, the long matrix under `./test.sh --full` (FAIRLEAD_FULL), or a tenth of the sample where every memory access is
// watched (FAIRLEAD_SANITIZED, set by the builds with sanitizers; or as many as the test says): those look for faults of memory and threads, which the first seeds reach as well.
#pragma once
#include <cstdlib>

namespace fairlead {

template <class Count = int>
Count test_rounds(Count sample, Count full, Count watched = 0) {
  if (std::getenv("FAIRLEAD_FULL") != nullptr) return full;
  return std::getenv("FAIRLEAD_SANITIZED") == nullptr ? sample : watched > 0 ? watched : sample > 10 ? sample / 10 : 1;
}

// Of many places of one kind (each write before which a program may die): all of them, or each 23rd where memory is watched.
inline int test_stride() { return std::getenv("FAIRLEAD_FULL") == nullptr && std::getenv("FAIRLEAD_SANITIZED") != nullptr ? 23 : 1; }

}  // namespace fairlead
