// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/owner_workload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/encoding.h"
#include "governance/plan/kueue_read.h"
#include "governance/plan/pods_ready.h"
#include "governance/plan/run_time.h"

namespace fairlead::governance {

using kube::Json;
using What = OwnerStep::What;

namespace {

constexpr const char *kOwnClass = "WorkloadPriorityClass", *kPodClass = "PriorityClass";

}  // namespace

JobPriority priority_from(const PriorityClasses& classes, const std::string& label, const std::string& class_of_pods, const std::string& where) {
  JobPriority out;
  const auto take = [&](const char* kind, const Json& found) {
    out.value = found["value"].integer();
    out.ref = Json::object({{"group", kind == kOwnClass ? "kueue.x-k8s.io" : "scheduling.k8s.io"}, {"kind", kind}, {"name", kube::name_of(found)}});
  };
  const auto named = [&](const char* kind, const std::string& name, const std::string& field) {
    if (const auto found = classes.find(kind, name)) return take(kind, *found);
    std::vector<std::string> there;
    classes.each(kind, [&](const Json& one) { there.push_back(kube::name_of(one)); });
    std::sort(there.begin(), there.end());
    if (there.size() > 20) there.resize(20);
    out.problem = fmt::format("{}: there is no {} {}; there are: {}", field, kind, name, there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", ")));
  };
  if (!label.empty()) {
    named(kOwnClass, label, std::string("metadata.labels[") + kPriorityLabel + "]");
  } else if (!class_of_pods.empty()) {
    named(kPodClass, class_of_pods, where + ".priorityClassName");
  } else {
    std::optional<Json> least;
    classes.each(kPodClass, [&](const Json& one) {
      const auto rank = [](const Json& it) { return std::pair(it["value"].integer(), kube::name_of(it)); };
      if (one["globalDefault"].boolean() && (!least || rank(one) < rank(*least))) least = one;
    });
    if (least) take(kPodClass, *least);
  }
  return out;
}

bool of_owner(What what) { return what == What::UpdateOwner || what == What::OwnerStatus || what == What::DeleteOwner; }

std::string text(What what, const std::string& owner_kind) {
  switch (what) {
    case What::CreateWorkload: return "create Workload";
    case What::UpdateWorkload: return "update Workload";
    case What::WorkloadStatus: return "write status of Workload";
    case What::DeleteWorkload: return "delete Workload";
    case What::UpdateOwner: return "update " + owner_kind;
    case What::OwnerStatus: return "write status of " + owner_kind;
    case What::DeleteOwner: return "delete " + owner_kind;
  }
  return "";
}

OwnerPlan take_step(What what, Json object, std::optional<Note> note) { return {.step = OwnerStep{.what = what, .object = std::move(object), .note = std::move(note)}, .problem = {}}; }
OwnerPlan trouble(std::string problem) { return {.step = {}, .problem = std::move(problem)}; }

bool well_formed(const Json& object, std::initializer_list<const char*> objects, std::initializer_list<const char*> lists) {
  const auto fits = [&](const char* path, Json::Type type) {
    const Json& at = object.at(path);
    return at.is_null() || at.type() == type;
  };
  return std::all_of(objects.begin(), objects.end(), [&](const char* path) { return fits(path, Json::Type::Object); }) &&
         std::all_of(lists.begin(), lists.end(), [&](const char* path) { return fits(path, Json::Type::Array); });
}
bool is_workload(const Json& workload) { return workload["spec"].is_object() && well_formed(workload, {"metadata", "metadata.annotations", "status"}, {"spec.podSets", "metadata.ownerReferences"}); }

std::string name_of_workload(const std::string& kind, const std::string& group, const Json& owner) {
  constexpr std::size_t longest = 253 - 6;
  std::string prefix = kind;
  for (char& one : prefix) one = static_cast<char>(one >= 'A' && one <= 'Z' ? one - 'A' + 'a' : one);
  prefix = (prefix + "-" + kube::name_of(owner)).substr(0, longest);
  return prefix + "-" + hex(sha1(fmt::format("{}\n{}\n{}\n{}", kind, group, kube::name_of(owner), kube::uid_of(owner)))).substr(0, 5);
}

