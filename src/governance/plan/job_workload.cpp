// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/job_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/encoding.h"
#include "governance/plan/gang_workload.h"
#include "governance/plan/pod_places.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using What = OwnerStep::What;

constexpr const char* kPodSet = "main";
// Partial admission, as Kueue has it: with how few pods at once the Job will do; "true": its completions go with them.
constexpr const char *kMinParallelism = "kueue.x-k8s.io/job-min-parallelism", *kSyncCompletions = "kueue.x-k8s.io/job-completions-equal-parallelism";

// The Job controller's own: of this Job, not of what it asks.
bool is_managed_label(const std::string& name) { return name == "job-name" || name == "controller-uid" || name == "batch.kubernetes.io/job-name" || name == "batch.kubernetes.io/controller-uid"; }

Json without_managed(const Json& labels) {
  Json out = Json::object();
  for (const auto& [name, value] : labels.members())
    if (!is_managed_label(name)) out.set(name, value);
  return out;
}

Json template_of(const Json& job) {
  const Json& from = job["spec"]["template"];
  Json metadata = Json::object();
  if (Json labels = without_managed(from["metadata"]["labels"]); !labels.members().empty()) metadata.set("labels", std::move(labels));
  if (!from["metadata"]["annotations"].members().empty()) metadata.set("annotations", from["metadata"]["annotations"]);
  Json out = Json::object();
  if (!metadata.members().empty()) out.set("metadata", std::move(metadata));
  return out.set("spec", from["spec"]);
}

std::int64_t pods_of(const Json& job) {
  const std::int64_t parallelism = job["spec"]["parallelism"].integer(1);
  const Json& completions = job["spec"]["completions"];
  return completions.is_null() ? parallelism : std::min(parallelism, completions.integer(parallelism));
}

// How few will do; none: all are needed, or the annotation says nothing that can be.
std::optional<std::int64_t> fewest_of(const Json& job) {
  const std::string& text = job["metadata"]["annotations"][kMinParallelism].string();
  std::int64_t least = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), least);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() || least < 1 || least >= pods_of(job)) return std::nullopt;
  return least;
}
bool syncs_completions(const Json& job) { return job["metadata"]["annotations"][kSyncCompletions].string() == "true"; }

// What of these annotations cannot be; empty: nothing.
std::string annotation_problem(const Json& job) {
  const Json& annotations = job["metadata"]["annotations"];
  Json pod_set = Json::object();
  if (std::string problem = put_topology_request(pod_set, job["spec"]["template"]["metadata"]); !problem.empty()) return "spec.template." + problem;
  if (annotations.has(kMinParallelism) && !fewest_of(job))
    return pods_of(job) < 2 ? fmt::format("metadata.annotations[{}]: of {} pods there are no fewer; remove it, or raise spec.parallelism (and spec.completions)", kMinParallelism, pods_of(job))
                            : fmt::format("metadata.annotations[{}]: \"{}\" is given, and a number from 1 to {}, less than the {} pods that run at once, is expected", kMinParallelism, annotations[kMinParallelism].string(), pods_of(job) - 1, pods_of(job));
  if (!annotations.has(kSyncCompletions)) return "";
  if (const std::string& text = annotations[kSyncCompletions].string(); text != "true" && text != "false") return fmt::format("metadata.annotations[{}]: \"{}\" is given, and true or false is expected", kSyncCompletions, text);
  if (!syncs_completions(job)) return "";
  if (job["spec"]["completionMode"].string() != "Indexed") return fmt::format("metadata.annotations[{}]: only a Job with spec.completionMode Indexed may change its completions", kSyncCompletions);
  if (job["spec"]["completions"].integer(-1) != job["spec"]["parallelism"].integer(1))
    return fmt::format("metadata.annotations[{}]: spec.completions and spec.parallelism are to be equal, and they are {} and {}", kSyncCompletions, job["spec"]["completions"].integer(-1), job["spec"]["parallelism"].integer(1));
  return "";
}

Json pod_set_of(const Json& job) {
  Json out = Json::object({{"name", kPodSet}, {"count", pods_of(job)}, {"template", template_of(job)}});
  if (const auto least = fewest_of(job)) out.set("minCount", *least);
  if (put_topology_request(out, job["spec"]["template"]["metadata"]).empty() && out["topologyRequest"].is_object()) out.child("topologyRequest").set("podIndexLabel", "batch.kubernetes.io/job-completion-index");
  return out;
}

