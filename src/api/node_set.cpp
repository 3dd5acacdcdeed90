// SPDX-License-Identifier: Apache-2.0
#include "api/node_set.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/field_names.h"
#include "api/gres_config.h"
#include "api/slurm_fields.h"
#include "kube/selector.h"

namespace fairlead::api {
namespace {

using kube::Json;

bool is_label(const std::string& text, std::size_t longest) {
  if (text.empty() || text.size() > longest || text.front() == '-' || text.back() == '-') return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

// One word of Slurm's: a feature, or KEY=VALUE.
bool is_word(const std::string& text, std::string_view beside) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || beside.find(c) != beside.npos; });
}

SlurmContainer read_part(const Json& from, const std::string& where, int port, const std::string& default_image, std::vector<std::string>& problems) {
  SlurmContainer out;
  const std::string &repository = from["image"]["repository"].string(), &tag = from["image"]["tag"].string();
  out.image = repository.empty() ? default_image : tag.empty() ? repository : fmt::format("{}{}{}", repository, tag.starts_with("sha256:") ? '@' : ':', tag);
  out.port = static_cast<int>(from["port"].integer(port));
  if (port > 0 && (out.port < 1 || out.port > 65535)) problems.push_back(fmt::format("{}.port: {} is not a port (1-65535)", where, kube::print_json(from["port"])));
  for (const auto& [name, value] : from["resources"].members()) {
    auto quantity = kube::Quantity::from_json(value);
    if (quantity) out.resources[name] = quantity->text();
    else problems.push_back(fmt::format("{}.resources.{}: {}", where, name, quantity.error().message));
  }
  // The same fields as of a container of the SlurmCluster, under other names.
  Json extras = Json::object({{"imagePullPolicy", from["image"]["pullPolicy"]}, {"customEnv", from["customEnv"]}, {"livenessProbe", from["livenessProbe"]}, {"securityLimitsConfig", from["security"]["limitsConfig"]},
                              {"appArmorProfile", from["security"]["appArmorProfile"]}});
  read_container_extras(extras, where, out, problems);
  return out;
}

// A pod volume source that stands in the set itself.
std::string own_source(const Json& source, const std::string& set, const std::string& name, SlurmCluster& cluster, std::vector<std::string>& problems) {
  if (!source.is_object() || source.members().empty()) return "";
  if (source.members().size() != 1) problems.push_back(fmt::format("spec.slurmd.volumes.{}: it must name exactly one source, it names {}", name, source.members().size()));
  const std::string key = fmt::format("nodeset {}: {}", set, name);
  cluster.volume_sources[key] = source;
  return key;
}

// Ours, beside the sources that Kubernetes has: a claim for each worker, made by this spec, which stays when the worker is made anew.
constexpr const char* kClaimTemplate = "volumeClaimTemplateSpec";

// Takes it out of `source`. Null: the source is one that Kubernetes has.
Json take_claim_template(Json& source, const std::string& name, WorkerSet& out) {
  Json made = source[kClaimTemplate];
  source.erase(kClaimTemplate);
  if (!made.is_null() && !made["resources"]["requests"].has("storage")) out.problems.push_back(fmt::format("spec.slurmd.volumes: {} of {} says no size (resources.requests.storage)", kClaimTemplate, name));
  if (!made.is_null() && source.is_object() && !source.members().empty()) out.problems.push_back(fmt::format("spec.slurmd.volumes: {} names a source and {}; one of them is expected", name, kClaimTemplate));
  return made;
}

void read_volumes(const Json& from, WorkerSet& out, SlurmCluster& cluster) {
  Json spool = from["spool"];
  out.role.spool.claim_template = take_claim_template(spool, "spool", out);
  out.role.spool.source_name = own_source(spool, out.name, "spool", cluster, out.problems);
  out.role.jail.source_name = own_source(from["jail"], out.name, "jail", cluster, out.problems);
  for (const char* list : {"jailSubMounts", "customVolumeMounts"})
    for (const Json& mount : from[list].items()) {
      Json source = mount;
      for (const char* own : {"name", "mountPath", "subPath", "readOnly"}) source.erase(own);
      SlurmSubMount made{.name = mount["name"].string(), .path = mount["mountPath"].string(), .sub_path = mount["subPath"].string(), .read_only = mount["readOnly"].boolean()};
      if (source["volumeSource"].is_object()) source = Json(source["volumeSource"]);
      made.claim_template = take_claim_template(source, made.name, out);
      made.source_name = own_source(source, out.name, made.name, cluster, out.problems);
      if (made.source_name.empty() && !made.claim_template.is_object()) out.problems.push_back(fmt::format("spec.slurmd.volumes.{}: {} names no source", list, made.name));
      if (!made.path.starts_with('/') || made.path.find("..") != std::string::npos) out.problems.push_back(fmt::format("spec.slurmd.volumes.{}: \"{}\" is not an absolute path", list, made.path));
      for (const auto& on_login : cluster.login.sub_mounts)
        if (on_login.name == made.name && on_login.path != made.path)
          out.problems.push_back(fmt::format("the mount {} is at {} on login nodes and at {} on these workers; give both the same path", made.name, on_login.path, made.path));
      out.role.sub_mounts.push_back(std::move(made));
    }
  const Json& shared_memory = from["sharedMemorySize"];
  if (shared_memory.is_null()) return;
  if (auto quantity = kube::Quantity::from_json(shared_memory)) out.role.shared_memory = quantity->text();
  else out.problems.push_back(fmt::format("spec.slurmd.volumes.sharedMemorySize: {}", quantity.error().message));
}

