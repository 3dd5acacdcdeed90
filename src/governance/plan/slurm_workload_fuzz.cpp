// SPDX-License-Identifier: Apache-2.0
// What a head says of its jobs, as anybody may write it: reading gives jobs or an error, and what was read can be planned on.
#include <cstdint>
#include <string_view>

#include "governance/plan/slurm_workload.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  using namespace fairlead::governance;
  auto jobs = read_ledger_jobs({reinterpret_cast<const char*>(data), size});
  if (!jobs) return 0;
  const kube::Json cluster = kube::Json::object({{"metadata", kube::Json::object({{"name", "c"}, {"namespace", "s"}, {"uid", "u"}})}});
  api::SlurmQuota quota{.on = true, .lines = {{.account = "*", .space = "s", .queue = "q", .priority_class = ""}}, .problems = {}};
  for (const LedgerStep& step : plan_ledger({.cluster = cluster, .quota = quota, .gone = false, .jobs = *jobs, .asked = {}, .workloads = {}, .barred = {}, .priorities = {}, .now = Instant{}}).steps)
    INVARIANT(jobs->contains(step.job));
  return 0;
}
