// SPDX-License-Identifier: Apache-2.0
// Machines become nodes: reads a Machine, looks at the host, does the steps that are due, tells in status what is. Of hosts that join it gives out the range of their pods, and tells what their Nodes tell.
#pragma once
#include <map>
#include <mutex>
#include <set>

#include "fleet/local_host.h"
#include "fleet/plan/host_plan.h"
#include "kube/controller.h"

namespace fairlead::fleet {

struct MachineControllerOptions {
  Ranges ranges;
  MachinePlanOptions plan;
  std::chrono::milliseconds stop_grace{5'000};
  bool hosts_join = true;               // the engine is ours, and lets hosts in (fleet/control/join_door.h)
  std::chrono::seconds look_again{30};  // a running machine is looked at this often although nothing was told
};

// What it asks of the API, its source included.
kube::Access machine_access();

class MachineController final : public kube::Controller {
 public:
  MachineController(kube::KubeApi& api, LocalHost& host, const Clock& clock, MachineControllerOptions options = {});

  std::string name() const override { return "machine"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override { return machine_access(); }
  void start(const kube::Caches& caches) override;
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  Result<kube::Next> reconcile_host(const api::Machine& machine, kube::Json object);
  Result<HostView> look_at(const api::Machine& machine, std::optional<kube::Json>& node);
  // Labels that the Machine gives are put on its Node when they or the Node are others than before; what people change there stays.
  Result<void> dress(const api::Machine& machine, const kube::Json& node, kube::Json& object);
  Result<void> give_seat(const kube::Json& object);
  Result<void> write_down(const api::RebootRecord& record, kube::Json object);
  Result<void> do_step(Step step, const api::Machine& machine, kube::Json& object);
  Result<void> forget(const api::Machine& machine, const kube::Json& object, bool with_node);
  // Writes status if it says anything new.
  Result<void> write_status(kube::Json object, const MachinePlan& plan, const Observation& seen, const std::optional<Error>& error);

  kube::KubeApi& api_;
  LocalHost& host_;
  const Clock& clock_;
  MachineControllerOptions options_;
  const kube::Reader *machines_ = nullptr, *nodes_ = nullptr;
  std::mutex mutex_;
  std::map<std::string, int> given_;  // uid -> index: seats given by us that the cache may not show yet
};

}  // namespace fairlead::fleet
