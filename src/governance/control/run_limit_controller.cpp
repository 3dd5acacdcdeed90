// SPDX-License-Identifier: Apache-2.0
#include "governance/control/run_limit_controller.h"

#include "governance/plan/run_limit.h"

namespace fairlead::governance {

using kube::ObjectKey;
namespace queues = api::queues;

std::vector<kube::Controller::Source> RunLimitController::sources() const {
  return {{queues::workloads, "", [](const kube::Change& change) { return std::vector<ObjectKey>{kube::key_of(change.object())}; }}};
}

std::optional<kube::Access> RunLimitController::access() const {
  kube::Access access;
  return access.may({"update"}, queues::workloads).may({"update"}, queues::workloads, "status").may({"create"}, kube::resources::events);
}

Result<kube::Next> RunLimitController::reconcile(const ObjectKey& key) {
  const auto workload = caches_->of(queues::workloads).get(key);
  if (!workload) return kube::Next{};
  const Instant now = clock_.now();
  const RunLimitPlan plan = plan_run_limit(*workload, now);
  if (plan.later) return kube::Next{*plan.later};
  if (!plan.status && !plan.spec) return kube::Next{};
  auto done = plan.status ? api_.update_status(queues::workloads, *plan.status) : api_.update(queues::workloads, *plan.spec);
  if (!done && done.error().code == Code::NotFound) return kube::Next{};
  if (!done) return pass(std::move(done.error()), "deactivate Workload " + key.text());
  if (plan.note) tell(api_, queues::workloads, *plan.status, *plan.note, now);
  return kube::Next{};  // what was written comes back as a change
}

}  // namespace fairlead::governance
