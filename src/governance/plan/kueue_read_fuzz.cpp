// SPDX-License-Identifier: Apache-2.0
// Kueue's objects as anybody may send them: reading gives values or an error with the field, and what was read can be decided on.
#include <cstdint>
#include <string_view>

#include "governance/plan/cycle.h"
#include "governance/plan/kueue_read.h"
#include "governance/plan/quota_schedule.h"

namespace {

using namespace fairlead;
using namespace fairlead::governance;

// One of each kind that could be read, together in a world; its one workload is looked at.
void decide(const kube::Json& object) {
  WorldSpec spec;
  if (auto queue = read_queue(object)) spec.queues.push_back(std::move(*queue));
  if (auto cohort = read_cohort(object)) spec.cohorts.push_back(std::move(*cohort));
  if (auto flavor = read_flavor(object)) spec.flavors.push_back(std::move(*flavor));
  if (auto workload = read_workload(object)) spec.workloads.push_back(std::move(*workload));
  if (auto local = read_local_queue(object)) {
    local->queue = local->name;
    spec.local_queues.push_back(std::move(*local));
  }
  if (spec.queues.empty() || spec.workloads.empty() || spec.local_queues.empty()) return;
  spec.workloads[0].local_queue = spec.local_queues[0].name;
  Engine engine{.world = {}, .spaces = {{spec.workloads[0].space, {}}}, .local_queues = {{spec.local_queues[0].key(), spec.local_queues[0]}}, .history = UsageHistory(), .second_pass = {}};
  engine.world = build_world(std::move(spec));
  engine.start();
  for (const Decision& decision : run_cycle(engine)) INVARIANT(decision.workload == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (auto schedule = read_quota_schedule({reinterpret_cast<const char*>(data), size})) {
    const Instant now = Instant{} + std::chrono::hours(24 * 365 * 56) + std::chrono::minutes(size * 97);
    if (const auto change = next_change(*schedule, now)) INVARIANT(window_at(*schedule, *change) != window_at(*schedule, now) && window_at(*schedule, *change - std::chrono::nanoseconds(1)) == window_at(*schedule, now));
  }
  auto parsed = kube::parse_json({reinterpret_cast<const char*>(data), size});
  if (!parsed) return 0;
  const kube::Json& document = *parsed;
  decide(document);
  for (const kube::Json& item : document.items()) decide(item);
  return 0;
}
