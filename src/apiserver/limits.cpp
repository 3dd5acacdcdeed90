// SPDX-License-Identifier: Apache-2.0
#include "apiserver/limits.h"

#include <algorithm>
#include <cmath>

namespace fairlead::apiserver {
namespace {
constexpr std::size_t most_buckets = 10'000;
constexpr double node_factor = 4;
constexpr auto sweep_every = std::chrono::seconds(1);
using Seconds = std::chrono::duration<double>;
}  // namespace

std::optional<std::chrono::nanoseconds> TokenBucket::take(double per_second, double burst, std::chrono::nanoseconds now) {
  left_ = std::min(burst, left_ + Seconds(std::max(now - seen_, std::chrono::nanoseconds::zero())).count() * per_second);
  seen_ = std::max(seen_, now);
  if (left_ >= 1) {
    left_ -= 1;
    return std::nullopt;
  }
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Seconds((1 - left_) / per_second));
}

bool TokenBucket::full(double per_second, double burst, std::chrono::nanoseconds now) const { return left_ + Seconds(now - seen_).count() * per_second >= burst; }

Limits::Outcome Limits::enter(const User& user, std::chrono::nanoseconds now) {
  if (user.in(masters_group)) return {};
  const std::scoped_lock lock(mutex_);
  if (options_.per_second > 0) {
    const double factor = user.node().empty() ? 1 : node_factor;
    const double rate = options_.per_second * factor, burst = options_.burst * factor;
    if (buckets_.size() >= most_buckets && (!swept_ || now - *swept_ >= sweep_every)) {  // looking through all of them for each stranger would be the harm that is to be kept off
      swept_ = now;
      std::erase_if(buckets_, [&](const auto& entry) { return entry.second.full(options_.per_second, options_.burst, now); });
    }
    auto found = buckets_.find(user.name);
    // With more users at once than are kept, new ones are not counted: nobody is refused for another's haste.
    if (found == buckets_.end() && buckets_.size() < most_buckets) found = buckets_.emplace(user.name, TokenBucket(burst, now)).first;
    if (found != buckets_.end()) {
      if (const auto wait = found->second.take(rate, burst, now))
        return {nullptr, std::chrono::seconds(std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(Seconds(*wait).count()))))};
    }
  }
  if (options_.in_flight == 0) return {};
  if (under_way_ >= options_.in_flight) return {nullptr, std::chrono::seconds(1)};
  ++under_way_;
  return {Ticket(nullptr, [this](void*) {
            const std::scoped_lock inside(mutex_);
            --under_way_;
          }),
          std::nullopt};
}

std::size_t Limits::under_way() const {
  const std::scoped_lock lock(mutex_);
  return under_way_;
}

}  // namespace fairlead::apiserver
