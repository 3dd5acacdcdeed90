// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/gang_workload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/encoding.h"
#include "governance/plan/pod_places.h"
#include "governance/plan/run_time.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using What = OwnerStep::What;

constexpr std::size_t most_parts = 18;  // pod sets of a Workload

std::string lower(std::string text) {
  for (char& one : text) one = static_cast<char>(one >= 'A' && one <= 'Z' ? one - 'A' + 'a' : one);
  return text;
}

// What is there at a path; made where it is not.
Json& reach(Json& object, const std::string& path) {
  Json* at = &object;
  for (const std::string& step : split(path, '.')) at = &at->child(step);
  return *at;
}

struct Part {
  std::string name;        // of its pod set
  const Json* json = nullptr;
};
std::vector<Part> parts_of(const GangKind& kind, const Json& gang) {
  std::vector<Part> out;
  const Json& parts = gang.at(kind.parts.c_str());
  if (kind.order.empty()) {
    for (const Json& one : parts.items()) out.push_back({one["name"].string(), &one});
    return out;
  }
  for (const std::string& name : kind.order)
    if (parts[name].is_object()) out.push_back({lower(name), &parts[name]});
  return out;
}
Json* part_named(const GangKind& kind, Json& gang, const std::string& name) {
  Json& parts = reach(gang, kind.parts);
  if (kind.order.empty()) {
    for (Json& one : parts.items())
      if (one["name"].string() == name) return &one;
    return nullptr;
  }
  for (const std::string& member : kind.order)
    if (lower(member) == name && parts[member].is_object()) return &parts.child(member);
  return nullptr;
}

std::int64_t per_replica(const GangKind& kind, const Json& part) {
  if (!kind.of_jobs) return 1;
  const Json& job = part["template"]["spec"];
  const std::int64_t parallelism = job["parallelism"].integer(1);
  return std::min(parallelism, job["completions"].integer(parallelism));
}
std::int64_t replicas_of(const Json& part) { return part["replicas"].integer(1); }
// With those that stand by; -1: no number of pods.
std::int64_t pods_of(const GangKind& kind, const Json& part) {
  const std::int64_t replicas = replicas_of(part), each = per_replica(kind, part), spares = part["spares"].integer(0);
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (replicas < 0 || each < 0 || spares < 0 || replicas > most || each > most || spares > most || replicas * each + spares > most) return -1;
  return replicas * each + spares;
}

Json template_of(const GangKind& kind, const Json& part) {
  const Json& from = part.at(kind.pods.c_str());
  Json metadata = Json::object();
  for (const char* field : {"labels", "annotations"})
    if (!from["metadata"][field].members().empty()) metadata.set(field, from["metadata"][field]);
  Json out = Json::object();
  if (!metadata.members().empty()) out.set("metadata", std::move(metadata));
  return out.set("spec", from["spec"]);
}

Json pod_sets_of(const GangKind& kind, const Json& gang) {
  Json out = Json::array();
  for (const Part& part : parts_of(kind, gang)) {
    Json one = Json::object({{"name", part.name}, {"count", pods_of(kind, *part.json)}, {"template", template_of(kind, *part.json)}});
    if (put_topology_request(one, part.json->at(kind.pods.c_str())["metadata"]).empty() && one["topologyRequest"].is_object()) {
      Json& request = one.child("topologyRequest");
      if (!kind.index_label.empty()) request.set("podIndexLabel", kind.index_label);
      if (!kind.sub_index_label.empty()) request.set("subGroupIndexLabel", kind.sub_index_label).set("subGroupCount", replicas_of(*part.json));
    }
    out.push(std::move(one));
  }
  return out;
}

