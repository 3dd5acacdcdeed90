// SPDX-License-Identifier: Apache-2.0
#include "disk/limiter.h"

#include <algorithm>

namespace fairlead::disk {
namespace {

constexpr std::int64_t kOneOperation = 256 << 10;
// What an idle volume may do at once: so little that a second's measurement is true to 2 %, and no less than one operation.
constexpr double kBurstSeconds = 0.02;

}  // namespace

void Limiter::set(const blocks::DiskLimits& limits) {
  const std::lock_guard lock(mutex_);
  const auto now = clock_.monotonic();
  operations_.set(static_cast<double>(limits.iops), std::max(1.0, static_cast<double>(limits.iops) * kBurstSeconds), now);
  bytes_.set(static_cast<double>(limits.bytes_per_second), std::max(static_cast<double>(kOneOperation), static_cast<double>(limits.bytes_per_second) * kBurstSeconds), now);
  limits_ = limits;
  limited_ = limits.iops > 0 || limits.bytes_per_second > 0;
  changed_.notify_all();
}

blocks::DiskLimits Limiter::limits() const {
  const std::lock_guard lock(mutex_);
  return limits_;
}

void Limiter::admit(std::int64_t bytes) {
  if (!limited_) return;
  std::unique_lock lock(mutex_);
  auto now = clock_.monotonic();
  const auto began = now;
  const double operation = operations_.take(static_cast<double>(std::max<std::int64_t>(1, (bytes + kOneOperation - 1) / kOneOperation)), now), byte = bytes_.take(static_cast<double>(bytes), now);
  while (true) {
    const auto due = std::max(operations_.due(operation, now), bytes_.due(byte, now));
    if (due <= now) break;
    changed_.wait_for(lock, due - now);
    now = clock_.monotonic();
  }
  if (now > began) waited_.fetch_add((now - began).count(), std::memory_order_relaxed);
}

}  // namespace fairlead::disk
