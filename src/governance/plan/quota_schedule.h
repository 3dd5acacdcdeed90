// SPDX-License-Identifier: Apache-2.0
// Quotas that depend on the time of day and the day of the week: annotation fairlead.dev/quota-schedule of ClusterQueues and Cohorts. Pure. docs/design/044-quota-schedule.md.
#pragma once
#include <bitset>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "governance/plan/model.h"

namespace fairlead::governance {

inline constexpr const char* kQuotaScheduleNote = "fairlead.dev/quota-schedule";
inline constexpr std::size_t most_quota_windows = 32, most_quota_schedule_bytes = 64 << 10;

struct QuotaWindow {
  struct Quota {
    std::string flavor, resource;
    std::optional<Amount> nominal, borrow, lend;  // none: as in the spec
    friend bool operator==(const Quota&, const Quota&) = default;
  };
  std::string name;
  std::bitset<7> days;                    // on which it begins; 0: Sunday
  std::chrono::minutes from{0}, lasts{0};  // from midnight; one day at most
  std::chrono::minutes utc_offset{0};     // of those days: local time is UTC plus this
  std::vector<Quota> quotas;
  friend bool operator==(const QuotaWindow&, const QuotaWindow&) = default;
};
using QuotaSchedule = std::vector<QuotaWindow>;

// Invalid: which window and field, what stands there, what is expected.
Result<QuotaSchedule> read_quota_schedule(std::string_view text);
// The window in force: the first that holds `now`; null: none.
const QuotaWindow* window_at(const QuotaSchedule& schedule, Instant now);
// When window_at() next gives another answer than now; none: never. O(windows^2).
std::optional<Instant> next_change(const QuotaSchedule& schedule, Instant now);
// The groups with the quotas of the window. Invalid: it names what they do not have.
Result<std::vector<ResourceGroup>> in_window(std::vector<ResourceGroup> groups, const QuotaWindow& window);

}  // namespace fairlead::governance
