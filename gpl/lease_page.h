// SPDX-License-Identifier: GPL-3.0-or-later
// The lease of this head as its daemon sees it: a file that both map (gpl/durable/durable.cpp reads it), so that the daemon ends in time although its companion is stopped.
#pragma once
#include <atomic>
#include <string>
#include <utility>

#include "base/quorum.h"
#include "base/result.h"

namespace fairlead::companion {

// By CLOCK_BOOTTIME: goes on while the machine sleeps.
quorum::Time boot_time();

class LeasePage {
 public:
  static Result<LeasePage> create(const std::string& path);  // no lease
  LeasePage(LeasePage&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}
  LeasePage& operator=(LeasePage&&) = delete;
  ~LeasePage();
  void set(quorum::Time until);  // Time::min(): none

 private:
  struct Page {
    std::uint64_t magic;
    std::atomic<std::int64_t> until;
  };
  explicit LeasePage(Page* page) : page_(page) {}
  Page* page_;
};

}  // namespace fairlead::companion
