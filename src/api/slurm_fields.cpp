// SPDX-License-Identifier: Apache-2.0
#include "api/slurm_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/limits.h"

namespace fairlead::api {
namespace {

using kube::Json;

constexpr const char* kFields =
#include "api/slurm_fields.inc"
    ;

// Those that are ours, below spec.extensions. Every one of them is in effect, and everything below it is its reader's to judge.
constexpr std::string_view kOwnFields[] = {
    "extensions.accounting.backup.enabled", "extensions.accounting.backup.interval", "extensions.accounting.backup.keep", "extensions.accounting.backup.volumeClaimTemplateSpec", "extensions.accounting.backup.volumeSourceName",
    "extensions.accounting.enforce", "extensions.accounting.externalTLS.caSecretKeyRef", "extensions.accounting.externalTLS.mode", "extensions.accounting.of", "extensions.accounting.replicas", "extensions.accounting.sharedWith",
    "extensions.autoscale.sets",
    "extensions.backup.enabled", "extensions.backup.interval", "extensions.backup.keep", "extensions.backup.parts", "extensions.backup.schedule", "extensions.backup.volumeClaimTemplateSpec", "extensions.backup.volumeSourceName",
    "extensions.bindCores", "extensions.mockGpus", "extensions.notifications", "extensions.quota.accounts", "extensions.scaleDown.after", "extensions.scaleDown.policy", "extensions.scaleDown.strictOrdinals"};

const FieldNames& all_fields() {
  static const FieldNames fields = [] {
    FieldNames out = field_names(kFields);
    for (const std::string_view own : kOwnFields)
      for (auto dot = own.find('.');; dot = own.find('.', dot + 1)) {
        out.emplace(own.substr(0, dot));
        if (dot == own.npos) break;
      }
    for (const char* role : {"controller", "worker", "login"})
      for (const char* list : {"jailSubMounts", "customMounts"}) out.insert(fmt::format("slurmNodes.{}.volumes.{}[].volumeClaimTemplateSpec", role, list));
    return out;
  }();
  return fields;
}

// Lists of the tables: "k8sNodeFilters[].name".
bool described(const std::string& path) {
  const auto below = all_fields().lower_bound(path + ".");
  return below != all_fields().end() && below->starts_with(path + ".");
}

bool says_nothing(const Json& value) {
  return value.is_null() || (value.is_bool() && !value.boolean()) || (value.is_string() && value.string().empty()) || (value.is_array() && value.items().empty()) || (value.is_object() && value.members().empty());
}

void find_unknown(const Json& node, const std::string& path, std::vector<std::string>& out) {
  if (path == "volumeSources[]" || path == "extensions") return;  // whatever Kubernetes knows; ours are told apart by their effect
  for (const auto& [name, value] : node.members()) {
    const std::string at = path.empty() ? name : path + "." + name;
    if (says_nothing(value)) continue;
    if (!known_field(at) && !described(at)) out.push_back("spec." + at);
    else if (described(at)) find_unknown(value, at, out);
    else if (described(at + "[]"))
      for (const Json& item : value.items()) find_unknown(item, at + "[]", out);
  }
}

const std::map<std::string, std::string, std::less<>>& shapes() {
  static const std::map<std::string, std::string, std::less<>> table = [] {
    std::map<std::string, std::string, std::less<>> out;
    std::string_view rest = kFields;
    while (!rest.empty()) {
      const auto space = rest.find(' '), end = rest.find('\n');
      out.emplace(rest.substr(0, space), rest.substr(space + 1, end - space - 1));
      rest.remove_prefix(end + 1);
    }
    return out;
  }();
  return table;
}

// What a reader who knows the source operator would not expect, or would ask.
const std::map<std::string_view, std::string_view>& notes() {
  static const std::map<std::string_view, std::string_view> table = {
      {"cgroupVersion", "v1 confines steps; v2 needs systemd in the container with Slurm 22.05 (condition `StepsConfined`)"},
      {"clusterType", "cpu keeps GPUs out of Gres"},
      {"crVersion", "for people"},
      {"healthCheckConfig.healthCheckProgram", "a path in the worker's container; slurmd runs it as root, and it drains nodes itself"},
      {"k8sNodeFilters", "node selector, affinity and tolerations of pods, by name"},
      {"ncclSettings.topologyData", "the file's text"},
      {"ncclSettings.topologyType", "custom puts topologyData before NCCL on every worker; auto leaves NCCL to itself; \"H100 GPU cluster\" is named in FieldsIgnored"},
      {"pause", "nothing is changed while it is true"},
      {"periodicChecks", "not run in this version: write an ActiveCheck (docs/slurm-checks.md)"},
      {"secrets.sshdKeysName", "empty: keys are made"},
      {"slurmNodes.controller.size", "1 to 3, of which one is elected (docs/slurm-heads.md); HEAD took this field away"},
      {"slurmNodes.exporter.enabled", "pod exporter-0 serves /metrics (docs/slurm-metrics.md)"},
      {"slurmNodes.exporter.podMonitorConfig", "the chart makes a PodMonitor of it (podMonitor.create); the operator makes none"},
      {"slurmNodes.exporter.size", "0 or 1; more count as 1"},
      {"slurmNodes.exporter.volumes", "jail, read-only: names of users"},
      {"slurmNodes.login.sshRootPublicKeys", "read at each login: an edit counts at once, no pod restarts"},
      {"slurmNodes.login.sshdServiceType", "Service CLUSTER-login-svc: LoadBalancer, NodePort or ClusterIP; condition LoginReachable says where to go"},
      {"slurmNodes.login.sshdServiceNodePort", "0: Kubernetes chooses"},
      {"slurmNodes.login.sshdServiceLoadBalancerIP", "the fixed address, where the load balancer gives such"},
      {"slurmNodes.login.sshdConfigMapRefName", "your own sshd_config instead of ours"},
      {"slurmNodes.rest.enabled", "pods rest-0.. run slurmrestd behind Service CLUSTER-rest-svc, by token (docs/slurm-rest.md)"},
      {"slurmNodes.rest.maxConnections", "Slurm 22.05 has no such setting"},
      {"slurmNodes.rest.size", "up to 8"},
      {"slurmNodes.rest.threadCount", "of each slurmrestd"},
      {"slurmNodes.worker.size", "fewer drains first and waits for jobs (docs/slurm-scaling.md); a section that is left out sends nobody away"},
      {"slurmNodes.worker.volumes", "spool, jail, jailSubMounts, sharedMemorySize"},
      {"volumeSources", "each exactly one source; claims that several pods share must be ReadWriteMany"}};
  return table;
}

struct Rows {
  std::string text;
  void row(const std::string& path, bool below, const std::string& shape, bool effect) {
    const auto note = notes().find(path);
    text += fmt::format("| `{}`{} | {} | {}{} |\n", path, below ? " and below" : "", shape, effect ? "in effect" : "named in FieldsIgnored", note == notes().end() ? "" : fmt::format(": {}", note->second));
  }
};

std::string shape_words(bool first, bool second) { return first && second ? "both" : first ? "1.14.10" : "HEAD"; }

void add_rows(const std::string& path, Rows& out) {
  bool first = false, second = false;
  std::vector<std::string> children;
  const std::string below = path.empty() ? "" : path + ".";
  for (auto at = shapes().lower_bound(below); at != shapes().end() && at->first.starts_with(below); ++at) {
    const std::string rest = at->first.substr(below.size());
    const std::string child = rest.substr(0, rest.find('.'));
    if (child.find("[]") == child.npos && (children.empty() || children.back() != child)) children.push_back(child);
  }
  std::sort(children.begin(), children.end());
  children.erase(std::unique(children.begin(), children.end()), children.end());
  const auto mark = [&](std::string_view marks) { first = first || marks.find('1') != marks.npos, second = second || marks.find('2') != marks.npos; };
  if (const auto own = shapes().find(path); own != shapes().end()) mark(own->second);
  const InEffect effect = path.empty() ? InEffect::Some : field_in_effect(path);
  if (effect != InEffect::Some) return out.row(path, !children.empty(), shape_words(first, second), effect == InEffect::Yes);
  for (const auto& child : children) add_rows(below + child, out);
}

bool one_of(const std::string& value, std::initializer_list<const char*> known) { return std::any_of(known.begin(), known.end(), [&](const char* one) { return value == one; }); }

}  // namespace

std::string fields_markdown() {
  Rows out{"| field of `spec` | shape | here |\n|---|---|---|\n"};
  add_rows("", out);
  return out.text;
}

bool known_field(std::string_view path) { return all_fields().contains(path); }

FieldNames shape_paths() {
  FieldNames out = {"cgroupVersion", "ncclSettings.topologyType", "ncclSettings.topologyData", "slurmNodes.login.sshdServiceType", "slurmNodes.login.sshdServiceAnnotations",
                                            "slurmNodes.login.sshdServiceLoadBalancerIP", "slurmNodes.login.sshdServiceNodePort", "slurmNodes.login.sshdServiceLoadBalancerSourceRanges",
                                            "slurmNodes.login.sshdConfigMapRefName"};
  out.insert(std::begin(kOwnFields), std::end(kOwnFields));
  for (const auto& [role, main] : {std::pair<std::string, std::string>{"controller", "slurmctld"}, {"worker", "slurmd"}, {"login", "sshd"}, {"exporter", "exporter"}, {"exporter", "exporterContainer"}, {"rest", "rest"}}) {
    for (const char* field : {"priorityClass", "customInitContainers"}) out.insert("slurmNodes." + role + "." + field);
    for (const std::string& container : {main, role == "rest" ? main : std::string("munge")})  // pods of REST have no munge
      for (const char* field : {"securityLimitsConfig", "imagePullPolicy", "imagePullSecrets", "customEnv", "livenessProbe", "appArmorProfile"}) out.insert("slurmNodes." + role + "." + container + "." + field);
  }
  return out;
}

void name_without_effect(const Json& spec, std::vector<std::string>& ignored) {
  // What happens anyway.
  if (spec["maintenance"].string() == "none") std::erase(ignored, "spec.maintenance");
  const Json& exporter = spec["slurmNodes"]["exporter"];
  if (exporter["jobSource"].string() == "controller") std::erase(ignored, "spec.slurmNodes.exporter.jobSource");
  // What the kind fills in where nobody wrote anything.
  if (exporter["podMonitorConfig"] == Json::object({{"interval", "30s"}, {"jobLabel", "slurm-exporter"}, {"scrapeTimeout", "20s"}})) std::erase(ignored, "spec.slurmNodes.exporter.podMonitorConfig");
  if (spec["slurmNodes"]["rest"]["maxConnections"].integer() == 10) std::erase(ignored, "spec.slurmNodes.rest.maxConnections");
  std::vector<std::string> unknown;
  find_unknown(spec, "", unknown);
  for (auto& path : unknown)
    if (std::find(ignored.begin(), ignored.end(), path) == ignored.end()) ignored.push_back(std::move(path));
  if (spec["ncclSettings"]["topologyType"].string() == "H100 GPU cluster") ignored.push_back("spec.ncclSettings.topologyType: \"H100 GPU cluster\" (give the topology as topologyType: custom with topologyData)");
}

std::string with_suggestion(std::string path) { return with_suggestion(std::move(path), all_fields()); }

void read_container_extras(const Json& from, const std::string& where, SlurmContainer& out, std::vector<std::string>& problems) {
  out.pull_policy = from["imagePullPolicy"].string();
  if (!out.pull_policy.empty() && !one_of(out.pull_policy, {"Always", "Never", "IfNotPresent"}))
    problems.push_back(fmt::format("{}.imagePullPolicy: \"{}\" is none of Always, Never, IfNotPresent", where, out.pull_policy));
  out.limits = from["securityLimitsConfig"].string();
  // The container's first process reads them in the same way, and ends where it cannot: a head that is made anew would not come back.
  if (const auto limits = read_limits(out.limits); !limits) problems.push_back(fmt::format("{}.securityLimitsConfig: {}", where, limits.error().message));
  out.app_armor = from["appArmorProfile"].string();
  if (!out.app_armor.empty() && !one_of(out.app_armor, {"unconfined", "runtime/default"}) && (!out.app_armor.starts_with("localhost/") || out.app_armor.size() == 10))
    problems.push_back(fmt::format("{}.appArmorProfile: \"{}\" is none of unconfined, runtime/default, localhost/NAME", where, out.app_armor));
  if (from["livenessProbe"].is_object() && !from["livenessProbe"].members().empty()) out.liveness = from["livenessProbe"];
  if (!from["customEnv"].items().empty()) out.env = from["customEnv"];
  for (const Json& variable : from["customEnv"].items())
    if (const std::string& name = variable["name"].string(); name.empty() || name.starts_with("FAIRLEAD_") || name == "LD_PRELOAD")
      problems.push_back(fmt::format("{}.customEnv: \"{}\" is set by Fairlead, or no name", where, name));
}

void read_role_extras(const Json& from, const std::string& where, SlurmRole& out, std::vector<std::string>& problems) {
  out.priority_class = from["priorityClass"].string();
  if (!from["customInitContainers"].items().empty()) out.init_containers = from["customInitContainers"];
  std::vector<std::string> names;
  const auto secrets = [&](const Json& list) {
    for (const Json& one : list.items())
      if (const std::string& name = one["name"].string(); !name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  // Of the containers in HEAD's shape; a pod has one list.
  for (const char* container : {"slurmctld", "slurmd", "sshd", "exporter", "rest", "munge"}) secrets(from[container]["imagePullSecrets"]);
  if (!names.empty()) out.pull_secrets = Json::array();
  for (const auto& name : names) out.pull_secrets.push(Json::object({{"name", name}}));
  for (const char* list : {"jailSubMounts", "customMounts"})
    for (const Json& mount : from["volumes"][list].items()) {
      SlurmSubMount made{.name = mount["name"].string(),
                         .path = mount["mountPath"].string(),
                         .source_name = mount["volumeSourceName"].string(),
                         .sub_path = mount["subPath"].string(),
                         .read_only = mount["readOnly"].boolean(),
                         .claim_template = mount["volumeClaimTemplateSpec"]};
      const auto same = std::find_if(out.sub_mounts.begin(), out.sub_mounts.end(), [&](const auto& other) { return other.name == made.name; });
      if (same != out.sub_mounts.end()) problems.push_back(fmt::format("{}.volumes.{}: the name {} is there twice; give each mount its own", where, list, made.name));
      else out.sub_mounts.push_back(std::move(made));
    }
}

void read_login_service(const Json& login, SlurmCluster& out) {
  SlurmLoginService& to = out.login_service;
  to.type = login["sshdServiceType"].string();
  if (!to.type.empty() && !one_of(to.type, {"LoadBalancer", "NodePort", "ClusterIP"}))
    out.problems.push_back(fmt::format("spec.slurmNodes.login.sshdServiceType: \"{}\" is none of LoadBalancer, NodePort, ClusterIP", to.type));
  to.load_balancer_ip = login["sshdServiceLoadBalancerIP"].string();
  const std::int64_t port = login["sshdServiceNodePort"].integer();
  if (port < 0 || port > 65535) out.problems.push_back(fmt::format("spec.slurmNodes.login.sshdServiceNodePort: {} is not a port; clusters give out 30000 to 32767, and 0 lets them choose", port));
  else to.node_port = static_cast<int>(port);
  for (const auto& [name, value] : login["sshdServiceAnnotations"].members()) to.annotations[name] = value.string();
  for (const Json& range : login["sshdServiceLoadBalancerSourceRanges"].items()) to.source_ranges.push_back(range.string());
  out.sshd_config_map = login["sshdConfigMapRefName"].string();
}

void read_nccl_topology(const Json& settings, SlurmCluster& out) {
  const std::string& type = settings["topologyType"].string();
  if (type != "custom") return;
  out.nccl_topology = settings["topologyData"].string();
  if (out.nccl_topology.empty()) out.problems.push_back("spec.ncclSettings.topologyData: topologyType is custom; give the topology file's text here, or set topologyType: auto");
}

}  // namespace fairlead::api
