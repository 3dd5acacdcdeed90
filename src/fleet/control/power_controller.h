// SPDX-License-Identifier: Apache-2.0
// The power of hosts that have a BMC: asks it, decides (plan/power_plan.h), writes down, then acts. Apart from MachineController, since a BMC that hangs must not hold up others.
#pragma once
#include "fleet/power_control.h"
#include "kube/controller.h"

namespace fairlead::fleet {

struct PowerControllerOptions {
  std::string space;  // where the Secrets of BMCs are
};

// What it asks of the API, its sources included.
kube::Access power_access(const std::string& space);

class PowerController final : public kube::Controller {
 public:
  // All must outlive it.
  PowerController(kube::KubeApi& api, PowerControl& control, const Clock& clock, PowerControllerOptions options);

  std::string name() const override { return "power"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override { return power_access(options_.space); }
  void start(const kube::Caches& caches) override;
  // Blocks for as long as a BMC does (up to a minute and a half).
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  Result<BmcAccess> access_of(const api::Machine& machine);
  Result<PowerSeen> look(const api::Machine& machine, const Result<BmcAccess>& access);
  Result<void> forget(const std::string& name, kube::Json object);

  kube::KubeApi& api_;
  PowerControl& control_;
  const Clock& clock_;
  const PowerControllerOptions options_;
  const kube::Reader *machines_ = nullptr, *nodes_ = nullptr;
};

}  // namespace fairlead::fleet