void read_node_config(const Json& from, WorkerSet& out) {
  for (const Json& feature : from["features"].items()) {
    if (is_word(feature.string(), "_-.:")) out.features.push_back(feature.string());
    else out.problems.push_back(fmt::format("spec.nodeConfig.features: \"{}\" is not one word", feature.string()));
  }
  for (const char* field : {"static", "dynamic"}) {
    std::string words = from[field].string();
    std::size_t begin = 0;
    while ((begin = words.find_first_not_of(' ', begin)) != std::string::npos) {
      const std::string word = words.substr(begin, words.find(' ', begin) - begin);
      begin += word.size();
      const std::string key = word.substr(0, word.find('='));
      // What says who the node is and what it has comes from the set itself.
      static constexpr std::string_view kOurs[] = {"NodeName", "NodeHostname", "NodeAddr", "Port", "Feature", "Features", "Gres", "CPUs", "Boards", "SocketsPerBoard", "Sockets", "CoresPerSocket", "ThreadsPerCore", "RealMemory"};
      if (word.find('=') == std::string::npos || !is_word(word, "_-.:=,/%[]")) out.problems.push_back(fmt::format("spec.nodeConfig.{}: \"{}\" is not KEY=VALUE", field, word));
      else if (std::find(std::begin(kOurs), std::end(kOurs), key) != std::end(kOurs)) out.problems.push_back(fmt::format("spec.nodeConfig.{}: {} follows from the set's name, features and resources; leave it out", field, key));
      else out.definition += " " + word;
    }
  }
  std::vector<std::string> lines;
  for (const Json& line : from["gresConfig"].items()) lines.push_back(line.string());
  const auto problems = check_gres_lines(lines);
  for (const std::string& problem : problems) out.problems.push_back(fmt::format("spec.nodeConfig.gresConfig, {}", problem));
  if (problems.empty()) out.gres = std::move(lines);  // gres.conf is one file for all: nothing of it that is wrong may come there
}

const FieldNames& effective() {
  static const FieldNames paths = {
      "clusterName", "replicas", "affinity", "nodeSelector", "tolerations", "priorityClass", "imagePullSecrets", "customInitContainers", "workerAnnotations", "gpu.enabled", "gpu.nvidia.gdrCopyEnabled", "nodeConfig.features",
      "nodeConfig.static", "nodeConfig.dynamic", "nodeConfig.gresConfig", "slurmd.image", "slurmd.port", "slurmd.resources", "slurmd.customEnv", "slurmd.livenessProbe", "slurmd.security.limitsConfig",
      "slurmd.security.appArmorProfile", "slurmd.volumes.spool", "slurmd.volumes.jail", "slurmd.volumes.jailSubMounts", "slurmd.volumes.customVolumeMounts", "slurmd.volumes.sharedMemorySize", "munge.image", "munge.resources",
      "munge.livenessProbe", "munge.security.limitsConfig", "munge.security.appArmorProfile", "extensions.scaleDown.policy", "extensions.scaleDown.after", "extensions.scaleDown.strictOrdinals"};
  return paths;
}

bool says_nothing(std::string_view path, const Json& value) {
  const bool nothing = value.is_null() || (value.is_bool() && !value.boolean()) || (value.is_string() && value.string().empty()) || (value.is_number() && value.number() == 0) ||
                       (value.is_array() && value.items().empty()) || (value.is_object() && value.members().empty());
  // What the older operator sets where nothing was asked for, and what says what happens anyway.
  const bool as_it_is = (path == "topology" && value["fabric"].string_or("root") == "root") || (path == "nodeConfig.autoResume" && value.boolean()) || (path == "docker" && !value["enabled"].boolean(true));
  return nothing || as_it_is;
}

const FieldNames& known_fields() {
  static const FieldNames names = [] {
    FieldNames out = field_names(
#include "api/node_set_fields.inc"
    );
    out.insert({"extensions", "extensions.scaleDown", "extensions.scaleDown.policy", "extensions.scaleDown.after", "extensions.scaleDown.strictOrdinals"});
    return out;
  }();
  return names;
}

void check_name(WorkerSet& set, const SlurmCluster& cluster) {
  if (!is_label(set.name, 50)) set.problems.push_back(fmt::format("metadata.name: \"{}\" begins the names of pods and Slurm nodes: lower-case letters, digits and dashes, at most 50", set.name));
  for (const char* taken : {"controller", "login", "accounting", "exporter", "rest", "all", "default", "main"})
    if (set.name == taken) set.problems.push_back(fmt::format("metadata.name: \"{}\" is the name of another part of a cluster; take another one", set.name));
  if (set.name == "worker" && cluster.has_workers)
    set.problems.push_back("metadata.name: spec.slurmNodes.worker of the SlurmCluster has the workers of this name; once that section is taken out of the SlurmCluster, this NodeSet takes them over as they run");
}

}  // namespace

