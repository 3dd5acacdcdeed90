// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <mutex>
#include <set>
#include <vector>

#include "base/clock.h"
#include "governance/control/queue_kinds.h"
#include "governance/plan/admission_checks.h"

namespace fairlead::governance {

// What follows for a Workload from the clock and its admission checks, without the engine: its checks (plan/admission_checks.h); it has run for as long as it may (plan/run_limit.h); its pods are not ready in time, or its time out of line is over (plan/pods_ready.h). Keys are those of Workloads.
// Every write is on the version that was read.
class WorkloadClockController : public kube::Controller {
 public:
  WorkloadClockController(kube::KubeApi& api, const Clock& clock) : api_(api), clock_(clock) {}
  std::string name() const override { return "workload-clock"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  ChecksPlan plan_checks_of(const kube::Json& workload, Instant now) const;

  kube::KubeApi& api_;
  const Clock& clock_;
  const kube::Caches* caches_ = nullptr;
  mutable std::mutex mutex_;
  mutable std::set<kube::ObjectKey> waits_ready_;  // Workloads that say that their pods are not ready: other rules may mean them
};

}  // namespace fairlead::governance
