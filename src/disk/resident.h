// SPDX-License-Identifier: Apache-2.0
// What a process keeps in memory of its program and libraries.
#pragma once
#include <chrono>
#include <cstdint>

namespace fairlead::disk {

// Takes the pages of code and constants out of this process, whose beginning has touched far more of them than it will again. One that is touched again is mapped anew, from the page cache, or read from its file if it has left that meanwhile, and is locked
// then if its mapping is. What is locked already leaves since Linux 5.18 (MADV_DONTNEED_LOCKED).
// Of segments alone that are loaded without PF_W: nothing is ever written to these, relocations neither (those of DF_TEXTREL are passed by), and so no page of them is the process' own. By the loader's list (dl_iterate_phdr(3)), which holds off who loads or unloads meanwhile.
// Below a millisecond.
void give_back_code();

// Whether memory can be written out to nowhere (proc_swaps(5): /proc/swaps names nothing). False: it can, or that is not known. `swaps`: another file, for tests.
bool has_no_swap(const char* swaps = "/proc/swaps");

// When what has worked rests: once, `kRest` after the last that was done, or after its beginning.
class Rest {
 public:
  static constexpr std::chrono::seconds kRest{10};
  // `done`: how much there was so far, from 0. Called now and then.
  bool begins(std::int64_t done, std::chrono::nanoseconds now);

 private:
  std::int64_t seen_ = -1;
  std::chrono::nanoseconds since_{};
  bool rests_ = false;
};

}  // namespace fairlead::disk