Json new_workload(const kube::ObjectKey& key, const std::string& uid_of_job, Json owners, const std::string& queue, Json pod_sets, const JobPriority& priority) {
  Json spec = Json::object({{"queueName", queue}, {"podSets", std::move(pod_sets)}, {"priority", priority.value}});
  if (!priority.ref.is_null()) spec.set("priorityClassRef", priority.ref);
  Json labels = Json::object();
  if (uid_of_job.size() <= 63) labels.set(kJobUidLabel, uid_of_job);
  return Json::object({{"apiVersion", "kueue.x-k8s.io/v1beta2"},
                       {"kind", "Workload"},
                       {"metadata", Json::object({{"name", key.name}, {"namespace", key.space}, {"labels", std::move(labels)}, {"finalizers", Json::array({kInUse})}, {"ownerReferences", std::move(owners)}})},
                       {"spec", std::move(spec)}});
}

std::string put_run_limit(Json& workload, const Json& owner) {
  std::string problem;
  if (const auto seconds = max_execution_seconds(owner, problem)) workload.child("spec").set("maximumExecutionTimeSeconds", *seconds);
  return problem;
}

Json with_wishes(const Json& workload, const Json& wanted, std::string (*digest)(const Json& pod_set)) {
  Json next = workload;
  Json& spec = next.child("spec");
  const Json &now = workload["spec"], &then = wanted["spec"];
  const auto &sets = now["podSets"].items(), &others = then["podSets"].items();
  if (!std::equal(sets.begin(), sets.end(), others.begin(), others.end(), [&](const Json& a, const Json& b) { return digest(a) == digest(b); })) spec.set("podSets", then["podSets"]);
  for (const char* field : {"queueName", "priority", "priorityClassRef", "maximumExecutionTimeSeconds"}) {
    if (then[field] == now[field]) continue;
    if (then[field].is_null()) spec.erase(field);
    else spec.set(field, then[field]);
  }
  return next;
}

std::optional<OwnerPlan> follow_class(const Json& workload, const JobPriority& priority) {
  const Json& spec = workload["spec"];
  if (!priority.problem.empty() || priority.ref["kind"].string() != kOwnClass || !(priority.ref == spec["priorityClassRef"]) || spec["priority"].integer() == priority.value) return std::nullopt;
  Json next = workload;
  next.child("spec").set("priority", priority.value);
  return take_step(What::UpdateWorkload, std::move(next), Note{false, "UpdatedWorkload", fmt::format("Its WorkloadPriorityClass {} has the value {} now", priority.ref["name"].string(), priority.value)});
}

std::string shape_of_pod_set(const Json& pod_set) {
  const auto read = read_pod_set(pod_set, "podSet");
  return fmt::format("{}\n{}", read ? read->shape : read.error().message, pod_set["count"].integer(1));
}

std::optional<OwnerPlan> let_go(const Json& workload) {
  if (!kube::deleting(workload)) return take_step(What::DeleteWorkload, workload);
  if (!kube::has_finalizer(workload, kInUse)) return std::nullopt;
  Json next = workload;
  kube::remove_finalizer(next, kInUse);
  OwnerPlan out = take_step(What::UpdateWorkload, std::move(next));
  out.step->gives_back = holds_quota(workload) && !kube::condition_is_true(workload, "Finished");
  return out;
}

OwnerPlan give_back(const Json& workload, Instant now) {
  Json next = workload;
  tell_stopped(next, now);
  OwnerPlan out = take_step(What::WorkloadStatus, std::move(next));
  out.step->gives_back = true;
  return out;
}

std::optional<OwnerPlan> finish(const Json& workload, bool succeeded, const std::string& message, Instant now) {
  Json next = workload;
  if (!kube::condition_is_true(workload, "Finished")) {
    tell_finished(next, succeeded, message, now);
    return take_step(What::WorkloadStatus, std::move(next), Note{false, "FinishedWorkload", fmt::format("Workload '{}' is declared finished", kube::key_of(workload).text())});
  }
  if (!kube::has_finalizer(workload, kInUse)) return std::nullopt;
  kube::remove_finalizer(next, kInUse);
  return take_step(What::UpdateWorkload, std::move(next));
}