// What of it cannot be queued; empty: nothing.
std::string problem_of(const GangKind& kind, const Json& gang) {
  const std::vector<Part> parts = parts_of(kind, gang);
  if (!kind.order.empty())  // what is not known would run beside the quota
    for (const auto& [name, part] : gang.at(kind.parts.c_str()).members())
      if (std::find(kind.order.begin(), kind.order.end(), name) == kind.order.end()) return fmt::format("{}[{}]: {} can be queued, and no other", kind.parts, name, fmt::join(kind.order, " and "));
  if (parts.empty()) return kind.parts + ": at least one with a template of pods is expected";
  if (parts.size() > most_parts) return fmt::format("{}: {} are given, and at most {} can be queued together", kind.parts, parts.size(), most_parts);
  std::vector<std::string> names;
  for (const Part& part : parts) {
    const auto written = std::find_if(kind.order.begin(), kind.order.end(), [&](const std::string& name) { return lower(name) == part.name; });
    const std::string at = fmt::format("{}[{}]", kind.parts, written == kind.order.end() ? part.name : *written);
    if (part.name.empty()) return kind.parts + ": a name is expected of each";
    if (std::find(names.begin(), names.end(), part.name) != names.end()) return at + ": there are two of this name";
    names.push_back(part.name);
    if (pods_of(kind, *part.json) < 0) return at + ".replicas: a number of pods is expected";
    if (!part.json->at(kind.pods.c_str())["spec"].is_object()) return fmt::format("{}.{}.spec: the spec of a pod is expected", at, kind.pods);
    Json pod_set = Json::object();
    if (std::string problem = put_topology_request(pod_set, part.json->at(kind.pods.c_str())["metadata"]); !problem.empty()) return fmt::format("{}.{}.{}", at, kind.pods, problem);
  }
  return "";
}

std::string digest(const Json& pod_set) {
  const Json& metadata = pod_set["template"]["metadata"];
  std::string out = shape_of_pod_set(pod_set);
  for (const char* field : {"labels", "annotations"}) out += "\n" + (metadata[field].members().empty() ? std::string() : kube::print_json(metadata[field]));
  return out;
}
bool is_suspended(const GangKind& kind, const Json& gang) { return gang.at(kind.suspend.c_str()).boolean(); }

// The statuses of its parts, by name of their pod sets.
template <class Do>
void each_status(const GangKind& kind, const Json& gang, const Do& act) {
  if (kind.statuses.empty()) return;
  const Json& all = gang.at(kind.statuses.c_str());
  for (const Json& one : all.items()) act(one["name"].string(), one);
  for (const auto& [name, one] : all.members()) act(lower(name), one);
}
bool is_active(const GangKind& kind, const Json& gang) {
  bool out = false;
  each_status(kind, gang, [&](const std::string&, const Json& one) { out = out || one["active"].integer() > 0; });
  return out;
}
bool has_condition(const Json& gang, const std::vector<std::string>& types) {
  return std::any_of(types.begin(), types.end(), [&](const std::string& type) { return kube::condition_is_true(gang, type.c_str()); });
}
bool all_ready(const GangKind& kind, const Json& gang) {
  if (!kind.running.empty()) return has_condition(gang, kind.running);
  std::int64_t wanted = 0, ready = 0;
  for (const Part& part : parts_of(kind, gang)) wanted += replicas_of(*part.json);
  each_status(kind, gang, [&](const std::string&, const Json& one) { ready += one["ready"].integer() + one["succeeded"].integer(); });
  return ready >= wanted;
}
Json reclaimable_of(const GangKind& kind, const Json& gang) {
  Json out = Json::array();
  if (!kind.of_jobs) return out;
  for (const Part& part : parts_of(kind, gang))
    each_status(kind, gang, [&](const std::string& name, const Json& one) {
      const std::int64_t done = one["succeeded"].integer();
      if (name == part.name && done > 0 && done <= replicas_of(*part.json)) out.push(Json::object({{"name", name}, {"count", done * per_replica(kind, *part.json)}}));
    });
  return out;
}

// The templates as the Workload kept them before flavors and places were put into them; where none were they stay.
Json restored(const GangKind& kind, const Json& gang, const Json& workload) {
  Json next = gang;
  for (const Json& set : workload["spec"]["podSets"].items()) {
    Json* part = part_named(kind, next, set["name"].string());
    if (part == nullptr || !set["template"].is_object()) continue;
    Json& pods = reach(*part, kind.pods);
    if (!pods["metadata"]["labels"].has(kPodSetLabel)) continue;  // nothing was put into it: it is its user's
    const Json& was = set["template"];
    for (const char* field : {"nodeSelector", "tolerations", "schedulingGates"}) {
      if (was["spec"][field].is_null()) pods.child("spec").erase(field);
      else pods.child("spec").set(field, was["spec"][field]);
    }
    for (const char* field : {"labels", "annotations"}) {
      if (!was["metadata"][field].members().empty()) pods.child("metadata").set(field, was["metadata"][field]);
      else if (Json* metadata = pods.find("metadata"); metadata != nullptr && metadata->is_object()) metadata->erase(field);
    }
  }
  return next;
}

