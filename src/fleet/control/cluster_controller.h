// SPDX-License-Identifier: Apache-2.0
// Clusters become machines that run: reads a Cluster and what is there for it, plans, writes. It holds nothing between two rounds; whoever dies between two writes, the next one goes on (docs/design/050).
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "fleet/control/script_store.h"
#include "fleet/plan/cluster_plan.h"
#include "kube/controller.h"

namespace fairlead::fleet {

// What it asks of the API beside its sources.
kube::Access cluster_access();

class ClusterController final : public kube::Controller {
 public:
  // `scripts`: where lifecycle scripts lie; `alarms`: what watches updates. Null: nowhere, and nothing.
  ClusterController(kube::KubeApi& api, const Clock& clock, ClusterPlanOptions options = {}, std::shared_ptr<const ScriptStore> scripts = nullptr, std::shared_ptr<const api::Alarms> alarms = nullptr) : api_(api), clock_(clock), options_(std::move(options)), scripts_(std::move(scripts)), alarms_(std::move(alarms)) {}

  std::string name() const override { return "cluster"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override { return cluster_access(); }
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  Result<ClusterSnapshot> look(kube::Json cluster) const;
  Result<std::optional<std::string>> objection(const ClusterStep& step, const std::string& space, api::Orchestrator orchestrator);
  ScriptSource source_of(const api::LifecycleScripts& scripts, const std::string& space) const;
  ScriptSource kept_source(const api::LifecycleScripts& scripts, const std::string& space) const;
  Result<void> take(const ClusterStep& step);
  bool may_withhold(const std::string& cluster);
  void told(const std::string& cluster);
  std::vector<kube::ObjectKey> in_space(const std::string& space) const;

  kube::KubeApi& api_;
  const Clock& clock_;
  const ClusterPlanOptions options_;
  const std::shared_ptr<const ScriptStore> scripts_;
  const std::shared_ptr<const api::Alarms> alarms_;
  const kube::Caches* caches_ = nullptr;
  std::mutex mutex_;
  std::map<std::string, Instant> unanswered_;  // since when events of a cluster find no answer; what is lost with it is time
};

}  // namespace fairlead::fleet
