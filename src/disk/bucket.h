// SPDX-License-Identifier: Apache-2.0
// A token bucket by cumulative tickets: what may have been served rises with time, and a request is served when that reaches its ticket. Pure.
//
// Who waits holds a ticket and no promise of a time, so a rate that changes moves all that wait, and the order stays. Requests are admitted one after the other in the order of their tickets.
#pragma once
#include <chrono>

namespace fairlead::disk {

class Bucket {
 public:
  using Time = std::chrono::nanoseconds;  // monotonic

  // per_second 0: no limit. burst: units that an idle bucket serves at once. What was served before is not counted again.
  void set(double per_second, double burst, Time now);
  double take(double units, Time now);  // the ticket
  Time due(double ticket, Time now) const;  // when it is served, if nothing changes; `now` or earlier: it is
  double rate() const { return rate_; }

 private:
  double served(Time now) const { return base_ + rate_ * std::chrono::duration<double>(now - at_).count(); }

  double rate_ = 0, burst_ = 0;
  double base_ = 0;   // served at `at_`
  Time at_{};
  double last_ = 0;   // ticket
};

}  // namespace fairlead::disk