Json started(const GangKind& kind, const Json& gang, const Json& workload, const FlavorsByName& flavors, std::string& problem) {
  Json next = restored(kind, gang, workload);
  reach(next, kind.suspend) = Json(false);
  for (const Json& set : workload["spec"]["podSets"].items()) {
    Json* part = part_named(kind, next, set["name"].string());
    if (part == nullptr) continue;
    Json& pods = reach(*part, kind.pods);
    problem = put_flavors(pods, workload, set["name"].string(), flavors);
    if (!problem.empty()) break;
    put_place_gate(pods, workload, set["name"].string());
  }
  return next;
}

// Back to where it was before it ran. Nothing: it is there; a plan without a step: its pods are still going.
std::optional<OwnerPlan> stop(const GangKind& kind, const Json& gang, const Json& workload, const std::string& why) {
  if (!is_suspended(kind, gang)) {
    Json next = gang;
    reach(next, kind.suspend) = Json(true);
    return take_step(What::UpdateOwner, std::move(next), Note{false, "Stopped", why});
  }
  if (is_active(kind, gang)) return OwnerPlan{};
  if (!holds_quota(workload)) return std::nullopt;  // nothing was put into it
  Json next = restored(kind, gang, workload);
  if (next == gang) return std::nullopt;
  return take_step(What::UpdateOwner, std::move(next));
}

bool is_well_formed(const GangKind& kind, const Json& gang) {
  if (!gang["spec"].is_object() || !well_formed(gang, {"metadata", "metadata.labels", "metadata.annotations", "status"}, {})) return false;
  if (kind.suspend.starts_with("spec.runPolicy") && !well_formed(gang, {"spec.runPolicy"}, {})) return false;
  const Json& parts = gang.at(kind.parts.c_str());
  if (!parts.is_null() && (kind.order.empty() ? !parts.is_array() : !parts.is_object())) return false;
  const std::vector<Part> all = parts_of(kind, gang);
  return std::all_of(all.begin(), all.end(), [&](const Part& part) {
    if (!part.json->is_object() || !well_formed(*part.json, {"template"}, {})) return false;
    const Json& pods = part.json->at(kind.pods.c_str());
    return pods.is_null() || (pods.is_object() && well_formed(pods, {"metadata", "metadata.labels", "metadata.annotations", "spec", "spec.nodeSelector"}, {"spec.tolerations", "spec.schedulingGates"}));
  });
}

// With what it says of how long it runs.
Json with_times(const GangKind& kind, const Json& gang, Json workload) {
  if (const Json& said = gang["metadata"]["annotations"][kRunTime]; said.is_string()) workload.child("metadata").child("annotations").set(kRunTime, said);
  if (!kind.deadline.empty()) (void)put_time_limit(workload, gang.at(kind.deadline.c_str()).integer());
  return workload;
}

Json workload_for(const GangKind& kind, const Json& gang, const JobPriority& priority) {
  Json owner = kube::owner_reference(gang);
  owner.set("apiVersion", kind.resource.api_version()).set("kind", kind.resource.kind);
  return new_workload({kube::space_of(gang), gang_workload_name(kind, gang)}, kube::uid_of(gang), Json::array({std::move(owner)}), gang["metadata"]["labels"][kQueueLabel].string(), pod_sets_of(kind, gang), priority);
}

