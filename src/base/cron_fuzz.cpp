// SPDX-License-Identifier: Apache-2.0
#include "base/cron.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const auto cron = read_cron(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!cron) return 0;
  INVARIANT(cron->minutes.any() && cron->hours.any() && cron->days.any() && cron->months.any() && cron->weekdays.any() && !cron->days[0] && !cron->months[0]);
  const Instant from{std::chrono::seconds(1'800'000'000)};
  const auto next = next_after(*cron, from);
  if (!next) return 0;
  INVARIANT(*next > from && next->time_since_epoch() % std::chrono::minutes(1) == std::chrono::nanoseconds(0));
  // Between the two there is none.
  INVARIANT(next_after(*cron, *next - std::chrono::nanoseconds(1)) == next);
  return 0;
}
