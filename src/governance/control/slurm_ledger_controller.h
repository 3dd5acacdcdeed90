// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "governance/control/queue_kinds.h"
#include "governance/plan/slurm_workload.h"

namespace fairlead::governance {

// Jobs of SlurmClusters with spec.extensions.quota as Workloads: asks the head what there is, plans (plan/slurm_workload.h), takes the steps. All state is in Slurm and in the objects. A key is a SlurmCluster.
class SlurmLedgerController final : public kube::Controller {
 public:
  SlurmLedgerController(kube::KubeApi& api, const Clock& clock) : api_(api), clock_(clock) {}
  std::string name() const override { return "task-governance-slurm"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  std::vector<kube::ObjectKey> note_workload(const kube::Change& change) const;
  std::vector<kube::ObjectKey> governed() const;
  std::vector<kube::Json> workloads_of(const kube::ObjectKey& cluster) const;
  std::optional<kube::ObjectKey> ready_head(const kube::Json& cluster) const;
  Result<kube::Next> let_cluster_go(const std::vector<kube::Json>& workloads, const kube::ObjectKey& key, const std::string& uid);
  void read_queues(LedgerInput& in) const;
  // Unavailable: nobody knows whether it was done. Conflict: not, for what it was decided on is no more.
  Result<void> apply(const LedgerStep& step, const std::optional<kube::ObjectKey>& head);
  Result<kube::Next> take(const LedgerPlan& plan, const kube::ObjectKey& key, const std::optional<kube::ObjectKey>& head);
  void tell_cluster(const kube::Json& cluster, const std::string& reason, const std::string& message);

  kube::KubeApi& api_;
  const Clock& clock_;
  const kube::Caches* caches_ = nullptr;
  mutable std::mutex mutex_;
  mutable std::map<kube::ObjectKey, std::set<kube::ObjectKey>> owned_;       // Workloads by cluster
  std::set<kube::ObjectKey> settled_;                                        // clusters without quotas in which nothing is held by us
  std::map<kube::ObjectKey, Instant> quiet_;                                 // since when that is so
  std::map<std::pair<kube::ObjectKey, std::string>, std::string> told_;      // of a cluster, by reason: the last words
};

}  // namespace fairlead::governance
