// SPDX-License-Identifier: Apache-2.0
// Binds waiting pods to nodes, makes room for the more important ones, and tells those that must wait why. All decisions are plan_placement's (plan/place.h).
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "base/clock.h"
#include "kube/controller.h"
#include "kube/kube_api.h"
#include "placement/control/aside.h"
#include "placement/control/event_writer.h"
#include "placement/plan/place.h"

namespace fairlead::placement {

struct PlacementOptions {
  int writers = 1;      // writes under way at once, beside bindings; each waits until it is durable
  bool claims = false;  // pods wait for their claims; needs the kinds PersistentVolumeClaim and StorageClass
  bool pools = false;   // of volumes: pods with claims that are not bound go where there is room for them; needs the kind VolumePool
  bool events_aside = false;  // that pods were placed is told on a thread of its own: the next pods do not wait for it
};

// Plans over all waiting pods at once, so there is one key and one thread inside reconcile at a time.
class PlacementController final : public kube::Controller {
 public:
  PlacementController(kube::KubeApi& api, const Clock& clock, PlacementOptions options = {});
  ~PlacementController() override;

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
  struct Views;
  void refresh();
  Result<void> settle_bindings();
  Plan plan() const;
  // Calls `act` for 0..count-1 on as many threads as there may be writers; the first error.
  std::optional<Error> each(std::size_t count, const std::function<Result<void>(std::size_t)>& act) const;
  std::optional<Error> bind_all(const std::vector<Place>& places);  // the first error
  Result<void> note_binding(const Place& place, Result<void> done);
  void tell_placed(const std::vector<Place>& places);
  Result<void> make_room(const Preempt& preempt);
  Result<void> choose(const ChooseNode& choice);
  Result<void> tell(const Wait& wait, const std::optional<std::string>& nominate);

  kube::KubeApi& api_;
  const Clock& clock_;
  const PlacementOptions options_;
  EventWriter events_;
  const kube::Reader* pods_ = nullptr;
  const std::unique_ptr<Views> views_;
  std::map<std::string, Bound> bound_;     // by pod uid
  std::unique_ptr<Aside<Place>> aside_;    // of pods that were placed; null: all is done at once. Last: its work uses what stands above, never the caches
};

}  // namespace fairlead::placement
