// SPDX-License-Identifier: Apache-2.0
#include "api/check_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "api/field_names.h"
#include "kube/object.h"

namespace fairlead::api {
namespace {

using kube::Json;

// Of every type. Reactions are judged as a whole, by who is meant.
constexpr const char* kAlways[] = {"activeDeadlineSeconds", "checkType", "dependsOn", "extensions.reboot", "name", "runAfterCreation", "schedule", "slurmClusterRefName", "suspend",
                                   "failureReactions.commentSlurmNode.commentPrefix", "failureReactions.drainSlurmNode.drainReasonPrefix", "successReactions.commentSlurmNode.commentPrefix", "successReactions.drainSlurmNode"};
// Where a failure is one of a worker.
constexpr const char* kOfWorkers[] = {"extensions.failures", "extensions.maxDrained", "extensions.of"};
constexpr const char* kSlurmJob[] = {"slurmJobSpec.eachWorkerJobs", "slurmJobSpec.sbatchScript", "slurmJobSpec.sbatchScriptRefName"};
constexpr const char* kPods[] = {"extensions.eachWorker", "failedJobsHistoryLimit", "hostUsers", "k8sJobSpec.scriptRefName", "successfulJobsHistoryLimit", "tolerations",
                                 "k8sJobSpec.jobContainer.appArmorProfile", "k8sJobSpec.jobContainer.args", "k8sJobSpec.jobContainer.command", "k8sJobSpec.jobContainer.env", "k8sJobSpec.jobContainer.image",
                                 "k8sJobSpec.jobContainer.imagePullPolicy", "k8sJobSpec.jobContainer.imagePullSecrets", "k8sJobSpec.jobContainer.volumeMounts", "k8sJobSpec.jobContainer.volumes", "k8sJobSpec.jobContainer.workingDir"};
constexpr const char* kOwn[] = {"extensions", "extensions.eachWorker", "extensions.failures", "extensions.maxDrained", "extensions.maxJobs", "extensions.of", "extensions.reboot"};

const FieldNames& known_fields() {
  static const FieldNames names = [] {
    FieldNames out = field_names(
#include "api/active_check_fields.inc"
    );
    out.insert(std::begin(kOwn), std::end(kOwn));
    return out;
  }();
  return names;
}

struct Kind {
  bool pods = true, each_worker = false;
};

FieldNames effective(Kind kind) {
  FieldNames out(std::begin(kAlways), std::end(kAlways));
  if (kind.pods) out.insert(std::begin(kPods), std::end(kPods));
  else out.insert(std::begin(kSlurmJob), std::end(kSlurmJob));
  if (!kind.pods || kind.each_worker) out.insert(std::begin(kOfWorkers), std::end(kOfWorkers));
  if (kind.each_worker) out.insert(kind.pods ? "extensions.maxJobs" : "slurmJobSpec.maxNumberOfJobs");
  if (kind.pods && !kind.each_worker) out.insert({"affinity", "nodeSelector"});
  return out;
}

// What somebody who gave it would ask.
std::string with_note(std::string path, Kind kind) {
  static const std::map<std::string_view, const char*> of_slurm = {{"spec.extensions.eachWorker", "of a slurmJob it is spec.slurmJobSpec.eachWorkerJobs"},
                                                                   {"spec.extensions.maxJobs", "of a slurmJob it is spec.slurmJobSpec.maxNumberOfJobs"},
                                                                   {"spec.failedJobsHistoryLimit", "Slurm keeps its own record of jobs"},
                                                                   {"spec.slurmJobSpec.maxNumberOfJobs", "it is one job: see spec.slurmJobSpec.eachWorkerJobs"},
                                                                   {"spec.successfulJobsHistoryLimit", "Slurm keeps its own record of jobs"}};
  static const std::map<std::string_view, const char*> of_pods = {{"spec.extensions.failures", "it is of no worker: see spec.extensions.eachWorker"},
                                                                  {"spec.extensions.maxDrained", "it is of no worker: see spec.extensions.eachWorker"},
                                                                  {"spec.extensions.maxJobs", "it is one Job: see spec.extensions.eachWorker"},
                                                                  {"spec.extensions.of", "it is of no worker: see spec.extensions.eachWorker"}};
  const auto& notes = kind.pods ? of_pods : of_slurm;
  if (const auto note = notes.find(path); note != notes.end()) path += fmt::format(" ({})", note->second);
  return path;
}

bool says_nothing(std::string_view path, const Json& value) {
  // What the kind fills in where nobody wrote anything.
  if (path == "failedJobsHistoryLimit") return value.is_null() || value.integer(-1) == 16;
  if (path == "successfulJobsHistoryLimit") return value.is_null() || value.integer(-1) == 3;
  if (value.is_object()) return std::all_of(value.members().begin(), value.members().end(), [&](const auto& member) { return says_nothing(fmt::format("{}.{}", path, member.first), member.second); });
  return value.is_null() || (value.is_array() && value.items().empty()) || (value.is_string() && value.string().empty()) || (value.is_bool() && !value.boolean()) || (value.is_number() && value.number() == 0);
}

}  // namespace

std::vector<std::string> ignored_of_check(const Json& check) {
  const Json& spec = check["spec"];
  Kind kind{.pods = spec["checkType"].string_or("k8sJob") != "slurmJob"};
  kind.each_worker = kind.pods ? spec["extensions"]["eachWorker"].boolean() : spec["slurmJobSpec"]["eachWorkerJobs"].boolean();
  std::vector<std::string> out;
  for (std::string& path : ignored_fields(spec, effective(kind), says_nothing)) out.push_back(with_suggestion(with_note(std::move(path), kind), known_fields()));
  // A reaction is asked for by being there, with nothing in it.
  if (kind.pods && !kind.each_worker) {
    for (const auto& [reactions, reaction] : {std::pair("failureReactions", "commentSlurmNode"), std::pair("failureReactions", "drainSlurmNode"), std::pair("successReactions", "commentSlurmNode")})
      if (spec[reactions][reaction].is_object()) out.push_back(fmt::format("spec.{}.{} (it is of no worker: see spec.extensions.eachWorker)", reactions, reaction));
    if (spec["extensions"]["reboot"].is_object()) out.push_back("spec.extensions.reboot (it is of no worker: see spec.extensions.eachWorker)");
  }
  if (spec["successReactions"]["drainSlurmNode"].is_object()) out.push_back("spec.successReactions.drainSlurmNode");
  if (const std::string& name = spec["name"].string(); !name.empty() && name != kube::name_of(check)) out.push_back(fmt::format("spec.name (the check goes by metadata.name, {})", kube::name_of(check)));
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace fairlead::api
