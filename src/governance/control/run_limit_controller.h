// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "base/clock.h"
#include "governance/control/queue_kinds.h"

namespace fairlead::governance {

// Workloads that have run for as long as they may are deactivated (plan/run_limit.h). Keys are those of Workloads. Every write is on the version that was read.
class RunLimitController : public kube::Controller {
 public:
  RunLimitController(kube::KubeApi& api, const Clock& clock) : api_(api), clock_(clock) {}
  std::string name() const override { return "workload-run-limit"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  kube::KubeApi& api_;
  const Clock& clock_;
  const kube::Caches* caches_ = nullptr;
};

}  // namespace fairlead::governance
