// SPDX-License-Identifier: Apache-2.0
// Limits of a volume's I/O for the threads that carry it. Thread-safe.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/clock.h"
#include "blocks/disk_control.h"
#include "disk/bucket.h"

namespace fairlead::disk {

class Limiter {
 public:
  explicit Limiter(const Clock& clock) : clock_(clock) {}
  // Holds at once, also for those that wait.
  void set(const blocks::DiskLimits& limits);
  blocks::DiskLimits limits() const;
  bool is_limited() const { return limited_; }
  // Waits for its turn. One operation for each 256 KiB, as EBS counts those of SSD volumes (Amazon EBS User Guide, "I/O characteristics and monitoring").
  void admit(std::int64_t bytes);
  std::chrono::nanoseconds waited() const { return std::chrono::nanoseconds(waited_.load(std::memory_order_relaxed)); }  // by all, in sum

 private:
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  blocks::DiskLimits limits_;
  std::atomic<bool> limited_ = false;
  std::atomic<std::int64_t> waited_ = 0;
  Bucket operations_, bytes_;
};

}  // namespace fairlead::disk