// Of a Workload that may run with fewer pods: how many it was given; none: all or none.
std::optional<std::int64_t> given_of(const Json& workload) {
  const auto &sets = workload["spec"]["podSets"].items(), &given = workload["status"]["admission"]["podSetAssignments"].items();
  if (sets.empty() || given.empty() || sets.front()["minCount"].is_null() || !given.front()["count"].is_number()) return std::nullopt;
  return given.front()["count"].integer();
}

void set_parallelism(Json& job, std::int64_t count) {
  job.child("spec").set("parallelism", count);
  if (syncs_completions(job)) job.child("spec").set("completions", count);
}

std::string digest(const Json& pod_set) { return shape_of_pod_set(pod_set) + "\n" + kube::print_json(without_managed(pod_set["template"]["metadata"]["labels"])) + "\n" + (pod_set["template"]["metadata"]["annotations"].members().empty() ? "" : kube::print_json(pod_set["template"]["metadata"]["annotations"])); }

// How many of the indexes below `completions` are in one of two lists such as "0-3,5". What is no interval is passed over.
std::int64_t ended_indexes(const std::string& done, const std::string& failed, std::int64_t completions) {
  std::vector<std::pair<std::int64_t, std::int64_t>> intervals;
  for (const std::string& list : {done, failed})
    for (const std::string& interval : split(list, ',')) {
      std::int64_t first = 0, last = 0;
      const char *begin = interval.data(), *end = begin + interval.size();
      const auto [at, error] = std::from_chars(begin, end, first);
      if (error != std::errc{}) continue;
      last = first;
      if (at != end && (*at != '-' || std::from_chars(at + 1, end, last).ec != std::errc{})) continue;
      if (first >= 0 && first <= last && first < completions) intervals.emplace_back(first, std::min(last, completions - 1));
    }
  std::sort(intervals.begin(), intervals.end());
  std::int64_t count = 0, next = 0;  // those below `next` are counted
  for (const auto& [first, last] : intervals) {
    count += std::max<std::int64_t>(0, last - std::max(first, next) + 1);
    next = std::max(next, last + 1);
  }
  return count;
}

Json reclaimable_of(const Json& job, const Json& workload) {
  const Json &spec = job["spec"], &status = job["status"];
  const std::int64_t parallelism = spec["parallelism"].integer(1);
  const std::int64_t completions = spec["completions"].is_null() ? parallelism : spec["completions"].integer();
  const std::int64_t ended = spec["completionMode"].string() == "Indexed" ? ended_indexes(status["completedIndexes"].string(), status["failedIndexes"].string(), completions) : status["succeeded"].integer();
  const std::int64_t left = std::max<std::int64_t>(completions - ended, 0);
  if (parallelism <= 1 || ended == 0 || left >= parallelism) return Json::array();
  // Counted from all that were asked for, also where fewer run.
  const std::int64_t full = workload["spec"]["podSets"].items().front()["count"].integer(parallelism), all = given_of(workload).value_or(full) < full ? full : parallelism;
  return Json::array({Json::object({{"name", kPodSet}, {"count", all - left}})});
}

bool is_finished(const Json& job) { return kube::condition_is_true(job, "Complete") || kube::condition_is_true(job, "Failed"); }
bool is_suspended(const Json& job) { return job["spec"]["suspend"].boolean(); }
// Do any of its pods run, or end just now? They have its quota until they are gone.
bool is_active(const Json& job) { return job["status"]["active"].integer() > 0 || job["status"]["terminating"].integer() > 0; }

bool all_ready(const Json& job) {
  const Json& status = job["status"];
  return status["succeeded"].integer() + status["ready"].integer() + static_cast<std::int64_t>(status["uncountedTerminatedPods"]["succeeded"].items().size()) >= pods_of(job);
}

