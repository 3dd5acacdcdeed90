// SPDX-License-Identifier: Apache-2.0
// Keeps this node's Node object and its Lease in the API.
#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "agent/instance_volume.h"
#include "agent/network_interfaces.h"
#include "base/clock.h"
#include "kube/controller.h"
#include "kube/kube_api.h"
#include "node/config.h"

namespace fairlead::agent {

struct Machine {  // what the machine says of itself
  std::string boot_id, machine_id, kernel, os_image, runtime;
  std::string cpu, memory, storage;  // quantities, used where the configuration names none
};
Machine look_at_machine(const node::NodeConfig& config);

// Of an agent whose configuration names folders of CDI files: how many of each kind there are, beside what is declared. What the Node was said to have, and is not there, is none: it is not left standing.
std::map<std::string, std::string> device_capacity(const node::NodeConfig& config, const kube::Json& before, std::vector<std::string>& complaints);

// The Node as it should be. Pure.
kube::Json make_node(const node::NodeConfig& config, const Machine& machine, Instant now);
// status of it with the transition times of `before` where nothing changed. Annotation fairlead.dev/max-pods of `before` limits how many pods it takes.
kube::Json make_node_status(const node::NodeConfig& config, const Machine& machine, const kube::Json& before, Instant now);
// The strategic merge patch for it: what others wrote stays.
kube::Json make_status_patch(kube::Json status);

// Sees at once, by the node's own watch, what the annotations ask of it; the heartbeat would see it at its next beat.
class WishController final : public kube::Controller {
 public:
  WishController(std::string node_name, std::function<void()> look) : node_name_(std::move(node_name)), look_(std::move(look)) {}
  std::string name() const override { return "wishes"; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches& caches) override { nodes_ = &caches.of(kube::resources::nodes); }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  const std::string node_name_;
  const std::function<void()> look_;
  const kube::Reader* nodes_ = nullptr;
  std::string seen_;
};

class Heartbeat {
 public:
  // `volume`: keeps the volume that the Node's annotation orders; null: orders are not looked at. Outlives it. `settle`: puts up the network interfaces that it orders; none: they are not looked at.
  Heartbeat(kube::KubeApi& api, const Clock& clock, node::NodeConfig config, Machine machine, VolumeKeeper* volume = nullptr, Settle settle = {});
  ~Heartbeat();  // stops; the Node stays
  // One round; for tests and the thread. Errors are tried again with the next beat.
  Result<void> beat();
  // The next beat is due now: something is asked of this node.
  void look_again();

 private:
  Result<kube::Json> ensure_node();
  Result<void> renew_lease(const kube::Json& node);
  Result<void> keep_volume(const kube::Json& node);
  kube::KubeApi& api_;
  const Clock& clock_;
  const node::NodeConfig config_;
  const Machine machine_;
  VolumeKeeper* const volume_;
  const Settle settle_;
  bool settled_ = false;  // what an agent of before left has been looked at
  std::vector<std::string> complaints_;  // that were told: each once
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool again_ = false;
  std::jthread thread_;
};

}  // namespace fairlead::agent