std::string cluster_of_node_set(const Json& object) { return object["status"]["clusterName"].string_or(object["spec"]["clusterName"].string()); }

WorkerSet read_node_set(const Json& object, const std::string& default_image, SlurmCluster& cluster) {
  WorkerSet out;
  out.name = kube::name_of(object);
  out.uid = kube::uid_of(object);
  out.generation = object["metadata"]["generation"].integer();
  out.deleting = kube::deleting(object);
  const Json &spec = object["spec"], &slurmd = spec["slurmd"];
  if (const std::string &named = spec["clusterName"].string(), &taken = object["status"]["clusterName"].string(); !named.empty() && !taken.empty() && named != taken)
    out.problems.push_back(fmt::format("spec.clusterName: \"{}\"; the workers are in cluster {} and stay there: set it back, or delete this NodeSet and make another one", named, taken));
  const Json& size = spec["replicas"];
  const std::int64_t asked = size.is_null() ? 1 : size.integer(-1);
  if (asked < 0 || asked > kMaxSize) out.problems.push_back(fmt::format("spec.replicas: {} is not a whole number from 0 to {}", kube::print_json(size), kMaxSize));
  else out.role.size = static_cast<int>(asked);
  out.role.main = read_part(slurmd, "spec.slurmd", 6818, default_image, out.problems);
  out.role.munge = read_part(spec["munge"], "spec.munge", 0, out.role.main.image, out.problems);
  read_volumes(slurmd["volumes"], out, cluster);
  out.role.priority_class = spec["priorityClass"].string();
  if (!spec["imagePullSecrets"].items().empty()) out.role.pull_secrets = spec["imagePullSecrets"];
  if (!spec["customInitContainers"].items().empty()) out.role.init_containers = spec["customInitContainers"];
  out.role.node_filter = "nodeset " + out.name;
  cluster.filters[out.role.node_filter] = {out.role.node_filter, spec["affinity"], spec["nodeSelector"], spec["tolerations"]};
  if (const Json* enabled = spec["gpu"].find("enabled")) out.gpus = enabled->boolean(true);
  if (spec["gpu"]["nvidia"]["gdrCopyEnabled"].boolean()) {
    if (!out.role.main.env.is_array()) out.role.main.env = Json::array();
    out.role.main.env.push(Json::object({{"name", "NVIDIA_GDRCOPY"}, {"value", "enabled"}}));
  }
  read_node_config(spec["nodeConfig"], out);
  if (const Json& rules = spec["extensions"]["scaleDown"]; !rules.is_null()) out.scale_down = read_scale_down(rules, cluster.scale_down, out.problems);
  for (const auto& [name, value] : spec["workerAnnotations"].members()) out.annotations[name] = value.string();
  check_name(out, cluster);
  for (std::string& path : ignored_fields(spec, effective(), says_nothing)) out.ignored.push_back(with_suggestion(std::move(path), known_fields()));
  std::sort(out.ignored.begin(), out.ignored.end());
  return out;
}

void add_node_sets(SlurmCluster& cluster, const std::vector<const Json*>& objects, const std::string& default_image, bool only) {
  for (const Json* object : objects) {
    const std::string of = cluster_of_node_set(*object);
    if (of == cluster.name || (of.empty() && only)) cluster.sets.push_back(read_node_set(*object, default_image, cluster));
  }
  std::sort(cluster.sets.begin(), cluster.sets.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  if (!cluster.has_workers && !cluster.sets.empty()) cluster.worker.main.port = cluster.sets.front().role.main.port;
  for (WorkerSet& set : cluster.sets)
    if (set.role.main.port != cluster.worker.main.port)
      set.problems.push_back(fmt::format("spec.slurmd.port: {} here and {} elsewhere; the workers of a cluster listen on one port", set.role.main.port, cluster.worker.main.port));
}

std::vector<SlurmCluster> worker_views(const SlurmCluster& cluster) {
  std::vector<SlurmCluster> out;
  const bool taken_over = std::any_of(cluster.sets.begin(), cluster.sets.end(), [](const auto& set) { return set.name == "worker"; });
  if (cluster.has_workers || !taken_over) {
    out.push_back(cluster);
    // A section that is missing may be a slip: nobody said that its workers are to go.
    out.back().set.held = !cluster.has_workers;
  }
  for (const WorkerSet& set : cluster.sets) {
    if (set.name == "worker" && cluster.has_workers) continue;
    SlurmCluster view = cluster;
    view.worker_set = set.name;
    view.worker = set.role;
    if (set.deleting) view.worker.size = 0;
    view.gpus = set.gpus;
    if (set.scale_down) view.scale_down = *set.scale_down;
    view.set = set;
    view.set.held = !set.problems.empty() && !set.deleting;
    out.push_back(std::move(view));
  }
  return out;
}

}  // namespace fairlead::api
