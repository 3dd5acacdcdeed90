// SPDX-License-Identifier: Apache-2.0
// Brings the pods that are bound to this node to what the API says: looks, plans (plan/pod_plan.h), acts, reports. One thread per pod at a time.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "kube/controller.h"
#include "kube/kube_api.h"
#include "node/config.h"
#include "node/events.h"
#include "node/prober.h"
#include "node/runtime.h"
#include "node/token_cache.h"
#include "node/volumes.h"

namespace fairlead::node {

class PodController final : public kube::Controller {
 public:
  struct Ports {
    kube::KubeApi& api;
    Runtime& runtime;
    const Clock& clock;
    Events& events;
    const NodeConfig& config;
    std::string dns_server;
    std::string node_resolv;
    std::vector<std::string> capabilities;
    std::function<void(const kube::ObjectKey&)> wake;        // reconcile this pod soon
    std::function<std::vector<kube::Json>()> services = {};  // all that are known by now, for the environment of containers
    MilliCpu node_cpu = {};                                  // what resourceFieldRef tells of a limit that is not set
    Bytes node_memory = {}, node_storage = {};
  };
  explicit PodController(Ports ports);

  static constexpr const char* controller_name = "pods";
  std::string name() const override { return controller_name; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches& caches) override;
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

  // Called from the watcher of exit files.
  void container_ended(const std::string& attempt_id);
  // Pods that are on this node and no longer in the API's list: to be reconciled once after a start.
  std::vector<kube::ObjectKey> known_pods() const;

 private:
  std::string etc_folder(const std::string& uid) const { return ports_.config.node_dir + "/pods/" + uid + "/etc"; }
  struct Memory;  // what need not outlive this process
  std::shared_ptr<Memory> memory_of(const std::string& uid);
  Result<PodSeen> observe(const kube::Json& pod, Memory& memory);
  Result<void> remove_strangers(const kube::ObjectKey& key, const std::string& keep_uid);
  Result<void> apply(const Action& action, const kube::Json& pod, const PodSeen& seen, const std::shared_ptr<Memory>& memory);
  Result<void> ensure_sandbox(const kube::Json& pod, Memory& memory);
  Result<void> start_container(const StartContainer& action, const kube::Json& pod, const PodSeen& seen, Memory& memory);
  void begin_stop(const BeginStop& action, const kube::Json& pod, const PodSeen& seen, const std::shared_ptr<Memory>& memory);
  Result<void> report(const kube::Json& pod, const kube::Json& status, Memory& memory);
  void remember(const std::string& uid, const kube::ObjectKey& key);
  void forget(const std::string& uid);
  VolumeSources sources_for(const kube::Json& pod, const std::string& ip);
  std::vector<std::pair<std::string, std::string>> service_environment(const kube::Json& pod) const;
  // Runs a postStart or preStop handler to its end; what went wrong, empty: nothing.
  // Gives the container the devices that it asks for, of those that nobody has, with all that CDI says it needs; reserved until its start is over. Exhausted, Unavailable: it waits.
  Result<void> grant_devices(const kube::Json& container, ContainerSpec& spec);
  Result<std::vector<GrantedDevice>> held_devices(const std::string& but);  // under granting_; all but those of one attempt
  std::string run_hook(const kube::Json& pod, const kube::Json& container, const kube::Json& hook, const std::string& ip,
                       std::chrono::milliseconds limit);
  Result<kube::Json> fetch(const kube::Resource& resource, const std::string& space, const std::string& name, const char* what, bool fresh);

  Ports ports_;
  const kube::Reader* pods_ = nullptr;
  Volumes volumes_;
  mutable std::mutex mutex_;
  std::mutex granting_;
  std::map<std::string, Granted> reserved_;  // under granting_; by attempt, between the choice and what the runtime has written down
  std::map<std::string, std::shared_ptr<Memory>> memories_;  // under mutex_; by uid
  std::map<std::string, kube::ObjectKey> on_disk_;           // under mutex_; uid -> key
  std::map<std::string, kube::ObjectKey> attempts_;          // under mutex_; attempt id -> key
  struct Fetched {
    kube::Json object;
    std::chrono::nanoseconds at{};
  };
  std::map<std::string, Fetched> fetched_;  // under mutex_
  TokenCache tokens_;
  JobPool jobs_;
  Prober prober_;
};

}  // namespace fairlead::node
