// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "governance/control/owner_controller.h"
#include "governance/plan/gang_workload.h"

namespace fairlead::governance {

// Objects of one of these kinds as Workloads (plan/gang_workload.h).
class GangController final : public OwnerController {
 public:
  GangController(kube::KubeApi& api, const Clock& clock, const GangKind& kind) : OwnerController(api, clock, kind.resource), kind_(kind) {}
  std::string name() const override { return "task-governance-" + kind_.resource.plural; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;

 private:
  std::vector<kube::ObjectKey> note_workload(const kube::Change& change) const;
  Result<std::unique_ptr<OwnerCase>> observe(const kube::ObjectKey& key) override;
  Result<bool> has_pods(const kube::Json& workload) override;

  const GangKind& kind_;
  mutable std::map<kube::ObjectKey, std::set<kube::ObjectKey>> owned_;  // Workloads by owner; under mutex_
};

// Kinds come and go with their definitions: a few seconds after a definition is there its objects are queued, and no more once it is gone. Each kind has a runner of its own, with caches of its own.
class GangKindsController final : public kube::Controller {
 public:
  GangKindsController(kube::KubeApi& api, const Clock& clock, std::uint64_t seed) : api_(api), clock_(clock), seed_(seed) {}
  std::string name() const override { return "task-governance-kinds"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;  // that of the controllers of all kinds, too
  void start(const kube::Caches&) override {}
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;
  std::vector<std::string> running() const;  // plurals; for tests

 private:
  kube::KubeApi& api_;
  const Clock& clock_;
  const std::uint64_t seed_;
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<kube::Runner>> runners_;  // by plural
};

}  // namespace fairlead::governance
