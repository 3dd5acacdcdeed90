// SPDX-License-Identifier: Apache-2.0
// Marks nodes that stopped renewing their Lease, clears the mark when they are back, and moves pods off nodes whose taints they do not tolerate.
#pragma once
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "kube/controller.h"
#include "kube/kube_api.h"
#include "placement/control/event_writer.h"
#include "placement/plan/evict.h"

namespace fairlead::placement {

struct NodeLifecycleOptions {
  std::chrono::seconds silence{40};  // without a renewed Lease until a node counts as unreachable
  EvictionOptions eviction;
  std::chrono::seconds mourning{40};  // from when a node's object is missed until its pods are removed, as Kubernetes' pod garbage collector
};

// One key per node. A Lease counts as renewed when its renewTime was seen to change: ages are measured by our own monotonic clock, so a node's wrong clock does no
// harm, and after our own restart every node has the whole time again.
// Pods are deleted gracefully: a silent node may still run them. Only when the node's object is gone, which is somebody's word that the node is, and has been for a while, are
// its pods removed by force.
class NodeLifecycleController final : public kube::Controller {
 public:
  NodeLifecycleController(kube::KubeApi& api, const Clock& clock, NodeLifecycleOptions options = {});

  std::string name() const override { return "node-lifecycle"; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches& caches) override;
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  // What was last seen of a node's Lease.
  struct Sight {
    std::string uid;      // of the node
    std::string renewed;  // renewTime as text
    std::chrono::nanoseconds at{};
    std::optional<kube::Condition> ready_before;  // what Ready said before it fell silent
  };
  std::chrono::nanoseconds look(const kube::Json& node);  // how long it has been silent
  Result<kube::Json> set_ready(kube::Json node, bool silent);
  Result<kube::Json> set_taints(kube::Json node);
  Result<std::optional<Instant>> evict(const kube::Json& node);
  Result<kube::Next> bury(const std::string& node);
  std::vector<kube::ObjectKey> pod_keys(const kube::Change& change) const;

  kube::KubeApi& api_;
  const Clock& clock_;
  const NodeLifecycleOptions options_;
  EventWriter events_;
  const kube::Reader* nodes_ = nullptr;
  const kube::Reader* leases_ = nullptr;
  const kube::Reader* pods_ = nullptr;
  mutable std::mutex mutex_;
  std::map<std::string, Sight> sights_;  // by node name; guarded by mutex_
  // Nodes whose last look found nothing that makes pods leave: a pod that comes to one of them is no reason to look. A change of the node is, and takes it out first. Guarded by mutex_
  std::set<std::string> calm_;
  std::map<std::string, std::chrono::nanoseconds> missed_;  // nodes that pods name and that are not there, since when; guarded by mutex_
};

}  // namespace fairlead::placement
