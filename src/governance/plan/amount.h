// SPDX-License-Identifier: Apache-2.0
// Amounts of a resource: thousandths for cpu, whole units otherwise. They saturate; the largest value means unlimited and absorbs.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>

namespace fairlead::governance {

using Amount = std::int64_t;
inline constexpr Amount unlimited = std::numeric_limits<Amount>::max();
inline constexpr Amount lowest_amount = std::numeric_limits<Amount>::min();

constexpr Amount plus(Amount a, Amount b) {
  if (a == unlimited || b == unlimited) return unlimited;
  Amount sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a > 0 ? unlimited : lowest_amount;
}

// unlimited - unlimited = 0; x - unlimited is the lowest amount.
constexpr Amount minus(Amount a, Amount b) {
  if (a == unlimited) return b == unlimited ? 0 : unlimited;
  if (b == unlimited) return lowest_amount;
  Amount difference = 0;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return a > 0 ? unlimited : lowest_amount;
}

constexpr Amount times(Amount a, Amount b) {
  Amount product = 0;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  return (a > 0) == (b > 0) ? unlimited : lowest_amount;
}

}  // namespace fairlead::governance
