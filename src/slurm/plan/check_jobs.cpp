// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/check_jobs.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/slurm_fields.h"
#include "base/encoding.h"

namespace fairlead::slurm {
namespace {

using kube::Json;

constexpr const char* kRunLabel = "fairlead.dev/check-run";
constexpr const char* kWorkerAnnotation = "fairlead.dev/check-worker";  // a name of Slurm's may be longer than a label
constexpr const char* kContainer = "check";
constexpr const char* kScriptVolume = "fairlead-check-script";
constexpr const char* kScriptFolder = "/run/fairlead-check";

bool given(const Json& value) { return (value.is_object() && !value.members().empty()) || (value.is_array() && !value.items().empty()) || (value.is_string() && !value.string().empty()); }

bool has(const Json& object, const char* type) { return kube::condition_is_true(object, type); }

// Why the pod's end is not its container's own; empty: it is.
std::string interrupted(const Json& pod) {
  if (kube::deleting(pod)) return "its pod was deleted";
  if (has(pod, "DisruptionTarget")) return "its pod was evicted";
  if (const std::string& why = pod["status"]["reason"].string(); !why.empty()) return "its pod was ended: " + why.substr(0, 100);
  return "";
}

// Fills in what the Job's one pod says.
void read_pod(const Json& pod, CheckJob& job) {
  job.why = interrupted(pod);
  if (!job.why.empty()) return;
  const auto& containers = pod["status"]["containerStatuses"].items();
  const auto found = std::find_if(containers.begin(), containers.end(), [](const Json& one) { return one["name"].string() == kContainer; });
  const Json ended = found == containers.end() ? Json() : (*found)["state"]["terminated"];
  const std::string& word = ended["reason"].string();
  if (!ended.is_object()) job.why = "nobody saw how its container ended";
  else if (word != "Error" && !word.empty()) job.why = fmt::format("its container was not run to its end ({}, exit status {})", word, ended["exitCode"].integer());
  else {
    job.exit_code = static_cast<int>(std::clamp<std::int64_t>(ended["exitCode"].integer(), 0, 255));
    job.signal = static_cast<int>(std::clamp<std::int64_t>(ended["signal"].integer(), 0, 127));
    job.state = "FAILED";
  }
}

// Why a pod does not begin, for one that ran out of time.
std::string waits_for(const Json& pod) {
  for (const Json& one : pod["status"]["containerStatuses"].items())
    if (const Json& waiting = one["state"]["waiting"]; !waiting["reason"].string().empty()) return fmt::format("{} {}", waiting["reason"].string(), waiting["message"].string().substr(0, 200));
  for (const Json& one : pod["status"]["conditions"].items())
    if (one["type"].string() == "PodScheduled" && one["status"].string() == "False") return one["message"].string().substr(0, 200);
  return "";
}

}  // namespace

std::string check_job_name(const CheckRules& rules, const std::string& run, const std::string& worker) {
  std::string name = rules.name.substr(0, 30);
  std::replace(name.begin(), name.end(), '.', '-');
  return fmt::format("{}-{}-{}", name, run, hex(sha256(rules.uid + '/' + run + '/' + worker)).substr(0, 8));
}

std::vector<std::string> job_problems(const Json& spec) {
  std::vector<std::string> out;
  const Json& job = spec["k8sJobSpec"];
  const Json& container = job["jobContainer"];
  const char* where = "spec.k8sJobSpec.jobContainer";
  if (container["image"].string().empty()) out.push_back(fmt::format("{}.image: name the image that the check runs in", where));
  if (!given(container["command"]) && !given(container["args"]) && !given(job["scriptRefName"])) out.push_back(fmt::format("{}: give command or args, or a script with spec.k8sJobSpec.scriptRefName", where));
  for (const Json& volume : container["volumes"].items())
    if (volume["name"].string().empty() || volume["name"].string() == kScriptVolume) out.push_back(fmt::format("{}.volumes: \"{}\" is no name, or Fairlead's own", where, volume["name"].string()));
  // The same rules as for the cluster's own containers.
  Json same = Json::object({{"imagePullPolicy", container["imagePullPolicy"]}, {"appArmorProfile", container["appArmorProfile"]}, {"customEnv", container["env"]}});
  api::SlurmContainer unused;
  api::read_container_extras(same, where, unused, out);
  return out;
}

Json check_job(const Json& check, const CheckRules& rules, const std::string& run, const std::string& worker, const std::string& machine, const std::string& script_key) {
  const Json& spec = check["spec"];
  const Json& from = spec["k8sJobSpec"]["jobContainer"];
  Json env = Json::array({Json::object({{"name", "FAIRLEAD_CHECK"}, {"value", rules.name}}), Json::object({{"name", "FAIRLEAD_CHECK_WORKER"}, {"value", worker == "-" ? "" : worker}})});
  for (const Json& variable : from["env"].items()) env.push(variable);
  Json container = Json::object({{"name", kContainer}, {"image", from["image"]}, {"env", std::move(env)}, {"terminationMessagePolicy", "FallbackToLogsOnError"}});
  for (const char* field : {"command", "args", "imagePullPolicy", "volumeMounts", "workingDir"})
    if (given(from[field])) container.set(field, from[field]);
  if (const std::string& profile = from["appArmorProfile"].string(); !profile.empty()) {
    Json made = Json::object({{"type", profile == "unconfined" ? "Unconfined" : profile == "runtime/default" ? "RuntimeDefault" : "Localhost"}});
    if (profile.starts_with("localhost/")) made.set("localhostProfile", profile.substr(10));
    container.set("securityContext", Json::object({{"appArmorProfile", std::move(made)}}));
  }
  Json volumes = given(from["volumes"]) ? from["volumes"] : Json::array();
  if (!script_key.empty()) {
    volumes.push(Json::object({{"name", kScriptVolume}, {"configMap", Json::object({{"name", spec["k8sJobSpec"]["scriptRefName"]}, {"defaultMode", 0555}, {"items", Json::array({Json::object({{"key", script_key}, {"path", "script"}})})}})}}));
    if (!container["volumeMounts"].is_array()) container.set("volumeMounts", Json::array());
    container.child("volumeMounts").push(Json::object({{"name", kScriptVolume}, {"mountPath", kScriptFolder}, {"readOnly", true}}));
    if (!given(from["command"])) container.set("command", Json::array({Json(std::string(kScriptFolder) + "/script")}));
  }
  // Whoever may write a check does not get the rights of an account by it.
  Json pod = Json::object({{"restartPolicy", "Never"}, {"automountServiceAccountToken", false}, {"containers", Json::array({std::move(container)})}, {"terminationGracePeriodSeconds", 5}});
  if (!volumes.items().empty()) pod.set("volumes", std::move(volumes));
  if (given(from["imagePullSecrets"])) pod.set("imagePullSecrets", from["imagePullSecrets"]);
  if (spec["hostUsers"].is_bool()) pod.set("hostUsers", spec["hostUsers"]);
  if (given(spec["tolerations"])) pod.set("tolerations", spec["tolerations"]);
  if (!machine.empty()) pod.set("nodeName", machine);  // where the worker is, whatever else is asked for
  else
    for (const char* field : {"nodeSelector", "affinity"})
      if (given(spec[field])) pod.set(field, spec[field]);
  const Json labels = Json::object({{kCheckLabel, rules.uid}, {kRunLabel, run}});
  Json meta = Json::object({{"name", check_job_name(rules, run, worker)}, {"namespace", kube::space_of(check)}, {"labels", labels}, {"ownerReferences", Json::array({kube::owner_reference(check)})}});
  meta.set("annotations", Json::object({{kWorkerAnnotation, worker}}));
  return Json::object({{"apiVersion", "batch/v1"},
                       {"kind", "Job"},
                       {"metadata", std::move(meta)},
                       {"spec", Json::object({{"backoffLimit", 0},
                                              {"activeDeadlineSeconds", static_cast<std::int64_t>(rules.deadline.count())},
                                              {"template", Json::object({{"metadata", Json::object({{"labels", labels}})}, {"spec", std::move(pod)}})}})}});
}

std::vector<CheckJob> read_check_jobs(const CheckRules& rules, const std::vector<Json>& jobs, const std::vector<Json>& pods) {
  std::vector<CheckJob> out;
  for (const Json& job : jobs) {
    const Json* owner = kube::controller_of(job);
    const std::string& run = job["metadata"]["labels"][kRunLabel].string();
    const std::string& worker = job["metadata"]["annotations"][kWorkerAnnotation].string();
    if (!owner || (*owner)["uid"].string() != rules.uid || kube::name_of(job) != check_job_name(rules, run, worker)) continue;
    CheckJob made{.id = kube::name_of(job), .run = run, .state = "RUNNING", .requested = {}, .nodes = {}, .uid = kube::uid_of(job)};
    if (worker != "-") made.requested = made.nodes = {worker};
    const auto pod = std::find_if(pods.begin(), pods.end(), [&](const Json& one) {
      const Json* of = kube::controller_of(one);
      return of && (*of)["uid"].string() == made.uid;
    });
    const Json* failed = kube::find_condition(job, "Failed");
    if (has(job, "Complete")) made.state = "COMPLETED";
    else if (failed && (*failed)["status"].string() == "True") {
      made.state = "TIMEOUT";
      if ((*failed)["reason"].string() == "DeadlineExceeded") {
        const std::string why = pod == pods.end() ? "" : waits_for(*pod);
        made.why = fmt::format("it had not ended after {} s{}{}", rules.deadline.count(), why.empty() ? "" : ": ", why);
      } else if (pod == pods.end()) made.why = "its pod is gone, and nobody saw how it ended";
      else read_pod(*pod, made);
    } else if (kube::deleting(job)) {
      made.state = "CANCELLED";
      made.why = "its Job was deleted";
    }
    out.push_back(std::move(made));
  }
  return out;
}

}  // namespace fairlead::slurm
