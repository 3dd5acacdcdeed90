// SPDX-License-Identifier: Apache-2.0
#include "governance/control/workload_clock_controller.h"

#include <algorithm>

#include "api/team_crds.h"
#include "governance/plan/kueue_read.h"
#include "governance/plan/pods_ready.h"
#include "governance/plan/run_limit.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;
namespace queues = api::queues;

std::vector<kube::Controller::Source> WorkloadClockController::sources() const {
  const auto of_workload = [this](const kube::Change& change) {
    const ObjectKey key = kube::key_of(change.object());
    const Json* ready = change.after ? kube::find_condition(*change.after, kPodsReady) : nullptr;
    const std::lock_guard lock(mutex_);
    if (ready != nullptr && (*ready)["status"].string() == "False") waits_ready_.insert(key);
    else waits_ready_.erase(key);
    return std::vector<ObjectKey>{key};
  };
  const auto of_rules = [this](const kube::Change&) {
    const std::lock_guard lock(mutex_);
    return std::vector<ObjectKey>(waits_ready_.begin(), waits_ready_.end());
  };
  // Which checks a queue asks for has changed: all of its workloads.
  const auto of_queue = [this](const kube::Change& change) {
    std::vector<ObjectKey> out;
    const auto asked = [](const std::optional<Json>& queue) { return queue ? kube::print_json((*queue)["spec"]["admissionChecks"]) + kube::print_json((*queue)["spec"]["admissionChecksStrategy"]) : std::string("nullnull"); };
    if (caches_ == nullptr || asked(change.before) == asked(change.after)) return out;
    caches_->of(queues::workloads).each("", [&](const Json& workload) { out.push_back(kube::key_of(workload)); });
    return out;
  };
  const auto nobody = [](const kube::Change&) { return std::vector<ObjectKey>{}; };
  return {{queues::workloads, "", of_workload}, {api::teams::configs, "", of_rules}, {queues::cluster_queues, "", of_queue}, {queues::local_queues, "", nobody}};
}

std::optional<kube::Access> WorkloadClockController::access() const {
  kube::Access access;
  return access.may({"update"}, queues::workloads).may({"update"}, queues::workloads, "status").may({"create"}, kube::resources::events);
}

// By the queue that holds its quota, or that it waits for.
ChecksPlan WorkloadClockController::plan_checks_of(const Json& workload, Instant now) const {
  std::string name = workload["status"]["admission"]["clusterQueue"].string();
  if (name.empty())
    if (const auto local = caches_->of(queues::local_queues).get({kube::space_of(workload), workload["spec"]["queueName"].string()})) name = (*local)["spec"]["clusterQueue"].string();
  const auto object = name.empty() ? std::nullopt : caches_->of(queues::cluster_queues).get({"", name});
  if (!object) return plan_checks(workload, nullptr, now);
  const auto queue = read_queue(*object);
  return plan_checks(workload, queue ? &*queue : nullptr, now);
}

Result<kube::Next> WorkloadClockController::reconcile(const ObjectKey& key) {
  const auto workload = caches_->of(queues::workloads).get(key);
  if (!workload) return kube::Next{};
  const Instant now = clock_.now();
  if (ChecksPlan checks = plan_checks_of(*workload, now); checks.status || checks.later) {
    if (!checks.status) return kube::Next{*checks.later};
    auto done = api_.update_status(queues::workloads, *checks.status);
    if (!done && done.error().code == Code::NotFound) return kube::Next{};
    if (!done) return pass(std::move(done.error()), "write Workload " + key.text());
    for (const Note& note : checks.notes) tell(api_, queues::workloads, *checks.status, note, now);
    return kube::Next{};
  }
  RunLimitPlan limit = plan_run_limit(*workload, now);
  std::optional<Json>& status = limit.status;
  if (!status && !limit.spec) {
    ReadyPlan ready = plan_pods_ready(*workload, ready_rules(caches_->of(api::teams::configs).list("")), now);
    if (!ready.status) {
      if (ready.later && (!limit.later || *ready.later < *limit.later)) limit.later = ready.later;
      return limit.later ? kube::Next{*limit.later} : kube::Next{};
    }
    status = std::move(ready.status);
    limit.note = std::move(ready.note);
  }
  auto done = status ? api_.update_status(queues::workloads, *status) : api_.update(queues::workloads, *limit.spec);
  if (!done && done.error().code == Code::NotFound) return kube::Next{};
  if (!done) return pass(std::move(done.error()), "write Workload " + key.text());
  if (limit.note) tell(api_, queues::workloads, *status, *limit.note, now);
  return kube::Next{};  // what was written comes back as a change
}

}  // namespace fairlead::governance