// What a Workload kept of the template before flavors were put into it, written back. Where none were, what is there is its user's.
Json restored(const Json& job, const Json& workload) {
  if (!job["spec"]["template"]["metadata"]["labels"].has(kPodSetLabel)) return job;
  const Json& was = workload["spec"]["podSets"].items().empty() ? Json() : workload["spec"]["podSets"].items().front()["template"];
  if (!was.is_object()) return job;
  Json next = job;
  // Fewer pods than it asked for: unless somebody else has changed the number since.
  const std::int64_t full = workload["spec"]["podSets"].items().front()["count"].integer(1);
  if (const auto given = given_of(workload); given && *given != full && job["spec"]["parallelism"].integer(1) == *given) set_parallelism(next, full);
  Json& pods = next.child("spec").child("template");
  Json& spec = pods.child("spec");
  for (const char* field : {"nodeSelector", "tolerations", "schedulingGates"}) {
    if (was["spec"][field].is_null()) spec.erase(field);
    else spec.set(field, was["spec"][field]);
  }
  Json labels = without_managed(was["metadata"]["labels"]);
  for (const auto& [name, value] : job["spec"]["template"]["metadata"]["labels"].members())
    if (is_managed_label(name)) labels.set(name, value);
  if (const Json& notes = was["metadata"]["annotations"]; !(notes == pods["metadata"]["annotations"])) {
    if (!notes.members().empty()) pods.child("metadata").set("annotations", notes);
    else if (Json* metadata = pods.find("metadata"); metadata != nullptr && metadata->is_object()) metadata->erase("annotations");
  }
  if (!labels.members().empty()) pods.child("metadata").set("labels", std::move(labels));
  else if (Json* metadata = pods.find("metadata"); metadata != nullptr && metadata->is_object()) metadata->erase("labels");
  return next;
}

Json started(const Json& job, const Json& workload, const FlavorsByName& flavors, std::string& problem) {
  Json next = restored(job, workload);
  next.child("spec").set("suspend", false);
  if (const auto given = given_of(workload); given && *given < pods_of(next)) set_parallelism(next, *given);
  Json& pods = next.child("spec").child("template");
  problem = put_flavors(pods, workload, kPodSet, flavors);
  put_place_gate(pods, workload, kPodSet);
  return next;
}

// The Job back to where it was before it ran. Nothing: it is there; wait: its pods are still going.
std::optional<OwnerPlan> stop(const Json& job, const Json& workload, const std::string& why) {
  if (!is_suspended(job)) {
    Json next = job;
    next.child("spec").set("suspend", true);
    return take_step(What::UpdateOwner, std::move(next), Note{false, "Stopped", why});
  }
  if (is_active(job)) return OwnerPlan{};
  if (!holds_quota(workload)) return std::nullopt;  // nothing was put into it
  Json next = restored(job, workload);
  if (next == job) return std::nullopt;
  if (!job["status"]["startTime"].is_null()) {  // where the template may be changed is asked by this field alone
    Json reset = job;
    reset.child("status").erase("startTime");
    return take_step(What::OwnerStatus, std::move(reset));
  }
  return take_step(What::UpdateOwner, std::move(next));
}

bool is_job(const Json& job) {
  return job["spec"]["template"]["spec"].is_object() && well_formed(job, {"metadata", "metadata.labels", "metadata.annotations", "status", "spec.template.metadata", "spec.template.metadata.labels", "spec.template.metadata.annotations", "spec.template.spec.nodeSelector"}, {"spec.template.spec.tolerations"});
}

OwnerPlan plan_running(const JobInput& in, const Json& workload) {
  const Json& job = in.job;
  if (digest(pod_set_of(restored(job, workload))) != digest(workload["spec"]["podSets"].items().empty() ? Json() : workload["spec"]["podSets"].items().front()))
    return take_step(What::DeleteWorkload, workload, Note{true, "Stopped", "The Job was changed after it was admitted: it is queued anew"});
  if (is_suspended(job)) {
    if (!job["status"]["startTime"].is_null()) {
      if (is_active(job)) return {};
      Json reset = job;
      reset.child("status").erase("startTime");
      return take_step(What::OwnerStatus, std::move(reset));
    }
    std::string problem;
    Json next = started(job, workload, in.flavors, problem);
    if (!problem.empty()) return trouble(std::move(problem));
    return take_step(What::UpdateOwner, std::move(next), Note{false, "Started", fmt::format("Admitted by clusterQueue {}", workload["status"]["admission"]["clusterQueue"].string())});
  }
  if (auto follows = follow_class(workload, in.priority)) return std::move(*follows);
  if (auto told = tell_checkpoints(workload, job)) return std::move(*told);
  if (Json reclaimable = reclaimable_of(job, workload); !(reclaimable.items() == workload["status"]["reclaimablePods"].items())) {
    Json next = workload;
    if (reclaimable.items().empty()) next.child("status").erase("reclaimablePods");
    else next.child("status").set("reclaimablePods", std::move(reclaimable));
    return take_step(What::WorkloadStatus, std::move(next));
  }
  return tell_ready(workload, in.tells_ready, all_ready(job), in.now).value_or(OwnerPlan{});
}

