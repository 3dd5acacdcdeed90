// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/pod_workload.h"

#include <fmt/format.h>

#include <algorithm>

#include "governance/plan/pod_steps.h"

namespace fairlead::governance {

using kube::Json;
using What = OwnerStep::What;
using namespace pod_steps;

std::string pod_workload_name(const Json& pod) { return name_of_workload("Pod", "", pod); }
bool is_group_workload(const Json& workload) { return workload["metadata"]["annotations"][kGroupWorkload].string() == "true"; }
bool is_queued_pod(const Json& pod) { return !queue_of(pod).empty() && (is_gated(pod) || has_label(pod)); }
bool uses_quota(const Json& pod) { return !is_gated(pod) && !has_ended(pod); }

namespace {

bool is_pod(const Json& pod) {
  return pod["spec"].is_object() && well_formed(pod, {"metadata", "metadata.labels", "metadata.annotations", "status", "spec.nodeSelector"}, {"metadata.finalizers", "spec.tolerations", "spec.schedulingGates", "status.conditions"});
}

Json pod_set_of(const Json& pod) { return pod_set(pod, "main", 1); }

// Not ours, or not any more.
OwnerPlan leave_alone(const Json& pod, const Json* workload) {
  if (workload != nullptr)
    if (auto gone = let_go(*workload)) return std::move(*gone);
  if (has_ended(pod) || kube::deleting(pod)) return {};
  if (queue_of(pod).empty()) return is_gated(pod) && has_label(pod) ? trouble(fmt::format("It has no queue any more and stays behind its gate: give it the label {}, or delete it", kQueueLabel)) : OwnerPlan{};
  return trouble(no_gate());
}

OwnerPlan plan_one(const PodsInput& in) {
  const Json* pod = in.pods.empty() ? nullptr : &in.pods.front();
  const Json* workload = nullptr;
  for (const Json& one : in.workloads) {
    const Json* owner = kube::controller_of(one);
    const bool ours = pod != nullptr && owner != nullptr && (*owner)["uid"].string() == kube::uid_of(*pod);
    if (ours && (workload == nullptr || kube::name_of(one) == pod_workload_name(*pod))) workload = &one;
  }
  for (const Json& one : in.workloads)
    if (&one != workload)
      if (auto gone = let_go(one)) return std::move(*gone);
  if (pod == nullptr) return {};
  if (kube::deleting(*pod)) return has_finalizer(*pod) ? release_finalizer(*pod) : OwnerPlan{};  // its Workload goes after it
  if (!is_queued_pod(*pod)) return leave_alone(*pod, workload);
  if (has_ended(*pod)) {
    const bool succeeded = (*pod)["status"]["phase"].string() == "Succeeded";
    const std::string& message = (*pod)["status"]["message"].string();
    if (workload != nullptr)
      if (auto end = finish(*workload, succeeded, !message.empty() ? message : succeeded ? "The pod has succeeded" : "The pod has failed", in.now)) return std::move(*end);
    return has_finalizer(*pod) ? release_finalizer(*pod) : OwnerPlan{};
  }
  if (workload == nullptr) {
    if (!is_gated(*pod)) return has_finalizer(*pod) ? stop(*pod, Stop::NoWorkload, "Its Workload is not there", in.now) : trouble(no_gate());
    if (!is_adopted(*pod)) return adopt(*pod);
    if (!in.priority.problem.empty()) return trouble(in.priority.problem);
    if (std::string problem = topology_problem(*pod); !problem.empty()) return trouble(std::move(problem));
    Json owner = kube::owner_reference(*pod);
    owner.set("apiVersion", "v1").set("kind", "Pod");
    Json made = new_workload({kube::space_of(*pod), pod_workload_name(*pod)}, kube::uid_of(*pod), Json::array({std::move(owner)}), queue_of(*pod), Json::array({pod_set_of(*pod)}), in.priority);
    if (std::string problem = put_run_limit(made, *pod); !problem.empty()) return trouble(std::move(problem));
    return create(std::move(made), *pod);
  }
  const bool evicted = holds_quota(*workload) && kube::condition_is_true(*workload, "Evicted");
  if (kube::deleting(*workload) || evicted) {
    if (!is_gated(*pod)) return kube::deleting(*workload) ? stop(*pod, Stop::WorkloadDeleted, "Its Workload was deleted", in.now) : stop(*pod, Stop::Evicted, stop_reason(*workload), in.now);
    return kube::deleting(*workload) ? let_go(*workload).value_or(OwnerPlan{}) : give_back(*workload, in.now);
  }
  if (is_gated(*pod) && !is_adopted(*pod)) return adopt(*pod);
  if (kube::condition_is_true(*workload, "Finished")) return is_gated(*pod) ? trouble(fmt::format("Its Workload {} says that it has finished: delete that Workload", kube::name_of(*workload))) : OwnerPlan{};
  const auto& pod_sets = (*workload)["spec"]["podSets"].items();
  if (holds_quota(*workload) && kube::condition_is_true(*workload, "Admitted")) {
    if (!is_gated(*pod)) {
      if (auto follows = follow_class(*workload, in.priority)) return std::move(*follows);
      if (auto told = tell_checkpoints(*workload, *pod)) return std::move(*told);
      return tell_ready(*workload, in.tells_ready, is_ready(*pod), in.now).value_or(OwnerPlan{});
    }
    if (pod_sets.size() != 1 || shape_of_pod_set(pod_sets.front()) != shape_of_pod_set(pod_set_of(*pod)))
      return take_step(What::DeleteWorkload, *workload, Note{true, "Stopped", "The pod was changed after it was admitted: it is queued anew"});
    return lift_gate(*pod, *workload, "main", in.flavors, {pod});
  }
  if (!is_gated(*pod)) return stop(*pod, Stop::NotAdmitted, "Not admitted by cluster queue", in.now);
  if (!in.priority.problem.empty()) return trouble(in.priority.problem);
  if (holds_quota(*workload)) return {};
  Json wanted = Json::object({{"spec", new_workload({}, "", Json(), queue_of(*pod), Json::array({pod_set_of(*pod)}), in.priority)["spec"]}});
  if (std::string problem = put_run_limit(wanted, *pod); !problem.empty()) return trouble(std::move(problem));
  return update_waiting(*workload, wanted);
}

}  // namespace

OwnerPlan plan_pods(const PodsInput& in) {
  if (!std::all_of(in.pods.begin(), in.pods.end(), is_pod) || !std::all_of(in.workloads.begin(), in.workloads.end(), is_workload)) return {};
  return in.group.empty() ? plan_one(in) : plan_group(in);
}

}  // namespace fairlead::governance
