// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/jail.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/encoding.h"
#include "slurm/plan/trouble.h"

namespace fairlead::slurm {
namespace {

using kube::Json;

constexpr auto kFirstDelay = std::chrono::seconds(10), kLongestDelay = std::chrono::seconds(300);

const Json& ended(const Json& pod) { return pod["status"]["containerStatuses"].items().empty() ? pod["status"]["none"] : pod["status"]["containerStatuses"].items()[0]["state"]["terminated"]; }

std::string last_word(const Json& pod) {
  const std::string& message = ended(pod)["message"].string();
  if (!message.empty()) return std::string(trim(message));
  const std::string& told = pod["status"]["message"].string();
  if (!told.empty()) return told;
  return ended(pod).is_object() ? fmt::format("it ended with {}", ended(pod)["exitCode"].integer()) : "it left no word";
}

std::string told(const Json& memory) {
  if (memory["layout"].string() == "adopted") return "the root file system that was on the volume is used as it is";
  return fmt::format("version {} is the shared root", memory["version"].string());
}

// How the version came to be current, in the words of the pod that did it.
std::string told_of_update(const Json& memory) {
  const Json& update = memory["update"];
  if (!update.is_object()) return told(memory);
  std::string out = fmt::format("{} since {}, in place of {}", told(memory), update["at"].string(), update["from"].string());
  if (!update["built"].boolean()) return out + ", as it was left";
  out += fmt::format("; carried over: {} files and folders, {} records of packages and users, {} removals", update["files"].integer(), update["recordCount"].integer(), update["removedFiles"].integer());
  if (const auto count = update["conflictCount"].integer(); count > 0) {
    out += fmt::format("; not carried over: {}, whose old copies are in /var/lib/fairlead/jail-conflicts/{} of the shared root", count, update["from"].string());
    for (const Json& one : update["conflicts"].items()) out += (&one == &update["conflicts"].items()[0] ? " (" : "; ") + one.string();
    out += update["conflicts"].items().empty() ? "" : static_cast<std::size_t>(count) > update["conflicts"].items().size() ? "; ...)" : ")";
  }
  return out;
}

// A pod's report that it has filled, adopted or renewed the volume; none: it says something else.
std::optional<Json> report_of(const Json& pod) {
  auto report = kube::parse_json(last_word(pod));
  if (!report || !report->is_object()) return std::nullopt;
  const std::string& layout = (*report)["layout"].string();
  if (layout != "adopted" && (layout != "versions" || (*report)["version"].string().empty())) return std::nullopt;
  return std::move(*report);
}

// Counts a failure once, by the pod's uid, and says whether and when it may be tried again.
std::optional<std::chrono::nanoseconds> wait_after_failure(Json& memory, const Json& pod, Instant now) {
  if (memory["failedPod"].string() != kube::uid_of(pod)) {
    memory.set("failedPod", kube::uid_of(pod)).set("attempts", memory["attempts"].integer() + 1);
    memory.erase("failedAt");
  }
  // By this clock, and from when it was first seen here: a pod that a kubelet rejects has no container that could say when it ended, and the clock of a machine may be wrong.
  auto seen = parse_time(memory["failedAt"].string());
  if (!seen || *seen > now) {
    memory.set("failedAt", print_time(now));
    seen = now;
  }
  const auto delay = std::min<std::chrono::nanoseconds>(kLongestDelay, kFirstDelay * (std::int64_t{1} << std::min<std::int64_t>(std::max<std::int64_t>(memory["attempts"].integer(), 1) - 1, 10)));
  const std::chrono::nanoseconds since = now - *seen;
  return since >= delay ? std::nullopt : std::optional(delay - since);
}

std::string failure(const Json& pod, std::int64_t attempts) {
  const std::string word = last_word(pod);
  return fmt::format("pod {}, attempt {}: {}", kube::name_of(pod), attempts, pod["status"]["phase"].string() == "Failed" ? word : "what it said is not understood: " + word);
}

void forget_failures(Json& memory) {
  for (const char* name : {"attempts", "failedPod", "failedAt"}) memory.erase(name);
}

// A request was taken back while a pod worked for it: that pod must not make its version current when nobody looks any more, and whether it did the volume alone knows. A pod that renews nothing is asked.
void plan_request_taken_back(const api::SlurmCluster& cluster, const Json* pod, Instant now, JailPlan& out) {
  const std::string name = populate_pod_name(cluster);
  const auto say = [&](const char* reason, std::string why) { out.updated = {"JailUpdated", "False", reason, why + "; as far as is known " + told(out.memory)}; };
  if (!pod) {
    out.make_pod = true;
    return say("Updating", fmt::format("pod {} is being made, to see which version is in use", name));
  }
  const Json* owner = kube::controller_of(*pod);
  if (!owner || (*owner)["uid"].string() != cluster.uid) return say("PodOfSomebodyElse", fmt::format("a pod {} belongs to somebody else; remove or rename it", name));
  if (kube::deleting(*pod)) return say("Updating", fmt::format("pod {} is ending", name));
  const std::string& phase = (*pod)["status"]["phase"].string();
  const auto report = phase == "Succeeded" ? report_of(*pod) : std::nullopt;
  if (report) {
    if ((*report)["version"].string() != out.memory["version"].string()) out.memory.erase("update");  // of another one
    out.memory.set("version", (*report)["version"]).set("versions", (*report)["versions"]);
    out.memory.erase("unsure");
    return;
  }
  const bool ended = phase == "Succeeded" || phase == "Failed";
  if (!ended && kube::annotations_of(*pod).contains(api::kJailVersion)) {
    out.end_pod = "the version that it makes is not asked for any more";
    return say("Updating", fmt::format("the pod {} of before is ended", name));
  }
  if (!ended) return say("Updating", fmt::format("pod {} looks which version is in use", name));
  // What a renewing pod said when it failed is no reason to wait; what one that looks said is.
  if (kube::annotations_of(*pod).contains(api::kJailVersion)) out.end_pod = "the version that it should have made is not asked for any more";
  else if (const auto wait = wait_after_failure(out.memory, *pod, now)) out.look_again = wait;
  else out.end_pod = "it could not tell which version is in use";
  say("Updating", fmt::format("pod {}: {}", name, last_word(*pod)));
}

// The root that is in use is whole; another one is asked for, or was.
void plan_update(const api::SlurmCluster& cluster, const Json* pod, Instant now, JailPlan& out) {
  const std::string wanted = asked_version(cluster);
  const auto at_work = [&] {
    if (!pod) return false;
    const Json* owner = kube::controller_of(*pod);
    const std::string& phase = (*pod)["status"]["phase"].string();
    const auto of = kube::annotations_of(*pod);
    const auto at = of.find(api::kJailVersion);
    return owner && (*owner)["uid"].string() == cluster.uid && at != of.end() && at->second != out.memory["version"].string() && phase != "Failed";
  };
  if ((wanted.empty() || wanted == out.memory["version"].string()) && (out.memory["unsure"].boolean() || at_work())) {
    out.memory.set("unsure", true).set("asked", true);
    plan_request_taken_back(cluster, pod, now, out);
    if (out.memory["unsure"].boolean()) return;
  }
  const auto say = [&](const char* status, const char* reason, std::string why) { out.updated = {"JailUpdated", status, reason, std::move(why)}; };
  if (wanted.empty() || wanted == out.memory["version"].string()) {
    if (!wanted.empty()) out.memory.set("asked", true);
    forget_failures(out.memory);
    if (out.memory["asked"].boolean()) say("True", "Current", told_of_update(out.memory));
    return;
  }
  out.memory.set("asked", true);
  if (!is_version_name(wanted)) return say("False", "InvalidName", fmt::format("\"{}\" is no name of a version: up to 64 of a-z, 0-9 and \"-\", not beginning with \"-\"; {}", wanted, told(out.memory)));
  if (out.memory["layout"].string() == "adopted") return say("False", "Adopted", "the root file system was on the volume before and is used as it is: there are no versions of it. Take away the annotation, or set overwrite to false");
  out.memory.set("unsure", true);  // from before the pod is made until one has said which version is current
  const std::string name = populate_pod_name(cluster), meanwhile = "; until then " + told(out.memory);
  const auto make = [&](std::string why) { say("False", "Updating", std::move(why) + meanwhile); };
  if (!pod) {
    out.make_pod = out.renew = true;
    return make(fmt::format("pod {} is being made, for version {}", name, wanted));
  }
  const Json* owner = kube::controller_of(*pod);
  if (!owner || (*owner)["uid"].string() != cluster.uid) return say("False", "PodOfSomebodyElse", fmt::format("a pod {} belongs to somebody else; remove or rename it", name));
  if (kube::deleting(*pod)) return make(fmt::format("pod {} is ending", name));
  const auto of = kube::annotations_of(*pod);
  if (const auto at = of.find(api::kJailVersion); at == of.end() || at->second != wanted) {
    // It may be killed at any moment.
    out.end_pod = "it is of another version than the one asked for";
    return make(fmt::format("the pod {} of before is ended", name));
  }
  const std::string& phase = (*pod)["status"]["phase"].string();
  if (phase != "Succeeded" && phase != "Failed") return make(phase == "Running" ? fmt::format("pod {} makes version {} ready", name, wanted) : fmt::format("pod {}: {}", name, pod_trouble(*pod).text));
  if (phase == "Succeeded")
    if (auto report = report_of(*pod); report && (*report)["version"].string() == wanted) {
      Json memory = Json::object({{"clusterUid", cluster.uid}, {"layout", "versions"}, {"version", wanted}, {"versions", (*report)["versions"]}, {"asked", true}});
      // A pod that died after the last step, and one more that found all done: only the volume knows the rest.
      if (!(*report)["from"].string().empty()) {
        Json update = Json::object({{"at", print_time(now)}});
        for (const char* field : {"from", "built", "files", "removedFiles", "recordCount", "records", "conflictCount", "conflicts", "removed", "kept"}) update.set(field, (*report)[field]);
        memory.set("update", std::move(update));
      }
      out.memory = std::move(memory);
      say("True", "Current", told_of_update(out.memory));
      out.condition = {"JailReady", "True", "Populated", told(out.memory)};
      return;
    }
  if (const auto wait = wait_after_failure(out.memory, *pod, now)) out.look_again = wait;
  else out.end_pod = "it could not make the version that is asked for";
  say("False", "UpdateFailed", failure(*pod, out.memory["attempts"].integer()) + meanwhile);
}

}  // namespace

std::string populate_pod_name(const api::SlurmCluster& cluster) { return cluster.name + "-populate-jail"; }

std::string jail_version(const api::SlurmCluster& cluster) { return hex(sha256(cluster.jail.image)).substr(0, 12); }

std::string asked_version(const api::SlurmCluster& cluster) { return !cluster.jail.version.empty() ? cluster.jail.version : cluster.jail.overwrite ? jail_version(cluster) : ""; }

bool is_version_name(std::string_view name) {
  const auto good = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  return !name.empty() && name.size() <= 64 && name[0] != '-' && std::all_of(name.begin(), name.end(), good);
}

Json populate_pod(const api::SlurmCluster& cluster, const ObjectOptions& options, const std::optional<std::vector<std::string>>& nodes) {
  const std::string asked = asked_version(cluster), version = is_version_name(asked) ? asked : jail_version(cluster);
  std::vector<Json> command = {Json("/opt/fairlead/bin/fairlead-slurm"), Json("populate"), Json("--volume"), Json(api::kJailVolume), Json("--version"), Json(version)};
  Json annotations = Json::object();
  if (nodes) {
    command.insert(command.end(), {Json("--renew"), Json("--nodes"), Json(fmt::format("{}", fmt::join(*nodes, ",")))});
    annotations.set(api::kJailVersion, version);
  }
  const auto object = [](std::initializer_list<std::pair<std::string, Json>> members) { return Json::object(members); };
  std::vector<Json> mounts = {object({{"name", "jail"}, {"mountPath", api::kJailVolume}})};
  Json jail = object({{"name", "jail"}});
  if (const auto source = cluster.volume_sources.find(cluster.jail.source); source != cluster.volume_sources.end())
    for (const auto& [key, value] : source->second.members()) jail.set(key, value);
  std::vector<Json> volumes = {std::move(jail)};
  if (options.companion.is_object()) {
    mounts.push_back(object({{"name", "companion"}, {"mountPath", "/opt/fairlead/bin"}, {"readOnly", true}}));
    Json companion = object({{"name", "companion"}});
    for (const auto& [key, value] : options.companion.members()) companion.set(key, value);
    volumes.push_back(std::move(companion));
  }
  Json spec = object({{"restartPolicy", "Never"},
                      {"terminationGracePeriodSeconds", 5},
                      {"enableServiceLinks", false},
                      {"automountServiceAccountToken", false},
                      {"containers", Json::array({object({{"name", "populate"},
                                                          {"image", cluster.jail.image},
                                                          {"command", Json::array(std::move(command))},
                                                          // Files of every owner are made, whoever the image would run as.
                                                          {"securityContext", object({{"runAsUser", 0}, {"runAsGroup", 0}})},
                                                          {"volumeMounts", Json::array(std::move(mounts))}})})},
                      {"volumes", Json::array(std::move(volumes))}});
  if (const auto filter = cluster.filters.find(cluster.jail.node_filter); filter != cluster.filters.end()) {
    if (filter->second.node_selector.is_object()) spec.set("nodeSelector", filter->second.node_selector);
    if (filter->second.affinity.is_object()) spec.set("affinity", filter->second.affinity);
    if (filter->second.tolerations.is_array()) spec.set("tolerations", filter->second.tolerations);
  }
  Json metadata = object({{"name", populate_pod_name(cluster)},
                          {"namespace", cluster.space},
                          {"labels", object({{"app.kubernetes.io/managed-by", "fairlead"}, {kClusterLabel, cluster.name}, {kRoleLabel, "populate-jail"}})},
                          {"ownerReferences", Json::array({cluster.owner})}});
  if (!annotations.members().empty()) metadata.set("annotations", std::move(annotations));
  return object({{"apiVersion", "v1"},
                 {"kind", "Pod"},
                 {"metadata", std::move(metadata)},
                 {"spec", std::move(spec)}});
}

JailPlan plan_jail(const api::SlurmCluster& cluster, const Json& memory, const Json* pod, Instant now) {
  JailPlan out;
  if (!cluster.jail.wanted()) return out;
  out.memory = memory.is_object() && memory["clusterUid"].string() == cluster.uid ? memory : Json::object({{"clusterUid", cluster.uid}});
  const auto waits = [&](const char* reason, std::string why) {
    out.ready = false;
    out.condition = {"JailReady", "False", reason, std::move(why)};
    return std::move(out);
  };
  const auto done = [&] {
    plan_update(cluster, pod, now, out);
    out.condition = {"JailReady", "True", out.memory["layout"].string() == "adopted" ? "Adopted" : "Populated", told(out.memory)};
    return std::move(out);
  };
  if (!out.memory["layout"].string().empty()) return done();
  const std::string name = populate_pod_name(cluster);
  if (!pod) {
    out.make_pod = true;
    return waits("Populating", fmt::format("pod {} is being made, which fills the volume from {}", name, cluster.jail.image));
  }
  const Json* owner = kube::controller_of(*pod);
  if (!owner || (*owner)["uid"].string() != cluster.uid) return waits("PodOfSomebodyElse", fmt::format("a pod {} belongs to somebody else; remove or rename it", name));
  if (kube::deleting(*pod)) return waits("Populating", fmt::format("pod {} is ending", name));
  const std::string& phase = (*pod)["status"]["phase"].string();
  if (phase != "Succeeded" && phase != "Failed")
    return waits("Populating", phase == "Running" ? fmt::format("pod {} fills the volume from {}", name, cluster.jail.image) : fmt::format("pod {}: {}", name, pod_trouble(*pod).text));
  if (phase == "Succeeded")
    if (auto report = report_of(*pod)) {
      out.memory = Json::object({{"clusterUid", cluster.uid}, {"layout", (*report)["layout"]}, {"version", (*report)["version"]}});
      if ((*report)["versions"].is_array()) out.memory.set("versions", (*report)["versions"]);
      return done();
    }
  if (const auto wait = wait_after_failure(out.memory, *pod, now)) out.look_again = wait;
  else out.end_pod = "it could not fill the jail";
  return waits("PopulateFailed", failure(*pod, out.memory["attempts"].integer()));
}

}  // namespace fairlead::slurm