std::optional<OwnerPlan> tell_checkpoints(const Json& workload, const Json& owner) {
  Json next = workload;
  for (const char* name : {kCheckpointEvery, kCheckpointedAt})
    if (const Json& said = owner["metadata"]["annotations"][name]; said.is_string() && !(said == workload["metadata"]["annotations"][name])) next.child("metadata").child("annotations").set(name, said);
  if (next == workload) return std::nullopt;
  return take_step(What::UpdateWorkload, std::move(next));
}

std::optional<OwnerPlan> tell_ready(const Json& workload, bool wanted, bool ready, Instant now) {
  if (!wanted) return std::nullopt;
  Json next = workload;
  if (!tell_pods_ready(next, ready, now)) return std::nullopt;
  return take_step(What::WorkloadStatus, std::move(next));
}

std::string stop_reason(const Json& workload) {
  const Json* evicted = kube::find_condition(workload, "Evicted");
  return evicted == nullptr ? "" : (*evicted)["message"].string();
}

// What admission checks add. They may not contradict what is there, nor one another.
static std::string put_updates(Json& pods, const Json& workload, const std::string& pod_set) {
  for (const Json& check : workload["status"]["admissionChecks"].items())
    for (const Json& update : check["podSetUpdates"].items()) {
      if (update["name"].string() != pod_set) continue;
      std::string problem;
      const auto merge = [&](const char* field, Json& into) {
        for (const auto& [key, value] : update[field].members()) {
          const Json had = into[field][key];  // nothing is made where nothing is added
          if (!had.is_null() && !(had == value)) problem = fmt::format("admission check {} asks for {} {}={} where the pods have {}", check["name"].string(), field, key, value.string(), had.string());
          else into.child(field).set(key, value);
        }
      };
      merge("labels", pods.child("metadata"));
      merge("annotations", pods.child("metadata"));
      merge("nodeSelector", pods.child("spec"));
      if (!problem.empty()) return problem + ": mend the check, or deactivate the Workload " + kube::name_of(workload);
      for (const Json& toleration : update["tolerations"].items()) {
        Json& all = pods.child("spec").child("tolerations");
        if (std::find(all.items().begin(), all.items().end(), toleration) == all.items().end()) all.push(toleration);
      }
    }
  return "";
}

std::string put_flavors(Json& pods, const Json& workload, const std::string& pod_set, const FlavorsByName& flavors) {
  Json& labels = pods.child("metadata").child("labels");
  labels.set(kPodSetLabel, pod_set);
  // For who adds up what pods of a queue use. A name that is too long for a label is left out.
  for (const auto& [label, name] : {std::pair(kClusterQueueLabel, &workload["status"]["admission"]["clusterQueue"].string()), std::pair(kLocalQueueLabel, &workload["spec"]["queueName"].string())})
    if (!name->empty() && name->size() <= 63) labels.set(label, *name);
  std::set<std::string> names;
  for (const Json& assignment : workload["status"]["admission"]["podSetAssignments"].items())
    if (assignment["name"].string() == pod_set)
      for (const auto& [resource, flavor] : assignment["flavors"].members()) names.insert(flavor.string());
  for (const std::string& name : names) {
    const auto flavor = flavors.find(name);
    if (flavor == flavors.end() || flavor->second.is_null()) return fmt::format("ResourceFlavor {} of its admission is gone: make it again, or delete the Workload {}", name, kube::name_of(workload));
    const Json& spec = flavor->second["spec"];
    for (const auto& [key, value] : spec["nodeLabels"].members()) pods.child("spec").child("nodeSelector").set(key, value);
    for (const Json& toleration : spec["tolerations"].items()) {
      Json& all = pods.child("spec").child("tolerations");
      if (std::find(all.items().begin(), all.items().end(), toleration) == all.items().end()) all.push(toleration);
    }
  }
  return put_updates(pods, workload, pod_set);
}

}  // namespace fairlead::governance
