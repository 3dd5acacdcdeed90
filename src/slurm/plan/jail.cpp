// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/jail.h"

#include <fmt/format.h>

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

}  // namespace

std::string populate_pod_name(const api::SlurmCluster& cluster) { return cluster.name + "-populate-jail"; }

std::string jail_version(const api::SlurmCluster& cluster) { return hex(sha256(cluster.jail.image)).substr(0, 12); }

Json populate_pod(const api::SlurmCluster& cluster, const ObjectOptions& options) {
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
                                                          {"command", Json::array({Json("/opt/fairlead/bin/fairlead-slurm"), Json("populate"), Json("--volume"), Json(api::kJailVolume), Json("--version"), Json(jail_version(cluster))})},
                                                          // Files of every owner are made, whoever the image would run as.
                                                          {"securityContext", object({{"runAsUser", 0}, {"runAsGroup", 0}})},
                                                          {"volumeMounts", Json::array(std::move(mounts))}})})},
                      {"volumes", Json::array(std::move(volumes))}});
  if (const auto filter = cluster.filters.find(cluster.jail.node_filter); filter != cluster.filters.end()) {
    if (filter->second.node_selector.is_object()) spec.set("nodeSelector", filter->second.node_selector);
    if (filter->second.affinity.is_object()) spec.set("affinity", filter->second.affinity);
    if (filter->second.tolerations.is_array()) spec.set("tolerations", filter->second.tolerations);
  }
  return object({{"apiVersion", "v1"},
                 {"kind", "Pod"},
                 {"metadata", object({{"name", populate_pod_name(cluster)},
                                      {"namespace", cluster.space},
                                      {"labels", object({{"app.kubernetes.io/managed-by", "fairlead"}, {kClusterLabel, cluster.name}, {kRoleLabel, "populate-jail"}})},
                                      {"ownerReferences", Json::array({cluster.owner})}})},
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
  const std::string word = last_word(*pod);
  if (phase == "Succeeded")
    if (auto report = kube::parse_json(word); report && report->is_object())
      if (const std::string& layout = (*report)["layout"].string(); layout == "adopted" || (layout == "versions" && !(*report)["version"].string().empty())) {
        out.memory = Json::object({{"clusterUid", cluster.uid}, {"layout", layout}, {"version", (*report)["version"].string()}});
        return done();
      }
  if (out.memory["failedPod"].string() != kube::uid_of(*pod)) {
    out.memory.set("failedPod", kube::uid_of(*pod)).set("attempts", out.memory["attempts"].integer() + 1);
    out.memory.erase("failedAt");
  }
  // By this clock, and from when it was first seen here: a pod that a kubelet rejects has no container that could say when it ended, and the clock of a machine may be wrong.
  auto seen = parse_time(out.memory["failedAt"].string());
  if (!seen || *seen > now) {
    out.memory.set("failedAt", print_time(now));
    seen = now;
  }
  const std::int64_t attempts = out.memory["attempts"].integer();
  const auto delay = std::min<std::chrono::nanoseconds>(kLongestDelay, kFirstDelay * (std::int64_t{1} << std::min<std::int64_t>(std::max<std::int64_t>(attempts, 1) - 1, 10)));
  if (const std::chrono::nanoseconds since = now - *seen; since >= delay) out.end_pod = "it could not fill the jail";
  else out.look_again = delay - since;
  return waits("PopulateFailed", fmt::format("pod {}, attempt {}: {}", name, attempts, phase == "Failed" ? word : "what it said is not understood: " + word));
}

}  // namespace fairlead::slurm
