// SPDX-License-Identifier: Apache-2.0
#include "apiserver/quota_under_way.h"

#include <vector>

#include "base/result.h"

namespace fairlead::apiserver {

WritesUnderWay::Generation WritesUnderWay::begin() {
  const std::scoped_lock lock(mutex_);
  ++inside_.back();
  return oldest_ + inside_.size() - 1;
}

void WritesUnderWay::end(Generation of) {
  std::vector<std::function<void()>> due;
  {
    const std::scoped_lock lock(mutex_);
    INVARIANT(of >= oldest_ && of - oldest_ < inside_.size() && inside_[of - oldest_] > 0);
    --inside_[of - oldest_];
    while (inside_.size() > 1 && inside_.front() == 0) inside_.pop_front(), ++oldest_;
    while (!waiting_.empty() && waiting_.front().first < oldest_) {
      due.push_back(std::move(waiting_.front().second));
      waiting_.pop_front();
    }
  }
  for (const auto& then : due) then();
}

void WritesUnderWay::after_those_begun(std::function<void()> then) {
  {
    const std::scoped_lock lock(mutex_);
    const bool idle = inside_.size() == 1 && inside_.back() == 0;
    if (!idle) {
      waiting_.emplace_back(oldest_ + inside_.size() - 1, std::move(then));
      inside_.push_back(0);
      return;
    }
  }
  then();
}

}  // namespace fairlead::apiserver
