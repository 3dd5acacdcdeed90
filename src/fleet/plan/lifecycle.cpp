// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/lifecycle.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "api/instance_types.h"
#include "api/network_ways.h"
#include "api/slurm_cluster.h"
#include "base/encoding.h"
#include "fleet/plan/slurm_shape.h"
#include "kube/pod_words.h"

namespace fairlead::fleet {

using api::SlurmNodeType;
using kube::Json;
namespace resources = kube::resources;

namespace {

constexpr std::size_t kPart = 600 << 10;  // bytes in a Secret before base64: it takes 1 MiB of them, in requests that hold 4/3
constexpr const char* kSourceFolder = "/opt/fairlead/lifecycle/source";
constexpr const char* kConfigFolder = "/opt/fairlead/lifecycle/config";
constexpr const char* kContainer = "lifecycle";
constexpr const char* kEndedFromOutside = "it was ended from outside";  // as gpl/lifecycle.cpp says it
constexpr const char* kClusterConfig = "lifecycle-cluster";

Json env(const char* name, std::string value) { return Json::object({{"name", name}, {"value", std::move(value)}}); }
Json mount(const char* name, std::string path, bool read_only = false) {
  Json out = Json::object({{"name", name}, {"mountPath", std::move(path)}});
  if (read_only) out.set("readOnly", true);
  return out;
}
Json memory(const char* name) { return Json::object({{"name", name}, {"emptyDir", Json::object({{"medium", "Memory"}})}}); }
std::string config_name(const api::InstanceGroup& group, int part) { return api::plain_label(fmt::format("lifecycle-group-{}-{}", group.set, part), 63); }
int parts_of(const api::InstanceGroup& group) { return std::max(1, (group.issued + kNodesPerConfig - 1) / kNodesPerConfig); }
// Those of them in which there is a number that is in use.
bool in_use(const api::InstanceGroup& group, int part) {
  for (int number = part * kNodesPerConfig + 1; number <= std::min(group.issued, (part + 1) * kNodesPerConfig); ++number)
    if (!group.retired.contains(number)) return true;
  return part == 0;
}

Json projected(const char* name, const char* kind, const std::vector<std::string>& names) {
  Json sources = Json::array();
  for (const std::string& one : names) sources.push(Json::object({{kind, Json::object({{"name", one}})}}));
  return Json::object({{"name", name}, {"projected", Json::object({{"defaultMode", 0400}, {"sources", std::move(sources)}})}});
}

Json life_cycle_config(const api::LifecycleScripts& scripts) {
  Json out = Json::object({{"SourceS3Uri", scripts.uri}});
  if (!scripts.on_create.empty()) out.set("OnCreate", scripts.on_create);
  if (!scripts.on_init_complete.empty()) out.set("OnInitComplete", scripts.on_init_complete);
  return out;
}

Json provisioning_parameters(const api::Cluster& cluster) {
  Json out = Json::object({{"version", "1.0.0"}, {"workload_manager", "slurm"}});
  Json workers = Json::array();
  for (const api::InstanceGroup& group : cluster.groups) {
    if (group.node_type == SlurmNodeType::Controller) out.set("controller_group", group.name);
    if (group.node_type == SlurmNodeType::Login) out.set("login_group", group.name);
    if (group.node_type == SlurmNodeType::Compute) workers.push(Json::object({{"instance_group_name", group.name}, {"partition_name", group.partitions.empty() ? "dev" : group.partitions.front()}}));
  }
  return out.set("worker_groups", std::move(workers));
}

}  // namespace

ScriptBundle bundle_scripts(const ScriptFiles& files) {
  // The first Secret tells of all files: SHA-256, size, keys of the parts with commas, path. The sum of that text is the sum of all.
  ScriptBundle out;
  std::string manifest;
  std::vector<std::pair<std::string, std::string>> parts;
  for (const auto& [path, bytes] : files) {
    std::string keys;
    for (std::size_t at = 0; at < bytes.size(); at += kPart) {
      const std::string key = fmt::format("part-{:05}", parts.size());
      keys += (keys.empty() ? "" : ",") + key;
      parts.emplace_back(key, bytes.substr(at, kPart));
    }
    manifest += fmt::format("{} {} {} {}\n", hex(sha256(bytes)), bytes.size(), keys.empty() ? "-" : keys, path);
    out.paths.push_back(path);
  }
  out.sum = hex(sha256(manifest));
  Json data = Json::object({{"manifest", base64(manifest)}});
  std::size_t room = manifest.size() > kPart ? 0 : kPart - manifest.size();
  const auto close = [&] {
    const std::string name = bundle_secret_name(out.sum, out.secrets.size());
    out.names.push_back(name);
    out.secrets.push_back(Json::object({{"apiVersion", "v1"}, {"kind", "Secret"}, {"metadata", Json::object({{"name", name}})}, {"immutable", true}, {"type", "Opaque"}, {"data", std::move(data)}}));
    data = Json::object();
    room = kPart;
  };
  for (const auto& [key, bytes] : parts) {
    if (bytes.size() > room) close();
    data.set(key, base64(bytes));
    room -= std::min(room, bytes.size());
  }
  close();
  return out;
}

std::string bundle_secret_name(const std::string& sum, std::size_t index) { return fmt::format("lifecycle-{}-{}", sum.substr(0, 16), index); }

Result<ScriptBundle> kept_bundle(const std::string& sum, const std::vector<Json>& secrets) {
  ScriptBundle out;
  out.sum = sum;
  const auto lacking = [&](const char* what) { return fail(Code::NotFound, fmt::format("the scripts of sum {} are not kept any more: {}", sum.substr(0, 16), what)); };
  const auto manifest = secrets.empty() ? Result<std::string>(fail(Code::NotFound, "")) : parse_base64(secrets.front()["data"]["manifest"].string());
  if (!manifest) return lacking("their first Secret is not there");
  if (hex(sha256(*manifest)) != sum) return lacking("their first Secret holds something else");
  std::set<std::string> parts;
  for (const Json& secret : secrets) {
    out.names.push_back(kube::name_of(secret));
    for (const auto& [key, bytes] : secret["data"].members()) parts.insert(key);
  }
  std::string_view rest = *manifest;
  while (!rest.empty()) {
    const auto end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
    std::string_view keys;
    for (int field = 0; field < 3; ++field) {
      const auto space = line.find(' ');
      if (space == line.npos) return lacking("their first Secret cannot be read");
      keys = line.substr(0, space);
      line.remove_prefix(space + 1);
    }
    out.paths.emplace_back(line);
    for (std::size_t at = 0; keys != "-" && at <= keys.size();) {
      const auto comma = std::min(keys.find(',', at), keys.size());
      if (!parts.contains(std::string(keys.substr(at, comma - at)))) return lacking("a Secret of theirs is not there");
      at = comma + 1;
    }
  }
  return out;
}

const char* field_of(ScriptStage stage) { return stage == ScriptStage::OnCreate ? "onCreate" : "onInitComplete"; }
const std::string& file_of(const api::LifecycleScripts& scripts, ScriptStage stage) { return stage == ScriptStage::OnCreate ? scripts.on_create : scripts.on_init_complete; }
std::string script_pod_name(const std::string& instance, ScriptStage stage) { return instance + (stage == ScriptStage::OnCreate ? "-on-create" : "-on-init-complete"); }

bool is_script(const Json& pod) {
  const Json* owner = kube::controller_of(pod);
  const std::string& instance = pod["metadata"]["labels"][api::kLifecycleLabel].string();
  return !instance.empty() && kube::space_of(pod).starts_with("cluster-") && owner != nullptr && (*owner)["kind"].string() == api::kInstances.kind && (*owner)["name"].string() == instance;
}
bool is_script_of(const Json& pod, const Json& instance) { return is_script(pod) && (*kube::controller_of(pod))["uid"].string() == kube::uid_of(instance); }

Json script_pod(const api::Cluster& cluster, const api::InstanceGroup& group, const api::LifecycleScripts& scripts, const api::Instance& instance, const Json& owner, ScriptStage stage, ScriptRoot root, const ScriptBundle& bundle, const ScriptPodOptions& options) {
  const bool slurm = cluster.orchestrator == api::Orchestrator::Slurm;
  Json volumes = Json::array({projected("source", "secret", bundle.names), memory("run"), Json::object({{"name", "tmp"}, {"emptyDir", Json::object({{"sizeLimit", "10Gi"}})}})});
  std::vector<std::string> configs{kClusterConfig};
  std::string group_files;
  for (const api::InstanceGroup& one : cluster.groups) {
    std::string files;
    for (int part = 0; part < parts_of(one); ++part)
      if (in_use(one, part)) {
        configs.push_back(config_name(one, part));
        files += (files.empty() ? "" : ",") + config_name(one, part) + ".json";
      }
    group_files += fmt::format("{}{}={}={}", group_files.empty() ? "" : ";", one.name, one.type, files);
  }
  volumes.push(projected("config", "configMap", configs));
  Json mounts = Json::array({mount("source", kSourceFolder, true), mount("config", kConfigFolder, true), mount("run", "/run/slurm"), mount("tmp", "/tmp")});
  Json environment = Json::array({env("FAIRLEAD_INSTANCE", instance.id), env("FAIRLEAD_SCRIPT", file_of(scripts, stage)),
                                  env("FAIRLEAD_SCRIPT_FOLDER", "/tmp/" + scripts.bucket + (scripts.prefix.empty() ? "" : "/" + scripts.prefix)), env("FAIRLEAD_SCRIPT_LIMIT", std::to_string(options.limit.count())),
                                  env("FAIRLEAD_LIFE_CYCLE_CONFIG", kube::print_json(life_cycle_config(scripts))), env("FAIRLEAD_GROUP_FILES", group_files), env("FAIRLEAD_SCRIPT_SUM", bundle.sum)});
  // Scripts look for their own machine by its address; what was stored before this pod had one knows another.
  environment.push(Json::object({{"name", "FAIRLEAD_ADDRESS"}, {"valueFrom", Json::object({{"fieldRef", Json::object({{"fieldPath", "status.podIP"}})}})}}));
  // Of several the first is the primary one; the others read its address, as compute nodes do.
  int first = 1;
  while (group.retired.contains(first)) ++first;
  if (slurm && group.node_type == SlurmNodeType::Controller && instance.number == first) environment.push(env("FAIRLEAD_CONTROLLER", "1"));
  if (options.companion.is_object()) {
    Json companion = Json::object({{"name", "companion"}});
    for (const auto& [key, value] : options.companion.members()) companion.set(key, value);
    volumes.push(std::move(companion));
    mounts.push(mount("companion", "/opt/fairlead/bin", true));
  }
  switch (root) {
    case ScriptRoot::Shared: {
      environment.push(env("FAIRLEAD_JAIL", "mount"));
      volumes.push(Json::object({{"name", "jail"}, {"persistentVolumeClaim", Json::object({{"claimName", kJailClaim}})}}));
      mounts.push(mount("jail", api::kJailVolume));
      // Slurm's commands work in it.
      volumes.push(Json::object({{"name", "munge-key"}, {"secret", Json::object({{"secretName", api::munge_secret_of(cluster.slurm_name)}, {"defaultMode", 0400}})}}));
      volumes.push(Json::object({{"name", "slurm-config"}, {"configMap", Json::object({{"name", api::config_map_of(cluster.slurm_name)}})}}));
      mounts.push(mount("munge-key", "/etc/fairlead/munge", true));
      mounts.push(mount("slurm-config", "/etc/fairlead/slurm", true));
      break;
    }
    case ScriptRoot::Machine:
      environment.push(env("FAIRLEAD_SCRIPT_ROOT", "/host"));
      volumes.push(Json::object({{"name", "machine"}, {"hostPath", Json::object({{"path", "/"}, {"type", "Directory"}})}}));
      mounts.push(Json::object({{"name", "machine"}, {"mountPath", "/host"}, {"mountPropagation", "Bidirectional"}}));
      break;
    case ScriptRoot::Container: break;
  }
  Json container = Json::object({{"name", kContainer},
                                 {"image", options.image},
                                 {"command", Json::array({Json("/opt/fairlead/bin/fairlead-slurm"), Json("lifecycle")})},
                                 {"env", std::move(environment)},
                                 {"securityContext", Json::object({{"privileged", true}, {"runAsUser", 0}, {"runAsGroup", 0}})},
                                 {"volumeMounts", std::move(mounts)}});
  Json spec = Json::object({{"nodeName", instance.node},
                            {"restartPolicy", "Never"},
                            {"enableServiceLinks", false},
                            {"automountServiceAccountToken", false},
                            {"terminationGracePeriodSeconds", 5},
                            {"tolerations", Json::array({Json::object({{"operator", "Exists"}})})},
                            {"containers", Json::array({std::move(container)})},
                            {"volumes", std::move(volumes)}});
  // With Slurm it is a node of the cluster's own network, whose policies let it speak to the heads; else it is the machine.
  Json labels = Json::object({{"app.kubernetes.io/managed-by", "fairlead"}, {api::kClusterLabel, cluster.name}, {api::kLifecycleLabel, instance.id}});
  if (slurm) labels.set(api::kSlurmClusterLabel, cluster.slurm_name).set(api::kSlurmRoleLabel, api::kScriptRole);
  else spec.set("hostNetwork", true).set("dnsPolicy", "ClusterFirstWithHostNet");
  if (root == ScriptRoot::Machine) spec.set("hostPID", true);
  Json annotations = Json::object({{kScriptSum, bundle.sum}});
  if (!instance.software_id.empty()) annotations.set(kScriptUpdate, instance.software_id);
  return Json::object({{"apiVersion", "v1"}, {"kind", "Pod"},
                       {"metadata", Json::object({{"name", script_pod_name(instance.id, stage)}, {"namespace", cluster.space}, {"labels", std::move(labels)},
                                                  {"annotations", std::move(annotations)}, {"ownerReferences", Json::array({kube::owner_reference(owner)})}})},
                       {"spec", std::move(spec)}});
}

std::string check_pod_name(const std::string& instance) { return instance + "-deep-health-check"; }

namespace {

// `fairlead-slurm COMMAND` on the machine of an instance.
Json companion_pod(const api::Cluster& cluster, const api::Instance& instance, const std::string& name, const char* command, Json environment, const std::string& request, const Json& owner, const ScriptPodOptions& options) {
  Json volumes = Json::array({Json::object({{"name", "tmp"}, {"emptyDir", Json::object({{"sizeLimit", "1Gi"}})}})});
  Json mounts = Json::array({mount("tmp", "/tmp")});
  if (options.companion.is_object()) {
    Json companion = Json::object({{"name", "companion"}});
    for (const auto& [key, value] : options.companion.members()) companion.set(key, value);
    volumes.push(std::move(companion));
    mounts.push(mount("companion", "/opt/fairlead/bin", true));
  }
  Json container = Json::object({{"name", kContainer},
                                 {"image", options.image},
                                 {"command", Json::array({Json("/opt/fairlead/bin/fairlead-slurm"), Json(command)})},
                                 {"env", std::move(environment)},
                                 {"volumeMounts", std::move(mounts)}});
  return Json::object({{"apiVersion", "v1"}, {"kind", "Pod"},
                       {"metadata", Json::object({{"name", name}, {"namespace", cluster.space},
                                                  {"labels", Json::object({{"app.kubernetes.io/managed-by", "fairlead"}, {api::kClusterLabel, cluster.name}, {api::kLifecycleLabel, instance.id}})},
                                                  {"annotations", Json::object({{kCheckRequest, request}})}, {"ownerReferences", Json::array({kube::owner_reference(owner)})}})},
                       {"spec", Json::object({{"nodeName", instance.node}, {"restartPolicy", "Never"}, {"enableServiceLinks", false}, {"automountServiceAccountToken", false}, {"terminationGracePeriodSeconds", 5},
                                              {"tolerations", Json::array({Json::object({{"operator", "Exists"}})})}, {"containers", Json::array({std::move(container)})}, {"volumes", std::move(volumes)}})}});
}

}  // namespace

Json check_pod(const api::Cluster& cluster, const api::Instance& instance, const std::string& request, const Json& owner, int gpus, const ScriptPodOptions& options) {
  Json out = companion_pod(cluster, instance, check_pod_name(instance.id), "deep-check", Json::array({env("FAIRLEAD_CHECK_SECONDS", std::to_string(options.check.count())), env("FAIRLEAD_CHECK_GPUS", std::to_string(gpus))}), request, owner, options);
  if (gpus > 0) out.child("spec").child("containers").items().front().set("resources", Json::object({{"limits", Json::object({{api::kGpuResource, std::to_string(gpus)}})}}));
  return out;
}

std::string answering_pod_name(const std::string& instance) { return instance + "-links-answer"; }
std::string links_pod_name(const std::string& instance) { return instance + "-links-check"; }

Json answering_pod(const api::Cluster& cluster, const api::Instance& instance, const std::string& meeting, const Json& owner, const ScriptPodOptions& options) {
  return companion_pod(cluster, instance, answering_pod_name(instance.id), "answer-links", Json::array({env("FAIRLEAD_CHECK_TOKEN", meeting)}), meeting, owner, options);
}

Json links_pod(const api::Cluster& cluster, const api::Instance& instance, const std::string& meeting, const Json& owner, const std::string& peers, const ScriptPodOptions& options) {
  const auto seconds = std::max<std::int64_t>(1, options.check.count() / 3);  // as each part of a stress check
  return companion_pod(cluster, instance, links_pod_name(instance.id), "check-links", Json::array({env("FAIRLEAD_CHECK_TOKEN", meeting), env("FAIRLEAD_CHECK_SECONDS", std::to_string(seconds)), env("FAIRLEAD_CHECK_PEERS", peers)}), meeting, owner, options);
}

std::vector<Json> script_configs(const api::Cluster& cluster, const Json& owner, const std::vector<ScriptNode>& nodes, const KubernetesFacts& kubernetes) {
  const bool slurm = cluster.orchestrator == api::Orchestrator::Slurm;
  const auto config_map = [&](const std::string& name, Json data) {
    return Json::object({{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", Json::object({{"name", name}, {"namespace", cluster.space}, {"labels", Json::object({{api::kClusterLabel, cluster.name}})}, {"ownerReferences", Json::array({kube::owner_reference(owner)})}})}, {"data", std::move(data)}});
  };
  std::map<std::pair<std::string, int>, Json> members;
  std::vector<std::pair<int, std::string>> heads;
  for (const ScriptNode& node : nodes) {
    const api::InstanceGroup* group = cluster.group(node.group);
    if (group == nullptr) continue;
    auto [at, fresh] = members.try_emplace({node.group, (node.number - 1) / kNodesPerConfig}, Json::array());
    at->second.push(Json::object({{"InstanceName", fmt::format("{}-{}", node.group, node.number)}, {"InstanceId", node.instance}, {"AgentIpAddress", node.machine}, {"CustomerIpAddress", node.address}}));
    if (group->node_type == SlurmNodeType::Controller) heads.emplace_back(node.number, node.address);
  }
  std::sort(heads.begin(), heads.end());
  Json told = Json::object({{"ClusterName", cluster.title}, {"ClusterArn", cluster.arn}, {"ClusterType", slurm ? "Slurm" : "Kubernetes"}});
  Json own = told;  // as the first controller reads it: without an address of somebody else
  if (slurm) {
    Json others = Json::array();
    for (std::size_t i = 1; i < heads.size(); ++i) others.push(heads[i].second);
    const auto config = [&](const std::string& primary) { return Json::object({{"PrimaryControllerIp", primary}, {"SecondaryControllerIps", others}}); };
    told.set("SlurmConfig", config(heads.empty() ? "" : heads.front().second));
    own.set("SlurmConfig", config(""));
  } else {
    Json config = Json::object();
    for (const auto& [field, value] : {std::pair("EksClusterName", kubernetes.name), {"EksClusterEndpoint", kubernetes.endpoint}, {"EksClusterCertificateAuthority", base64(kubernetes.authority)}, {"EksServiceIpv4Cidr", kubernetes.service_range}})
      if (!value.empty()) config.set(field, value);
    told.set("KubernetesConfig", std::move(config));
  }
  Json data = Json::object({{"cluster.json", kube::print_json(told)}, {"controller.json", kube::print_json(own)}});
  if (slurm) data.set("provisioning_parameters.json", kube::print_json(provisioning_parameters(cluster)));
  std::vector<Json> out{config_map(kClusterConfig, std::move(data))};
  for (const api::InstanceGroup& group : cluster.groups)
    for (int part = 0; part < parts_of(group); ++part) {
      if (!in_use(group, part)) continue;
      const auto found = members.find({group.name, part});
      out.push_back(config_map(config_name(group, part), Json::object({{config_name(group, part) + ".json", kube::print_json(found == members.end() ? Json::array() : found->second)}})));
    }
  return out;
}

ScriptEnd end_of_script(const Json& pod) {
  const std::string &phase = pod["status"]["phase"].string(), &reason = pod["status"]["reason"].string();
  // Ended by its node, or by somebody: that is no word of the script.
  const bool taken = kube::deleting(pod) || kube::condition_is_true(pod, "DisruptionTarget") || reason == "Evicted" || reason == "NodeShutdown" || reason == "Terminated" || reason == "NodeLost" || reason == "Preempting" || reason == "Shutdown";
  const auto lost = [&](int code, std::string otherwise) { return ScriptEnd{ScriptEnd::Kind::Lost, code, pod["status"]["message"].string_or(reason.empty() ? std::move(otherwise) : reason)}; };
  // More than its own share was written: that is its doing, and would be again. In kubelet's words (eviction of a pod by its own limits), and in those of Fairlead's agent.
  if (const std::string& why = pod["status"]["message"].string(); reason == "Evicted" && (why.find("exceeds the limit") != why.npos || why.find("exceeds the total limit") != why.npos || why.find("exceeded its local ephemeral storage limit") != why.npos))
    return {ScriptEnd::Kind::Failed, 137, "it was ended: " + why};
  for (const Json& container : pod["status"]["containerStatuses"].items()) {
    if (container["name"].string() != kContainer) continue;
    const Json& ended = container["state"]["terminated"];
    if (!ended.is_object()) break;
    const int code = static_cast<int>(ended["exitCode"].integer(-1));
    std::string message(trim(ended["message"].string()));
    if (code == 0) return {ScriptEnd::Kind::Succeeded, 0, std::move(message)};
    if (taken || message.starts_with(kEndedFromOutside) || ended["reason"].string() == "ContainerStatusUnknown") return lost(code, "it was ended from outside");
    if (message.empty()) message = fmt::format("ended with {}{}", code, ended["reason"].string().empty() || ended["reason"].string() == "Error" ? "" : ", " + ended["reason"].string());
    return {ScriptEnd::Kind::Failed, code, std::move(message)};
  }
  if (phase == "Failed" || phase == "Succeeded") return lost(0, "its pod ended without a word");
  if (kube::deleting(pod)) return lost(0, "its pod is being deleted");
  return {phase == "Running" ? ScriptEnd::Kind::Going : ScriptEnd::Kind::Waiting, 0, kube::words_of_pod(pod).status};
}

}  // namespace fairlead::fleet