OwnerPlan plan_running(const GangKind& kind, const GangInput& in, const Json& workload) {
  const Json& gang = in.gang;
  if (!same_gang_wishes(pod_sets_of(kind, restored(kind, gang, workload)), workload["spec"]["podSets"]))
    return take_step(What::DeleteWorkload, workload, Note{true, "Stopped", fmt::format("The {} was changed after it was admitted: it is queued anew", kind.resource.kind)});
  if (is_suspended(kind, gang)) {
    if (is_active(kind, gang)) return {};
    std::string problem;
    Json next = started(kind, gang, workload, in.flavors, problem);
    if (!problem.empty()) return trouble(std::move(problem));
    return take_step(What::UpdateOwner, std::move(next), Note{false, "Started", fmt::format("Admitted by clusterQueue {}", workload["status"]["admission"]["clusterQueue"].string())});
  }
  if (auto follows = follow_class(workload, in.priority)) return std::move(*follows);
  if (auto told = tell_checkpoints(workload, gang)) return std::move(*told);
  if (Json next = with_times(kind, gang, workload); !(next == workload)) return take_step(What::UpdateWorkload, std::move(next));
  if (Json reclaimable = reclaimable_of(kind, gang); !(reclaimable.items() == workload["status"]["reclaimablePods"].items())) {
    Json next = workload;
    if (reclaimable.items().empty()) next.child("status").erase("reclaimablePods");
    else next.child("status").set("reclaimablePods", std::move(reclaimable));
    return take_step(What::WorkloadStatus, std::move(next));
  }
  return tell_ready(workload, in.tells_ready, all_ready(kind, gang), in.now).value_or(OwnerPlan{});
}

OwnerPlan plan_waiting(const GangKind& kind, const GangInput& in, const Json& workload) {
  if (!is_suspended(kind, in.gang)) return *stop(kind, in.gang, workload, "Not admitted by cluster queue");
  if (!in.priority.problem.empty()) return trouble(in.priority.problem);
  if (holds_quota(workload)) {  // it waits for its checks; what is changed meanwhile is asked for anew
    if (same_gang_wishes(pod_sets_of(kind, in.gang), workload["spec"]["podSets"])) return {};
    return take_step(What::DeleteWorkload, workload, Note{true, "Stopped", fmt::format("The {} was changed while its admission checks were asked: it is queued anew", kind.resource.kind)});
  }
  if (std::string problem = problem_of(kind, in.gang); !problem.empty()) return trouble(std::move(problem));
  Json wanted = workload_for(kind, in.gang, in.priority);
  if (std::string problem = put_run_limit(wanted, in.gang); !problem.empty()) return trouble(std::move(problem));
  Json next = with_times(kind, in.gang, with_wishes(workload, wanted, digest));
  if (next == workload) return {};
  return take_step(What::UpdateWorkload, std::move(next), Note{false, "UpdatedWorkload", fmt::format("Updated not matching Workload for suspended job: {}", kube::key_of(workload).text())});
}

}  // namespace

bool same_gang_wishes(const Json& a, const Json& b) {
  return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), [](const Json& x, const Json& y) { return digest(x) == digest(y); });
}

const std::vector<GangKind>& gang_kinds() {
  static const std::vector<GangKind> kinds{
      {.resource = {"jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", true}, .suspend = "spec.suspend", .parts = "spec.replicatedJobs", .order = {}, .pods = "template.spec.template", .of_jobs = true, .pods_label = "jobset.sigs.k8s.io/jobset-name",
       .index_label = "batch.kubernetes.io/job-completion-index", .sub_index_label = "jobset.sigs.k8s.io/job-index", .succeeded = {"Completed"}, .failed = {"Failed"}, .running = {}, .deadline = {}, .statuses = "status.replicatedJobsStatus"},
      {.resource = {"sagemaker.amazonaws.com", "v1", "hyperpodpytorchjobs", "HyperPodPyTorchJob", true}, .suspend = "spec.runPolicy.suspend", .parts = "spec.replicaSpecs", .order = {}, .pods = "template", .of_jobs = false, .pods_label = {},
       .index_label = {}, .sub_index_label = {}, .succeeded = {"Completed", "Succeeded"}, .failed = {"Failed"}, .running = {"Running", "PodsRunning"}, .deadline = "spec.runPolicy.activeDeadlineSeconds", .statuses = {}},
      {.resource = {"kubeflow.org", "v1", "pytorchjobs", "PyTorchJob", true}, .suspend = "spec.runPolicy.suspend", .parts = "spec.pytorchReplicaSpecs", .order = {"Master", "Worker"}, .pods = "template", .of_jobs = false,
       .pods_label = "training.kubeflow.org/job-name", .index_label = "training.kubeflow.org/replica-index", .sub_index_label = {}, .succeeded = {"Succeeded"}, .failed = {"Failed"}, .running = {"Running"}, .deadline = "spec.runPolicy.activeDeadlineSeconds", .statuses = "status.replicaStatuses"},
      {.resource = {"kubeflow.org", "v2beta1", "mpijobs", "MPIJob", true}, .suspend = "spec.runPolicy.suspend", .parts = "spec.mpiReplicaSpecs", .order = {"Launcher", "Worker"}, .pods = "template", .of_jobs = false,
       .pods_label = "training.kubeflow.org/job-name", .index_label = "training.kubeflow.org/replica-index", .sub_index_label = {}, .succeeded = {"Succeeded"}, .failed = {"Failed"}, .running = {"Running"}, .deadline = "spec.runPolicy.activeDeadlineSeconds", .statuses = "status.replicaStatuses"},
  };
  return kinds;
}

