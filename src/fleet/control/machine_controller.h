// SPDX-License-Identifier: Apache-2.0
// Machines become nodes: reads a Machine, looks at the host, does the steps that are due, tells in status what is.
#pragma once
#include <map>
#include <mutex>
#include <set>

#include "fleet/local_host.h"
#include "kube/controller.h"

namespace fairlead::fleet {

struct MachineControllerOptions {
  Ranges ranges;
  MachinePlanOptions plan;
  std::chrono::milliseconds stop_grace{5'000};
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
  Result<void> give_seat(const kube::Json& object);
  Result<void> write_down(const api::RebootRecord& record, kube::Json object);
  Result<void> do_step(Step step, const api::Machine& machine, kube::Json& object);
  // On its Node: taint api::kOutOfService and Ready=False while it is dead for certain; the taint goes before it is started.
  Result<void> declare(const std::string& name, bool in_service);
  Result<void> forget(const api::Machine& machine, const kube::Json& object);
  // Writes status if it says anything new.
  Result<void> write_status(kube::Json object, const MachinePlan& plan, const Observation& seen, const std::optional<Error>& error);

  kube::KubeApi& api_;
  LocalHost& host_;
  const Clock& clock_;
  MachineControllerOptions options_;
  const kube::Reader* machines_ = nullptr;
  std::mutex mutex_;
  std::map<std::string, int> given_;  // uid -> index: seats given by us that the cache may not show yet
};

}  // namespace fairlead::fleet
