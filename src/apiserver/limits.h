// SPDX-License-Identifier: Apache-2.0
// How much one client may ask, and how much may be under way at once. Time is an argument. Thread-safe.
#pragma once
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "apiserver/auth_types.h"

namespace fairlead::apiserver {

struct LimitOptions {
  // Requests of one user; nodes may ask four times as much, system:masters as they like; 0: no limit. Generous: it is against a program gone wild, not to share a busy server.
  double per_second = 20'000;
  double burst = 40'000;
  std::size_t in_flight = 1'000;  // requests of all users but system:masters that wait for an answer; watches, logs and exec do not count once they run; 0: no limit
};

// A bucket that fills with `per_second` up to `burst`; each request takes one. Pure.
class TokenBucket {
 public:
  TokenBucket(double burst, std::chrono::nanoseconds now) : left_(burst), seen_(now) {}
  // Empty: taken. Else how long until there is one.
  std::optional<std::chrono::nanoseconds> take(double per_second, double burst, std::chrono::nanoseconds now);
  bool full(double per_second, double burst, std::chrono::nanoseconds now) const;

 private:
  double left_;
  std::chrono::nanoseconds seen_;
};

class Limits {
 public:
  explicit Limits(LimitOptions options) : options_(options) {}
  // Leaves when the last copy goes. `retry_after` is set (and the ticket null) when the client must wait; a null ticket without it: nothing is counted.
  using Ticket = std::shared_ptr<void>;
  struct Outcome {
    Ticket ticket;
    std::optional<std::chrono::seconds> retry_after;
  };
  Outcome enter(const User& user, std::chrono::nanoseconds now);
  std::size_t under_way() const;

 private:
  const LimitOptions options_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, TokenBucket> buckets_;  // bounded: full ones are forgotten
  std::optional<std::chrono::nanoseconds> swept_;         // when they were last looked for
  std::size_t under_way_ = 0;
};

}  // namespace fairlead::apiserver
