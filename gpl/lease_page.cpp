// SPDX-License-Identifier: GPL-3.0-or-later
#include "lease_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <new>

#include "base/fd.h"

namespace fairlead::companion {

quorum::Time boot_time() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

Result<LeasePage> LeasePage::create(const std::string& path) {
  // A new file each time: a daemon of an earlier companion keeps its own, which nobody extends.
  ::unlink(path.c_str());
  const Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd || ::ftruncate(fd.get(), sizeof(Page)) != 0) return fail_errno(errno, "make " + path);
  void* at = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return fail_errno(errno, "map " + path);
  return LeasePage(new (at) Page{0x31455341454c4c46, 0});  // "FLLEASE1"
}

LeasePage::~LeasePage() {
  if (page_) ::munmap(page_, sizeof(Page));
}

void LeasePage::set(quorum::Time until) { page_->until.store(std::max<std::int64_t>(0, until.count()), std::memory_order_release); }

}  // namespace fairlead::companion
