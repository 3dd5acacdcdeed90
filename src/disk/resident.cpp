// SPDX-License-Identifier: Apache-2.0
#include "disk/resident.h"

#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/files.h"

namespace fairlead::disk {
namespace {

constexpr int kDontNeedLocked = 24;  // MADV_DONTNEED_LOCKED, which glibc 2.36 does not name

bool has_relocations_in_code(const dl_phdr_info& object, const ElfW(Phdr)& dynamic) {
  for (const auto* one = reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + dynamic.p_vaddr); one->d_tag != DT_NULL; ++one)
    if (one->d_tag == DT_TEXTREL || (one->d_tag == DT_FLAGS && (one->d_un.d_val & DF_TEXTREL) != 0)) return true;
  return false;
}

int give_back_of(dl_phdr_info* object, std::size_t, void*) {
  const std::span headers(object->dlpi_phdr, object->dlpi_phnum);
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  if (std::ranges::any_of(headers, [&](const ElfW(Phdr)& one) { return one.p_type == PT_DYNAMIC && has_relocations_in_code(*object, one); })) return 0;
  for (const ElfW(Phdr)& one : headers) {
    if (one.p_type != PT_LOAD || (one.p_flags & PF_W) != 0) continue;
    const std::uintptr_t begin = (object->dlpi_addr + one.p_vaddr + page - 1) / page * page, end = (object->dlpi_addr + one.p_vaddr + one.p_memsz) / page * page;  // whole pages of it
    if (begin >= end || begin == ::getauxval(AT_SYSINFO_EHDR)) continue;  // vdso(7) is of no file
    void* const at = reinterpret_cast<void*>(begin);
    if (::madvise(at, end - begin, kDontNeedLocked) != 0) (void)::madvise(at, end - begin, MADV_DONTNEED);
  }
  return 0;
}

}  // namespace

void give_back_code() { (void)::dl_iterate_phdr(give_back_of, nullptr); }

bool has_no_swap(const char* swaps) {
  const auto text = read_file(swaps);
  // A line of titles, and one for each that there is.
  return text && text->starts_with("Filename") && text->find('\n') == text->size() - 1;
}

bool Rest::begins(std::int64_t done, std::chrono::nanoseconds now) {
  if (done != seen_) {
    seen_ = done, since_ = now, rests_ = false;
    return false;
  }
  if (rests_ || now - since_ < kRest) return false;
  return rests_ = true;
}

}  // namespace fairlead::disk
