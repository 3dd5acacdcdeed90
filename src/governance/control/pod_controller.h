// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "governance/control/owner_controller.h"
#include "governance/plan/pod_workload.h"

namespace fairlead::governance {

// Pods with the label kueue.x-k8s.io/queue-name behind the gate kueue.x-k8s.io/admission, alone or in groups, as Workloads (plan/pod_workload.h).
class PodController final : public OwnerController {
 public:
  PodController(kube::KubeApi& api, const Clock& clock) : OwnerController(api, clock, kube::resources::pods) {}
  std::string name() const override { return "task-governance-pods"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;

 private:
  std::vector<kube::ObjectKey> note_pod(const kube::Change& change) const;
  std::vector<kube::ObjectKey> note_workload(const kube::Change& change) const;
  Result<std::unique_ptr<OwnerCase>> observe(const kube::ObjectKey& key) override;
  Result<std::unique_ptr<OwnerCase>> observe_group(const kube::ObjectKey& key, const std::string& group);
  Result<bool> has_pods(const kube::Json& workload) override;
  Result<std::string> queued_owner(const kube::Json& pod) const;

  mutable std::map<kube::ObjectKey, std::set<kube::ObjectKey>> owned_;    // Workloads by the pod that controls them; under mutex_
  mutable std::map<kube::ObjectKey, std::set<kube::ObjectKey>> members_;  // pods by group; under mutex_
};

}  // namespace fairlead::governance
