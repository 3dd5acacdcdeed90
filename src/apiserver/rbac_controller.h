// SPDX-License-Identifier: Apache-2.0
// ClusterRoles with an aggregationRule: their rules are those of the roles that they select.
#pragma once
#include "kube/controller.h"
#include "kube/kube_api.h"

namespace fairlead::apiserver {

class RoleAggregationController final : public kube::Controller {
 public:
  explicit RoleAggregationController(kube::KubeApi& api) : api_(api) {}
  std::string name() const override { return "role-aggregation"; }
  // One key for all: a change of any role may concern any aggregated one, and there are few.
  std::vector<Source> sources() const override;
  void start(const kube::Caches& caches) override;
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  kube::KubeApi& api_;
  const kube::Reader* roles_ = nullptr;
};

}  // namespace fairlead::apiserver
