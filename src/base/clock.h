// SPDX-License-Identifier: Apache-2.0
// Time is an argument. Only apps/ names the real clock.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fairlead {

using Instant = std::chrono::sys_time<std::chrono::nanoseconds>;  // stored, compared between machines
using namespace std::chrono_literals;

struct Clock {
  virtual ~Clock() = default;
  virtual Instant now() const = 0;                         // may jump: for records and deadlines in objects
  virtual std::chrono::nanoseconds monotonic() const = 0;  // never goes back: for time-outs and durations
};

// The machine's clocks. For main() and for edges that must talk of real time (TLS certificates, sockets).
class SystemClock final : public Clock {
 public:
  Instant now() const override;
  std::chrono::nanoseconds monotonic() const override;
};

// A clock that a test moves.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(Instant start) : now_(start) {}
  Instant now() const override { return now_; }
  std::chrono::nanoseconds monotonic() const override { return elapsed_; }
  void advance(std::chrono::nanoseconds by) { now_ += by; elapsed_ += by; }

 private:
  Instant now_;
  std::chrono::nanoseconds elapsed_{};
};

// RFC 3339 in UTC as Kubernetes writes metav1.Time (seconds) and metav1.MicroTime.
std::string print_time(Instant time);
std::string print_micro_time(Instant time);
Result<Instant> parse_time(std::string_view text);
// "42s", "3m12s", "5h", "12d": as kubectl prints ages (k8s.io/apimachinery duration.HumanDuration).
std::string print_age(std::chrono::nanoseconds age);

}  // namespace fairlead