bool is_gang(const std::string& api_version, const std::string& kind) {
  const std::string group = api_version.substr(0, api_version.find('/'));
  return std::ranges::any_of(gang_kinds(), [&](const GangKind& one) { return one.resource.kind == kind && one.resource.group == group; });
}

std::string gang_workload_name(const GangKind& kind, const Json& gang) { return name_of_workload(kind.resource.kind, kind.resource.group, gang); }

std::string priority_class_of_pods(const GangKind& kind, const Json& gang) {
  if (const std::string& said = gang["spec"]["runPolicy"]["schedulingPolicy"]["priorityClass"].string(); !said.empty()) return said;
  for (const Part& part : parts_of(kind, gang))
    if (const std::string& name = part.json->at(kind.pods.c_str())["spec"]["priorityClassName"].string(); !name.empty()) return name;
  return "";
}

OwnerPlan plan_gang(const GangKind& kind, const GangInput& in) {
  const Json& gang = in.gang;
  if (!gang.is_null() && !is_well_formed(kind, gang)) return {};
  if (!std::all_of(in.workloads.begin(), in.workloads.end(), is_workload)) return {};
  const bool managed = !gang.is_null() && !gang["metadata"]["labels"][kQueueLabel].string().empty();
  const Json* workload = nullptr;
  for (const Json& one : in.workloads) {
    const Json* owner = kube::controller_of(one);
    const bool ours = managed && owner != nullptr && (*owner)["uid"].string() == kube::uid_of(gang);
    if (ours && (workload == nullptr || kube::name_of(one) == gang_workload_name(kind, gang))) workload = &one;
  }
  for (const Json& one : in.workloads)
    if (&one != workload)
      if (auto gone = let_go(one)) return std::move(*gone);
  if (!managed) return {};
  const bool succeeded = has_condition(gang, kind.succeeded);
  if (succeeded || has_condition(gang, kind.failed)) {
    if (workload == nullptr) return {};
    std::string message;
    for (const std::string& type : succeeded ? kind.succeeded : kind.failed)
      if (const Json* found = kube::find_condition(gang, type.c_str()); message.empty() && found != nullptr) message = (*found)["message"].string();
    return finish(*workload, succeeded, !message.empty() ? message : succeeded ? "Job finished successfully" : "Job failed", in.now).value_or(OwnerPlan{});
  }
  if (kube::deleting(gang)) return {};  // its pods are still there; the Workload goes after it
  if (workload == nullptr) {
    if (!is_suspended(kind, gang)) return *stop(kind, gang, Json(), "Held until its queue admits it");
    if (!in.priority.problem.empty()) return trouble(in.priority.problem);
    if (std::string problem = problem_of(kind, gang); !problem.empty()) return trouble(std::move(problem));
    Json made = with_times(kind, gang, workload_for(kind, gang, in.priority));
    if (std::string problem = put_run_limit(made, gang); !problem.empty()) return trouble(std::move(problem));
    const std::string name = kube::key_of(made).text();
    return take_step(What::CreateWorkload, std::move(made), Note{false, "CreatedWorkload", "Created Workload: " + name});
  }
  if (kube::deleting(*workload) || (holds_quota(*workload) && kube::condition_is_true(*workload, "Evicted"))) {
    if (auto first = stop(kind, gang, *workload, kube::deleting(*workload) ? "Its Workload was deleted" : stop_reason(*workload))) return std::move(*first);
    return kube::deleting(*workload) ? let_go(*workload).value_or(OwnerPlan{}) : give_back(*workload, in.now);
  }
  if (holds_quota(*workload) && kube::condition_is_true(*workload, "Admitted")) return plan_running(kind, in, *workload);
  return plan_waiting(kind, in, *workload);
}

}  // namespace fairlead::governance
