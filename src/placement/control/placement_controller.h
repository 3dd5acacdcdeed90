// SPDX-License-Identifier: Apache-2.0
// Binds waiting pods to nodes, and tells those that must wait why. All decisions are plan_placement's (plan/place.h).
#pragma once
#include <map>
#include <string>

#include "base/clock.h"
#include "kube/controller.h"
#include "kube/kube_api.h"
#include "placement/control/event_writer.h"
#include "placement/plan/place.h"

namespace fairlead::placement {

// Plans over all waiting pods at once, so there is one key and one thread inside reconcile at a time.
class PlacementController final : public kube::Controller {
 public:
  PlacementController(kube::KubeApi& api, const Clock& clock);

  std::string name() const override { return "placement"; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches& caches) override;
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  // A binding of ours that the cache does not show yet. The plan counts it, or the room would be given away twice.
  struct Bound {
    kube::ObjectKey key;
    std::string node;
    bool sure = true;  // false: the answer to our write was lost; asked for before the next plan
  };
  Result<void> settle_bindings();
  Snapshot snapshot() const;
  Result<void> bind(const Place& place);
  Result<void> tell(const Wait& wait);

  kube::KubeApi& api_;
  const Clock& clock_;
  EventWriter events_;
  const kube::Reader* pods_ = nullptr;
  const kube::Reader* nodes_ = nullptr;
  std::map<std::string, Bound> bound_;  // by pod uid
};

}  // namespace fairlead::placement
