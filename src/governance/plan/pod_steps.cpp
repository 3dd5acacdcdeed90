// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/pod_steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"
#include "governance/plan/kueue_read.h"
#include "governance/plan/pod_places.h"
#include "governance/plan/run_time.h"

namespace fairlead::governance::pod_steps {

using kube::Json;
using What = OwnerStep::What;

const std::string& queue_of(const Json& pod) { return pod["metadata"]["labels"][kQueueLabel].string(); }
bool is_gated(const Json& pod) {
  const auto& gates = pod["spec"]["schedulingGates"].items();
  return std::any_of(gates.begin(), gates.end(), [](const Json& gate) { return gate["name"].string() == kAdmissionGate; });
}
bool has_label(const Json& pod) { return pod["metadata"]["labels"][kManaged].string() == "true"; }
bool has_finalizer(const Json& pod) { return kube::has_finalizer(pod, kManaged); }
bool is_adopted(const Json& pod) { return has_label(pod) && has_finalizer(pod) && !annotation(pod, kRoleHash).empty(); }
bool has_ended(const Json& pod) { return pod["status"]["phase"].string() == "Succeeded" || pod["status"]["phase"].string() == "Failed"; }
bool is_ready(const Json& pod) { return pod["status"]["phase"].string() == "Succeeded" || kube::condition_is_true(pod, "Ready"); }
const std::string& annotation(const Json& pod, const char* name) { return pod["metadata"]["annotations"][name].string(); }

Json pod_set(const Json& pod, const std::string& name, std::int64_t count) {
  Json out = Json::object({{"name", name}, {"count", count}, {"template", Json::object({{"spec", pod["spec"]}})}});
  (void)put_topology_request(out, pod["metadata"]);  // what of it cannot be is told before it is queued
  return out;
}

std::string role_of(const Json& pod) {
  if (const std::string& said = annotation(pod, kRoleHash); !said.empty()) return said;
  const auto read = read_pod_set(pod_set(pod, "", 1), "pod");
  return hex(sha256(read ? read->shape : read.error().message)).substr(0, 8);
}

std::string no_gate() {
  return fmt::format("It has a queue but no scheduling gate: it runs outside of the queue, and nobody counts what it uses. Make it with spec.schedulingGates: [{{name: {}}}]", kAdmissionGate);
}

OwnerPlan adopt(const Json& pod) {
  Json next = pod;
  Json& metadata = next.child("metadata");
  metadata.child("labels").set(kManaged, "true");
  if (annotation(pod, kRoleHash).empty()) metadata.child("annotations").set(kRoleHash, role_of(pod));
  kube::add_finalizer(next, kManaged);
  return take_step(What::UpdateOwner, std::move(next));
}

OwnerPlan create(Json workload, const Json& pod) {
  if (const std::string& time = annotation(pod, kRunTime); !time.empty()) workload.child("metadata").child("annotations").set(kRunTime, time);
  const std::string name = kube::key_of(workload).text();
  return take_step(What::CreateWorkload, std::move(workload), Note{false, "CreatedWorkload", "Created Workload: " + name});
}

OwnerPlan update_waiting(const Json& workload, const Json& wanted) {
  Json next = with_wishes(workload, wanted, shape_of_pod_set);
  if (next == workload) return {};
  return take_step(What::UpdateWorkload, std::move(next), Note{false, "UpdatedWorkload", fmt::format("Updated not matching Workload for suspended job: {}", kube::key_of(workload).text())});
}

OwnerPlan release_finalizer(const Json& pod) {
  Json next = pod;
  kube::remove_finalizer(next, kManaged);
  return take_step(What::UpdateOwner, std::move(next));
}

OwnerPlan lift_gate(const Json& pod, const Json& workload, const std::string& pod_set, const FlavorsByName& flavors, const std::vector<const Json*>& others) {
  Json next = pod;
  if (std::string problem = put_flavors(next, workload, pod_set, flavors); !problem.empty()) return trouble(std::move(problem));
  const Json &before = pod["spec"]["nodeSelector"], &after = next["spec"]["nodeSelector"];
  for (const auto& [key, value] : before.members())
    if (!(after[key] == value)) return trouble(fmt::format("Its flavor wants nodes with {}={}, its own nodeSelector {}: delete the Workload {}", key, after[key].string(), value.string(), kube::name_of(workload)));
  Json& spec = next.child("spec");
  if (has_place(workload, pod_set)) {
    put_place_notes(next, workload);
    if (!waits_for_place(pod)) {  // else it is given its place behind that gate
      const auto places = places_for(workload, pod_set, others, [](const Json& one) { return !is_gated(one); });
      const auto own = std::find_if(places.begin(), places.end(), [&](const PodPlace& one) { return one.pod == kube::key_of(pod); });
      if (own == places.end()) return trouble("the place that it was given is taken by a pod that is still going");
      for (const auto& [label, value] : own->selector) {
        if (const Json& had = pod["spec"]["nodeSelector"][label]; !had.is_null() && had.string() != value) return trouble(fmt::format("Its place is {}={}, its own nodeSelector {}: delete the Workload {}", label, value, had.string(), kube::name_of(workload)));
        spec.child("nodeSelector").set(label, value);
      }
    }
  }
  std::erase_if(spec.child("schedulingGates").items(), [](const Json& gate) { return gate["name"].string() == kAdmissionGate; });
  if (spec["schedulingGates"].items().empty()) spec.erase("schedulingGates");
  return take_step(What::UpdateOwner, std::move(next), Note{false, "Started", fmt::format("Admitted by clusterQueue {}", workload["status"]["admission"]["clusterQueue"].string())});
}

std::string topology_problem(const Json& pod) {
  Json pod_set = Json::object();
  return put_topology_request(pod_set, pod["metadata"]);
}

OwnerPlan stop(const Json& pod, Stop why, const std::string& message, Instant now) {
  constexpr const char* target = "TerminationTarget";
  OwnerPlan out;
  if (kube::condition_is_true(pod, target)) {
    out = take_step(What::DeleteOwner, pod, Note{false, "Stopped", message});
  } else {
    const char* reason = why == Stop::WorkloadDeleted ? "WorkloadDeleted" : why == Stop::Evicted ? "WorkloadEvicted" : why == Stop::NoWorkload ? "NoMatchingWorkload" : "NotAdmitted";
    Json next = pod;
    kube::set_condition(next, {.type = target, .status = "True", .reason = reason, .message = message}, now);
    out = take_step(What::OwnerStatus, std::move(next));
  }
  out.step->stops = true;
  return out;
}

}  // namespace fairlead::governance::pod_steps
