// SPDX-License-Identifier: Apache-2.0
#include "disk/bucket.h"

#include <algorithm>

namespace fairlead::disk {

void Bucket::set(double per_second, double burst, Time now) {
  // From no limit on, it begins as an idle bucket does.
  base_ = rate_ > 0 ? served(now) : last_ + burst;
  at_ = now;
  rate_ = per_second;
  burst_ = burst;
}

double Bucket::take(double units, Time now) {
  if (rate_ <= 0) return last_;
  return last_ = std::max(last_, served(now) - burst_) + units;
}

Bucket::Time Bucket::due(double ticket, Time now) const {
  if (rate_ <= 0 || served(now) >= ticket) return now;
  return at_ + std::chrono::duration_cast<Time>(std::chrono::duration<double>((ticket - base_) / rate_)) + Time(1);
}

}  // namespace fairlead::disk
