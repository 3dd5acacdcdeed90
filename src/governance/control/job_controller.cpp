// SPDX-License-Identifier: Apache-2.0
#include "governance/control/job_controller.h"

#include <algorithm>

#include "governance/plan/pod_workload.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;
namespace queues = api::queues;

namespace {

const std::string kOrphan = "workloads/";  // of a key: a Workload without an owner. No name has a slash.

struct JobCase final : OwnerCase {
  OwnerPlan plan() const override { return plan_job(in); }
  const Json& about() const override { return in.job; }
  std::vector<Json>& workloads() override { return in.workloads; }
  void take(Json owner) override { in.job = std::move(owner); }
  ObjectKey workload_key() const override { return {kube::space_of(in.job), workload_name(in.job)}; }
  JobInput in;
};

}  // namespace

std::vector<kube::Controller::Source> JobController::sources() const {
  const auto with_queue = [](const kube::Change& change) {
    for (const auto* state : {&change.before, &change.after})
      if (*state && !(**state)["metadata"]["labels"][kQueueLabel].string().empty()) return std::vector<ObjectKey>{kube::key_of(change.object())};
    return std::vector<ObjectKey>();
  };
  std::vector<Source> out = sources_of_stuck();
  out.push_back(source_of_ready_rules([this] {
    const std::lock_guard lock(mutex_);
    std::vector<ObjectKey> jobs;
    for (const auto& [job, workloads] : owned_) jobs.push_back(job);
    return jobs;
  }));
  out.push_back({kBatchJobs, "", with_queue});
  out.push_back({queues::workloads, "", [this](const kube::Change& change) { return note_workload(change); }});
  return out;
}

std::optional<kube::Access> JobController::access() const {
  kube::Access access = shared_access();
  return access.may({"get", "update"}, kBatchJobs)
      .may({"update"}, kBatchJobs, "status")
      .may({"update"}, kBatchJobs, "finalizers")  // of Workloads that they own, where owners are checked
      .may({"list"}, kube::resources::pods);
}

std::vector<ObjectKey> JobController::note_workload(const kube::Change& change) const {
  const Json* owner = kube::controller_of(change.object());
  const ObjectKey workload = kube::key_of(change.object());
  // Its owner was deleted without it: nobody else lets it go. (That of a group of pods is not controlled by one of them.)
  if (owner == nullptr && change.after && !is_group_workload(*change.after) && kube::deleting(*change.after) && kube::has_finalizer(*change.after, kInUse)) return {{workload.space, kOrphan + workload.name}};
  if (owner == nullptr || (*owner)["kind"].string() != "Job" || (*owner)["apiVersion"].string() != "batch/v1") return {};
  const ObjectKey job{workload.space, (*owner)["name"].string()};
  const std::lock_guard lock(mutex_);
  note_class(change, job);
  if (change.after) {
    owned_[job].insert(workload);
  } else if (const auto at = owned_.find(job); at != owned_.end()) {
    at->second.erase(workload);
    if (at->second.empty()) owned_.erase(at);
  }
  return {job};
}

Result<std::unique_ptr<OwnerCase>> JobController::observe(const ObjectKey& key) {
  auto out = std::make_unique<JobCase>();
  JobInput& in = out->in;
  in.now = out->now = clock_.now();
  in.tells_ready = tells_ready();
  in.job = newest(kBatchJobs, key);
  std::set<ObjectKey> owned;
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = owned_.find(key); at != owned_.end()) owned = at->second;
  }
  if (in.job.is_null() && !owned.empty()) {  // is it gone, or has the cache not seen it yet?
    auto now = api_.get(kBatchJobs, key);
    if (now) in.job = std::move(*now);
    else if (now.error().code != Code::NotFound) return pass(std::move(now.error()), "read Job " + key.text());
  }
  if (!in.job.is_null()) owned.insert({key.space, workload_name(in.job)});
  for (const ObjectKey& one : owned) {
    Json workload = newest(queues::workloads, one);
    const Json* owner = workload.is_null() ? nullptr : kube::controller_of(workload);
    if (owner == nullptr || (*owner)["name"].string() != key.name || (*owner)["kind"].string() != "Job") continue;
    in.workloads.push_back(std::move(workload));
  }
  in.flavors = flavors_of(in.workloads);
  if (!in.job.is_null()) in.priority = priority_of(in.job["metadata"]["labels"][kPriorityLabel].string(), in.job["spec"]["template"]["spec"]["priorityClassName"].string(), "spec.template.spec");
  return out;
}

// What a Job's status says may be older than its pods, and a Job may be gone before them.
Result<bool> JobController::has_pods(const Json& workload) {
  const Json* owner = kube::controller_of(workload);
  if (owner == nullptr) return false;
  auto pods = api_.list(kube::resources::pods, kube::space_of(workload), {.label_selector = "batch.kubernetes.io/controller-uid=" + (*owner)["uid"].string()});
  if (!pods) return pass(std::move(pods.error()), "list the pods of Workload " + kube::key_of(workload).text());
  return std::any_of(pods->items.begin(), pods->items.end(), [](const Json& pod) {
    const std::string& phase = pod["status"]["phase"].string();
    return phase != "Succeeded" && phase != "Failed";
  });
}

Result<kube::Next> JobController::let_orphan_go(const ObjectKey& key) {
  auto workload = caches_->of(queues::workloads).get(key);
  if (!workload || kube::controller_of(*workload) != nullptr || is_group_workload(*workload) || !kube::deleting(*workload) || !kube::has_finalizer(*workload, kInUse)) return kube::Next{};
  kube::remove_finalizer(*workload, kInUse);
  auto done = api_.update(queues::workloads, *workload);
  if (!done && done.error().code != Code::NotFound) return pass(std::move(done.error()), "let go of Workload " + key.text());
  return kube::Next{};
}

Result<kube::Next> JobController::reconcile(const ObjectKey& key) {
  if (key.name.starts_with(kOrphan)) return let_orphan_go({key.space, key.name.substr(kOrphan.size())});
  return OwnerController::reconcile(key);
}

}  // namespace fairlead::governance
