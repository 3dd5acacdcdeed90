// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "governance/control/queue_kinds.h"
#include "governance/plan/pod_places.h"

namespace fairlead::governance {

// Gives each pod of a Workload with places its own (plan/pod_places.h), and lifts the gate behind which it waited for it. All state is in the objects.
class PlaceController final : public kube::Controller {
 public:
  static constexpr const char* kName = "pod-places";
  PlaceController(kube::KubeApi& api, const Clock& clock) : api_(api), clock_(clock) {}
  std::string name() const override { return kName; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& workload) override;

 private:
  std::vector<kube::ObjectKey> note_pod(const kube::Change& change) const;
  kube::Json newest(const kube::ObjectKey& pod);  // as the cache has it, or as it was after our own last write; under mutex_

  kube::KubeApi& api_;
  const Clock& clock_;
  const kube::Caches* caches_ = nullptr;
  mutable std::mutex mutex_;
  mutable std::map<kube::ObjectKey, std::set<kube::ObjectKey>> pods_of_;  // by Workload
  mutable std::map<kube::ObjectKey, kube::Json> written_;                 // newer than the cache when last looked at
};

}  // namespace fairlead::governance
