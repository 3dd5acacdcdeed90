// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "governance/control/owner_controller.h"
#include "governance/plan/job_workload.h"

namespace fairlead::governance {

// Jobs with the label kueue.x-k8s.io/queue-name as Workloads (plan/job_workload.h).
class JobController final : public OwnerController {
 public:
  JobController(kube::KubeApi& api, const Clock& clock) : OwnerController(api, clock, kBatchJobs) {}
  std::string name() const override { return "task-governance-jobs"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  std::vector<kube::ObjectKey> note_workload(const kube::Change& change) const;
  Result<std::unique_ptr<OwnerCase>> observe(const kube::ObjectKey& key) override;
  Result<bool> has_pods(const kube::Json& workload) override;
  Result<kube::Next> let_orphan_go(const kube::ObjectKey& key);

  mutable std::map<kube::ObjectKey, std::set<kube::ObjectKey>> owned_;  // Workloads by Job; under mutex_
};

}  // namespace fairlead::governance