OwnerPlan plan_waiting(const JobInput& in, const Json& workload) {
  if (!is_suspended(in.job)) return *stop(in.job, workload, "Not admitted by cluster queue");
  if (!in.priority.problem.empty()) return trouble(in.priority.problem);
  if (holds_quota(workload)) {  // it waits for its checks; what is changed meanwhile is asked for anew
    const auto& sets = workload["spec"]["podSets"].items();
    if (!sets.empty() && digest(pod_set_of(in.job)) == digest(sets.front())) return {};
    return take_step(What::DeleteWorkload, workload, Note{true, "Stopped", "The Job was changed while its admission checks were asked: it is queued anew"});
  }
  if (std::string problem = annotation_problem(in.job); !problem.empty()) return trouble(std::move(problem));
  Json wanted = workload_for(in.job, in.priority);
  if (std::string problem = put_run_limit(wanted, in.job); !problem.empty()) return trouble(std::move(problem));
  Json next = with_wishes(workload, wanted, digest);
  if (next == workload) return {};
  return take_step(What::UpdateWorkload, std::move(next), Note{false, "UpdatedWorkload", fmt::format("Updated not matching Workload for suspended job: {}", kube::key_of(workload).text())});
}

}  // namespace

std::string workload_name(const Json& job) { return name_of_workload("Job", "batch", job); }

Json workload_for(const Json& job, const JobPriority& priority) {
  Json owner = kube::owner_reference(job);
  owner.set("apiVersion", "batch/v1").set("kind", "Job");
  return new_workload({kube::space_of(job), workload_name(job)}, kube::uid_of(job), Json::array({std::move(owner)}), job["metadata"]["labels"][kQueueLabel].string(), Json::array({pod_set_of(job)}), priority);
}

OwnerPlan plan_job(const JobInput& in) {
  const Json& job = in.job;
  if (!job.is_null() && !is_job(job)) return {};
  if (!std::all_of(in.workloads.begin(), in.workloads.end(), is_workload)) return {};
  // One of a JobSet's Jobs is held, and let go, with the JobSet.
  const Json* controller = job.is_null() ? nullptr : kube::controller_of(job);
  const bool of_gang = controller != nullptr && is_gang((*controller)["apiVersion"].string(), (*controller)["kind"].string());
  const bool managed = !job.is_null() && !of_gang && !job["metadata"]["labels"][kQueueLabel].string().empty();
  const Json* workload = nullptr;
  for (const Json& one : in.workloads) {
    const Json* owner = kube::controller_of(one);
    const bool ours = managed && owner != nullptr && (*owner)["uid"].string() == kube::uid_of(job);
    if (ours && (workload == nullptr || kube::name_of(one) == workload_name(job))) workload = &one;
  }
  for (const Json& one : in.workloads)
    if (&one != workload)
      if (auto gone = let_go(one)) return std::move(*gone);
  if (!managed) return {};
  if (is_finished(job)) {
    if (workload == nullptr) return {};
    const bool succeeded = kube::condition_is_true(job, "Complete");
    const std::string& message = (*kube::find_condition(job, succeeded ? "Complete" : "Failed"))["message"].string();
    return finish(*workload, succeeded, !message.empty() ? message : succeeded ? "Job finished successfully" : "Job failed", in.now).value_or(OwnerPlan{});
  }
  if (kube::deleting(job)) return {};  // its pods are still there; the Workload goes after it
  if (workload == nullptr) {
    if (!is_suspended(job)) return *stop(job, Json(), "Held until its queue admits it");
    if (!in.priority.problem.empty()) return trouble(in.priority.problem);
    if (std::string problem = annotation_problem(job); !problem.empty()) return trouble(std::move(problem));
    Json made = workload_for(job, in.priority);
    if (std::string problem = put_run_limit(made, job); !problem.empty()) return trouble(std::move(problem));
    const std::string name = kube::key_of(made).text();
    return take_step(What::CreateWorkload, std::move(made), Note{false, "CreatedWorkload", "Created Workload: " + name});
  }
  if (kube::deleting(*workload) || (holds_quota(*workload) && kube::condition_is_true(*workload, "Evicted"))) {
    if (auto first = stop(job, *workload, kube::deleting(*workload) ? "Its Workload was deleted" : stop_reason(*workload))) return std::move(*first);
    return kube::deleting(*workload) ? let_go(*workload).value_or(OwnerPlan{}) : give_back(*workload, in.now);
  }
  if (holds_quota(*workload) && kube::condition_is_true(*workload, "Admitted")) return plan_running(in, *workload);
  return plan_waiting(in, *workload);
}

}  // namespace fairlead::governance
