// SPDX-License-Identifier: Apache-2.0
// Fewer pods rather than none: the largest set of counts, between full and least, that fits.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace fairlead::governance {

struct CountRange {
  std::int32_t full = 0, least = 0;
};

// Asks `fits(counts) -> std::optional<Answer>` O(log of all that can be cut) times. All pod sets shrink by the same fraction: full - floor(range * i / sum of ranges).
// Assumes that what fits with some counts fits with fewer. Empty: nothing does, or nothing can be cut.
template <class Fits>
auto largest_that_fits(std::span<const CountRange> ranges, Fits&& fits) -> decltype(fits(std::vector<std::int32_t>{})) {
  using Answer = decltype(fits(std::vector<std::int32_t>{}));
  std::int64_t total = 0;
  for (const CountRange& range : ranges) total += range.full - range.least;
  if (total == 0) return Answer{};
  Answer best{};
  std::int64_t best_at = -1, low = 0, high = total + 1;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    std::vector<std::int32_t> counts;
    for (const CountRange& range : ranges) counts.push_back(range.full - static_cast<std::int32_t>(static_cast<std::int64_t>(range.full - range.least) * middle / total));
    if (Answer answer = fits(counts)) {
      best = std::move(answer);
      best_at = middle;
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return best_at == low ? std::move(best) : Answer{};
}

}  // namespace fairlead::governance
