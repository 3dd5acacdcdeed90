// SPDX-License-Identifier: Apache-2.0
#include "api/slurm_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "api/cluster.h"
#include "api/network_ways.h"
#include "api/node_identity.h"
#include "api/slurm_fields.h"
#include "api/slurm_quota.h"
#include "kube/selector.h"

namespace fairlead::api {
namespace {

using kube::Json;

SlurmVolume read_volume(const Json& from) { return {from["volumeSourceName"].string(), from["volumeClaimTemplateSpec"]}; }

SlurmRole read_role(const Json& from, const std::string& where, const char* main_container, int default_port, const std::string& default_image,
                    std::vector<std::string>& problems) {
  SlurmRole out;
  const Json& size = from["size"];
  const std::int64_t asked = size.is_null() ? 1 : size.integer(-1);  // before it is narrowed: 2^32 is not 0
  if (asked < 0 || asked > kMaxSize) problems.push_back(fmt::format("{}.size: {} is not a whole number from 0 to {}", where, kube::print_json(size), kMaxSize));
  else out.size = static_cast<int>(asked);
  out.node_filter = from["k8sNodeFilterName"].string();
  out.main = read_container(from[main_container], where + "." + main_container, default_port, default_image, problems);
  out.munge = read_container(from["munge"], where + ".munge", 0, out.main.image, problems);
  out.spool = read_volume(from["volumes"]["spool"]);
  out.jail = read_volume(from["volumes"]["jail"]);
  read_role_extras(from, where, out, problems);
  const Json& shared_memory = from["volumes"]["sharedMemorySize"];
  if (!shared_memory.is_null()) {
    auto quantity = kube::Quantity::from_json(shared_memory);
    if (quantity) out.shared_memory = quantity->text();
    else problems.push_back(fmt::format("{}.volumes.sharedMemorySize: {}", where, quantity.error().message));
  }
  return out;
}

void read_autoscale(const Json& from, SlurmCluster& out) {
  if (!from.is_null() && !from["sets"].is_array()) out.problems.push_back("spec.extensions.autoscale: a list is expected, such as sets: [{name: worker, min: 0, max: 8}]");
  std::int64_t all = 0;
  for (std::size_t i = 0; i < from["sets"].items().size(); ++i) {
    const Json& one = from["sets"].items()[i];
    const std::string where = fmt::format("spec.extensions.autoscale.sets[{}]", i);
    SlurmAutoscale rules{.set = one["name"].string()};
    for (const auto& [name, value] : one.members())
      if (name != "name" && name != "min" && name != "max" && name != "idleAfter" && name != "placeWithin") out.problems.push_back(fmt::format("{}.{}: there is no such field; there are name, min, max, idleAfter and placeWithin", where, name));
    if (rules.set.empty()) out.problems.push_back(where + ".name: the name of a NodeSet is expected, or worker");
    for (const auto& before : out.autoscale)
      if (before.set == rules.set) out.problems.push_back(fmt::format("{}.name: \"{}\" is there twice", where, rules.set));
    const std::int64_t min = one["min"].integer(one["min"].is_null() ? 0 : -1), max = one["max"].integer(-1);
    if (max < 1 || max > kMaxSize) out.problems.push_back(fmt::format("{}.max: {} is not a whole number from 1 to {}", where, kube::print_json(one["max"]), kMaxSize));
    else if (min < 0 || min > max) out.problems.push_back(fmt::format("{}.min: {} is not a whole number from 0 to max ({})", where, kube::print_json(one["min"]), max));
    else rules.min = static_cast<int>(min), rules.max = static_cast<int>(max), all += max;
    for (const auto& [name, into] : {std::pair("idleAfter", &rules.idle), std::pair("placeWithin", &rules.place_within)}) {
      const Json& text = one[name];
      if (text.is_null()) continue;
      if (const auto read = read_duration(text.string()); read && *read >= std::chrono::seconds(1)) *into = *read;
      else out.problems.push_back(fmt::format("{}.{}: \"{}\" is not a duration like 90s, 30m or 1h30m", where, name, text.string()));
    }
    out.autoscale.push_back(std::move(rules));
  }
  if (all > kMaxSize) out.problems.push_back(fmt::format("spec.extensions.autoscale.sets: {} workers in all; {} are possible", all, kMaxSize));
}

// Metrics hold up nothing: what is wrong with them alone is told and left out.
void read_exporter(const Json& from, const std::string& default_image, SlurmCluster& out, std::vector<std::string>& told) {
  const std::string where = "spec.slurmNodes.exporter";
  out.exporter.size = 0;
  if (!from["enabled"].boolean()) return;
  Json role = from;
  // The newer shape describes the container in a field beside.
  if (!from["exporterContainer"]["image"].string().empty()) role.set("exporter", from["exporterContainer"]);
  out.exporter = read_role(role, where, "exporter", 8080, default_image, out.problems);
  if (out.exporter.main.port == 0) out.exporter.main.port = 8080;
  if (out.exporter.size > 1) {
    told.push_back(fmt::format("{}.size: {} (one runs: several would count the same jobs several times)", where, out.exporter.size));
    out.exporter.size = 1;
  }
  const std::string& interval = from["collectionInterval"].string();
  if (interval.empty()) return;
  if (const auto read = read_duration(interval); read && *read >= std::chrono::seconds(1) && *read <= std::chrono::hours(1)) out.exporter_interval = *read;
  else told.push_back(fmt::format("{}.collectionInterval: \"{}\" (whole seconds, minutes or hours from 1s to 1h are possible)", where, interval));
}

// Pods with slurmrestd. They hold no volume of their own: the users' names are read where the heads read them.
void read_rest(const Json& from, const std::string& default_image, SlurmCluster& out, std::vector<std::string>& told) {
  const std::string where = "spec.slurmNodes.rest";
  out.rest.size = 0;
  if (!from["enabled"].boolean()) return;
  out.rest = read_role(from, where, "rest", 6820, default_image, out.problems);
  out.rest.jail = {out.controller.jail.source_name, {}};
  if (out.rest.main.port == 0) out.rest.main.port = 6820;
  if (out.rest.main.port < 1024) out.problems.push_back(fmt::format("{}.rest.port: slurmrestd has no right to listen below 1024; use 6820", where));
  if (out.rest.size > kMaxRest) {
    told.push_back(fmt::format("{}.size: {} ({} run: more are not tested)", where, out.rest.size, kMaxRest));
    out.rest.size = kMaxRest;
  }
  const std::int64_t threads = from["threadCount"].integer(3);
  if (threads >= 2 && threads <= 1024) out.rest_threads = static_cast<int>(threads);
  else told.push_back(fmt::format("{}.threadCount: {} (2 to 1024 are possible)", where, threads));
}

// A name that no topic can have is told of and left out: it holds up neither the cluster nor the other topics.
void read_notification_topics(const Json& from, SlurmCluster& out) {
  if (!from.is_null() && !from.is_array()) out.problems.push_back("spec.extensions.notifications: a list such as [{topic: operators}] is expected");
  for (std::size_t i = 0; i < from.items().size(); ++i) {
    const std::string& topic = from.items()[i]["topic"].string();
    const std::string field = fmt::format("spec.extensions.notifications[{}].topic", i);
    // Room is left in the names of Notifications, which end with the topic's.
    if (topic.empty()) out.notification_problems.push_back(field + ": the name of a NotificationTopic is expected, such as {topic: operators}");
    else if (topic.size() > 200) out.notification_problems.push_back(fmt::format("{}: {} characters; 200 are possible", field, topic.size()));
    else if (!kube::check_dns_subdomain(topic).empty()) out.notification_problems.push_back(fmt::format("{}: \"{}\" is no name of an object (small letters, digits, - and .)", field, topic));
    else if (std::find(out.notification_topics.begin(), out.notification_topics.end(), topic) == out.notification_topics.end()) out.notification_topics.push_back(topic);
  }
  if (out.notification_topics.size() > 8) out.problems.push_back(fmt::format("spec.extensions.notifications: {} topics are named; 8 are possible", out.notification_topics.size()));
}

// One root for all nodes lies on one volume.
void check_jail(SlurmCluster& cluster) {
  const std::string& source = cluster.jail.source;
  if (source.empty() || cluster.login.jail.source_name != source || (cluster.has_workers && cluster.worker.jail.source_name != source))
    cluster.problems.push_back("spec.populateJail: the shared root lies on one volume; name the same one of spec.volumeSources in spec.slurmNodes.{controller,worker,login}.volumes.jail.volumeSourceName, or leave populateJail.image out");
  if (!cluster.jail.node_filter.empty() && !cluster.filters.contains(cluster.jail.node_filter))
    cluster.problems.push_back(fmt::format("spec.populateJail.k8sNodeFilterName: \"{}\" is not among spec.k8sNodeFilters", cluster.jail.node_filter));
  for (const auto* role : {&cluster.worker, &cluster.login})
    for (const auto& mount : role->sub_mounts)
      if (mount.path.find('\n') != std::string::npos || mount.path == "/") cluster.problems.push_back(fmt::format("jailSubMounts: {} cannot be mounted at {}", mount.name, mount.path));
}

// spec.slurmConfig by slurm.conf's names. Powering nodes and topologies have no effect here yet, and so are left to the list of what is ignored.
constexpr std::pair<const char*, const char*> kConfigFields[] = {{"completeWait", "CompleteWait"}, {"defCpuPerGPU", "DefCPUPerGPU"}, {"defMemPerNode", "DefMemPerNode"}, {"epilog", "Epilog"},
                                                                {"maxJobCount", "MaxJobCount"},   {"messageTimeout", "MessageTimeout"}, {"minJobAge", "MinJobAge"},   {"prolog", "Prolog"},
                                                                {"taskPluginParam", "TaskPluginParam"}, {"taskProlog", "TaskProlog"}};

SlurmConfigChoices read_config(const Json& spec) {
  SlurmConfigChoices out;
  for (const auto& [field, key] : kConfigFields)
    if (const Json* value = spec["slurmConfig"].find(field); value && !value->is_null() && !(value->is_string() && value->string().empty()))
      out.settings.push_back({fmt::format("spec.slurmConfig.{}", field), key, value->is_string() ? value->string() : kube::print_json(*value)});
  const Json& health = spec["healthCheckConfig"];
  std::string states;
  for (const Json& one : health["healthCheckNodeState"].items()) states += (states.empty() ? "" : ",") + one["state"].string();
  const auto of_health = [&](const char* field, const char* key, std::string value) {
    if (!value.empty()) out.settings.push_back({fmt::format("spec.healthCheckConfig.{}", field), key, std::move(value)});
  };
  of_health("healthCheckProgram", "HealthCheckProgram", health["healthCheckProgram"].string());
  of_health("healthCheckInterval", "HealthCheckInterval", health["healthCheckInterval"].is_null() ? "" : kube::print_json(health["healthCheckInterval"]));
  of_health("healthCheckNodeState", "HealthCheckNodeState", states);
  out.custom = spec["customSlurmConfig"].string();
  out.partitions = spec["partitionConfiguration"]["configType"].string_or("default");
  for (const Json& line : spec["partitionConfiguration"]["rawConfig"].items()) out.raw_partitions.push_back(line.string());
  return out;
}

// Paths that change something today; everything below such a path does too. The rest of a given spec is reported as ignored.
const std::set<std::string, std::less<>>& effective_paths() {
  static std::set<std::string, std::less<>> paths = {
      "healthCheckConfig.healthCheckInterval", "healthCheckConfig.healthCheckNodeState", "healthCheckConfig.healthCheckProgram",
      "customSlurmConfig", "partitionConfiguration.configType", "partitionConfiguration.rawConfig",
      "slurmConfig.completeWait", "slurmConfig.defCpuPerGPU", "slurmConfig.defMemPerNode", "slurmConfig.epilog", "slurmConfig.maxJobCount", "slurmConfig.messageTimeout", "slurmConfig.minJobAge",
      "slurmConfig.prolog", "slurmConfig.taskPluginParam", "slurmConfig.taskProlog",
      "crVersion", "clusterType", "pause", "k8sNodeFilters", "volumeSources", "secrets.sshdKeysName",
      "populateJail.image", "populateJail.k8sNodeFilterName", "populateJail.overwrite",
      "slurmNodes.controller.size", "slurmNodes.controller.k8sNodeFilterName", "slurmNodes.controller.volumes",
      "slurmNodes.controller.slurmctld.image", "slurmNodes.controller.slurmctld.port", "slurmNodes.controller.slurmctld.resources",
      "slurmNodes.controller.munge.image", "slurmNodes.controller.munge.resources",
      "slurmNodes.worker.size", "slurmNodes.worker.k8sNodeFilterName", "slurmNodes.worker.volumes", "slurmNodes.worker.cgroupVersion",
      "slurmNodes.worker.slurmd.image", "slurmNodes.worker.slurmd.port", "slurmNodes.worker.slurmd.resources",
      "slurmNodes.worker.munge.image", "slurmNodes.worker.munge.resources",
      "slurmNodes.login.size", "slurmNodes.login.k8sNodeFilterName", "slurmNodes.login.volumes", "slurmNodes.login.sshRootPublicKeys",
      "slurmNodes.login.sshd.image", "slurmNodes.login.sshd.port", "slurmNodes.login.sshd.resources",
      "slurmNodes.login.munge.image", "slurmNodes.login.munge.resources",
      "slurmNodes.accounting.enabled", "slurmNodes.accounting.k8sNodeFilterName", "slurmNodes.accounting.slurmdbd.image", "slurmNodes.accounting.slurmdbd.port", "slurmNodes.accounting.slurmdbd.resources",
      "slurmNodes.accounting.munge.image", "slurmNodes.accounting.munge.resources",
      "slurmNodes.accounting.externalDB.enabled", "slurmNodes.accounting.externalDB.host", "slurmNodes.accounting.externalDB.port", "slurmNodes.accounting.externalDB.user", "slurmNodes.accounting.externalDB.passwordSecretKeyRef",
      "slurmNodes.accounting.mariadbOperator.enabled", "slurmNodes.accounting.mariadbOperator.image", "slurmNodes.accounting.mariadbOperator.port", "slurmNodes.accounting.mariadbOperator.resources",
      "slurmNodes.accounting.mariadbOperator.storage.ephemeral", "slurmNodes.accounting.mariadbOperator.storage.size", "slurmNodes.accounting.mariadbOperator.storage.storageClassName",
      "slurmNodes.accounting.mariadbOperator.storage.volumeClaimTemplate",
      "slurmNodes.accounting.slurmConfig.accountingStorageTRES", "slurmNodes.accounting.slurmConfig.accountingStoreFlags", "slurmNodes.accounting.slurmConfig.acctGatherFilesystemType",
      "slurmNodes.accounting.slurmConfig.acctGatherInterconnectType", "slurmNodes.accounting.slurmConfig.acctGatherProfileType", "slurmNodes.accounting.slurmConfig.jobAcctGatherFrequency",
      "slurmNodes.accounting.slurmConfig.jobAcctGatherParams", "slurmNodes.accounting.slurmConfig.jobAcctGatherType", "slurmNodes.accounting.slurmConfig.priorityWeightAge",
      "slurmNodes.accounting.slurmConfig.priorityWeightFairshare",
      "slurmNodes.accounting.slurmdbdConfig.debugFlags", "slurmNodes.accounting.slurmdbdConfig.debugLevel", "slurmNodes.accounting.slurmdbdConfig.privateData", "slurmNodes.accounting.slurmdbdConfig.tcpTimeout",
      "slurmNodes.exporter.enabled", "slurmNodes.exporter.size", "slurmNodes.exporter.k8sNodeFilterName", "slurmNodes.exporter.volumes", "slurmNodes.exporter.collectionInterval",
      "slurmNodes.exporter.exporter.image", "slurmNodes.exporter.exporter.port", "slurmNodes.exporter.exporter.resources",
      "slurmNodes.exporter.exporterContainer.image", "slurmNodes.exporter.exporterContainer.port", "slurmNodes.exporter.exporterContainer.resources",
      "slurmNodes.exporter.munge.image", "slurmNodes.exporter.munge.resources",
      "slurmNodes.rest.enabled", "slurmNodes.rest.size", "slurmNodes.rest.k8sNodeFilterName", "slurmNodes.rest.threadCount", "slurmNodes.rest.rest.image", "slurmNodes.rest.rest.port", "slurmNodes.rest.rest.resources"};
  static const bool once = (paths.merge(shape_paths()), true);
  (void)once;
  return paths;
}

// Values that say "off" or "nothing" have their effect: nothing is what happens. A section that is switched off says nothing as a whole.
bool says_nothing(const Json& value) {
  if (value.is_object()) {
    if (const Json* enabled = value.find("enabled"); enabled && !enabled->boolean(true)) return true;
    return std::all_of(value.members().begin(), value.members().end(), [](const auto& member) { return says_nothing(member.second); });
  }
  return value.is_null() || (value.is_bool() && !value.boolean()) || (value.is_string() && value.string().empty()) || (value.is_array() && value.items().empty()) ||
         (value.is_number() && value.number() == 0);
}

void find_ignored(const Json& node, const std::string& path, std::vector<std::string>& out) {
  const auto& known = effective_paths();
  if (known.contains(path) || says_nothing(node)) return;
  const auto below = known.lower_bound(path + ".");
  const bool inner = path.empty() || (below != known.end() && below->starts_with(path + "."));
  if (!inner) {
    out.push_back("spec." + path);
    return;
  }
  for (const auto& [name, value] : node.members()) find_ignored(value, path.empty() ? name : path + "." + name, out);
}

}  // namespace

SlurmScaleDown read_scale_down(const Json& from, const SlurmScaleDown& otherwise, std::vector<std::string>& problems) {
  SlurmScaleDown out = otherwise;
  out.strict_ordinals = from["strictOrdinals"].boolean(otherwise.strict_ordinals);
  if (const Json& policy = from["policy"]; !policy.is_null()) {
    if (policy.string() == "wait") out.policy = SlurmScaleDown::Policy::Wait;
    else if (policy.string() == "requeue") out.policy = SlurmScaleDown::Policy::Requeue;
    else if (policy.string() == "kill") out.policy = SlurmScaleDown::Policy::Kill;
    else problems.push_back(fmt::format("spec.extensions.scaleDown.policy: {} is none of wait, requeue, kill", kube::print_json(policy)));
  }
  if (const Json& after = from["after"]; !after.is_null()) {
    if (const auto duration = read_duration(after.string())) out.after = *duration;
    else problems.push_back(fmt::format("spec.extensions.scaleDown.after: {} is not a duration like 90s, 30m or 1h30m", kube::print_json(after)));
  }
  return out;
}

InEffect field_in_effect(std::string_view path) {
  const auto& known = effective_paths();
  for (auto end = path.size(); end != path.npos; end = path.rfind('.', end - 1)) {
    if (known.contains(path.substr(0, end))) return InEffect::Yes;
    if (end == 0) break;
  }
  const std::string below = std::string(path) + ".";
  const auto at = known.lower_bound(below);
  return at != known.end() && at->starts_with(below) ? InEffect::Some : InEffect::No;
}

SlurmCluster read_slurm_cluster(const Json& object, const std::string& default_image) {
  SlurmCluster out;
  out.name = kube::name_of(object);
  out.has_machines = !object["metadata"]["labels"][kClusterLabel].is_null();
  out.space = kube::space_of(object);
  out.uid = kube::uid_of(object);
  out.generation = object["metadata"]["generation"].integer();
  out.deleting = kube::deleting(object);
  out.owner = kube::owner_reference(object);
  const Json& spec = object["spec"];
  out.paused = spec["pause"].boolean();
  auto& problems = out.problems;

  for (const Json& filter : spec["k8sNodeFilters"].items()) {
    const std::string& name = filter["name"].string();
    out.filters[name] = {name, filter["affinity"], filter["nodeSelector"], filter["tolerations"]};
  }
  for (const Json& source : spec["volumeSources"].items()) {
    Json rest = source;
    rest.erase("name");
    if (rest.members().size() != 1) problems.push_back(fmt::format("spec.volumeSources: {} must name exactly one source, it names {}", source["name"].string(), rest.members().size()));
    if (!out.volume_sources.emplace(source["name"].string(), std::move(rest)).second)
      problems.push_back(fmt::format("spec.volumeSources: {} is there twice", source["name"].string()));
  }
  const Json& nodes = spec["slurmNodes"];
  if (const auto annotations = kube::annotations_of(object); annotations.contains(kNetworkIsolation)) {
    const std::string& value = annotations.at(kNetworkIsolation);
    out.isolated = value != "Off";
    if (value != "Off" && value != "On") problems.push_back(fmt::format("metadata.annotations: {} is \"{}\"; it is On or Off", kNetworkIsolation, value));
  }
  out.role_of_instance = object["metadata"]["annotations"][node_identity::pods_note].string() == "true";
  out.controller = read_role(nodes["controller"], "spec.slurmNodes.controller", "slurmctld", 6817, default_image, problems);
  out.worker = read_role(nodes["worker"], "spec.slurmNodes.worker", "slurmd", 6818, default_image, problems);
  out.has_workers = nodes["worker"].is_object();
  if (!out.has_workers) out.worker.size = 0;
  out.login = read_role(nodes["login"], "spec.slurmNodes.login", "sshd", 22, default_image, problems);
  for (const Json& key : nodes["login"]["sshRootPublicKeys"].items()) {
    if (key.string().find_first_of("\r\n") != std::string::npos) problems.push_back("spec.slurmNodes.login.sshRootPublicKeys: a key holds a line break");
    else out.root_keys.push_back(key.string());
  }
  read_login_service(nodes["login"], out);
  std::vector<std::string> told;
  read_exporter(nodes["exporter"], default_image, out, told);
  read_rest(nodes["rest"], default_image, out, told);
  read_nccl_topology(spec["ncclSettings"], out);
  out.jail = {spec["populateJail"]["image"].string(), spec["populateJail"]["k8sNodeFilterName"].string(), out.controller.jail.source_name, "", spec["populateJail"]["overwrite"].boolean()};
  if (const auto annotations = kube::annotations_of(object); annotations.contains(kJailVersion)) out.jail.version = annotations.at(kJailVersion);
  if (out.jail.wanted()) check_jail(out);
  out.sshd_keys_secret = spec["secrets"]["sshdKeysName"].string();
  out.cgroup_version = nodes["worker"]["cgroupVersion"].string_or(spec["cgroupVersion"].string_or("v2"));
  out.gpus = spec["clusterType"].string() != "cpu";
  out.mock_gpus = spec["extensions"]["mockGpus"].boolean();
  out.bind_cores = spec["extensions"]["bindCores"].boolean(true);
  out.scale_down = read_scale_down(spec["extensions"]["scaleDown"], {}, problems);
  read_autoscale(spec["extensions"]["autoscale"], out);
  const SlurmQuota quota = read_slurm_quota(object);
  out.holds_jobs = quota.on;
  problems.insert(problems.end(), quota.problems.begin(), quota.problems.end());
  read_notification_topics(spec["extensions"]["notifications"], out);
  out.config = read_config(spec);
  out.accounting = read_slurm_accounting(spec, default_image, out.space);
  // Of two of one name the one that has the right keeps it, wherever an edit of the list puts it.
  std::stable_partition(out.accounting.shared_with.begin(), out.accounting.shared_with.end(), [&](const ClusterRef& ref) {
    const auto& uses = object["status"]["accountingGuests"].items();
    return std::any_of(uses.begin(), uses.end(), [&](const Json& one) { return one["namespace"].string() == ref.space && one["name"].string() == ref.name; });
  });

  if (out.controller.size > kMaxHeads) problems.push_back(fmt::format("spec.slurmNodes.controller.size: {} heads asked for; 1 to {} are possible", out.controller.size, kMaxHeads));
  else if (out.controller.size > 1 && out.controller.spool.source_name.empty())
    problems.push_back("spec.slurmNodes.controller.volumes.spool: several heads share their state; name a volume of spec.volumeSources that is ReadWriteMany in volumeSourceName");
  else if (out.controller.size == 0) problems.push_back("spec.slurmNodes.controller.size: 0 heads asked for; a cluster needs one");

  const auto check_filter = [&](const char* role, const SlurmRole& of) {
    if (!of.node_filter.empty() && !out.filters.contains(of.node_filter))
      problems.push_back(fmt::format("spec.slurmNodes.{}.k8sNodeFilterName: \"{}\" is not among spec.k8sNodeFilters", role, of.node_filter));
    for (const auto* volume : {&of.spool, &of.jail})
      if (!volume->source_name.empty() && !out.volume_sources.contains(volume->source_name))
        problems.push_back(fmt::format("spec.slurmNodes.{}.volumes: \"{}\" is not among spec.volumeSources", role, volume->source_name));
    for (const auto& mount : of.sub_mounts) {
      if (!out.volume_sources.contains(mount.source_name) && !(mount.source_name.empty() && mount.claim_template.is_object()))
        problems.push_back(fmt::format("spec.slurmNodes.{}.volumes.jailSubMounts: \"{}\" is not among spec.volumeSources", role, mount.source_name));
      if (!mount.path.starts_with('/') || mount.path.find("..") != std::string::npos)
        problems.push_back(fmt::format("spec.slurmNodes.{}.volumes.jailSubMounts: \"{}\" is not an absolute path", role, mount.path));
    }
  };
  check_filter("controller", out.controller);
  check_filter("worker", out.worker);
  check_filter("login", out.login);
  if (out.exporter.size > 0) check_filter("exporter", out.exporter);
  if (out.rest.size > 0) check_filter("rest", out.rest);
  for (const auto& on_login : out.login.sub_mounts)
    for (const auto& on_worker : out.worker.sub_mounts)
      if (on_login.name == on_worker.name && on_login.path != on_worker.path)
        problems.push_back(fmt::format("spec.slurmNodes: the mount {} is at {} on login nodes and at {} on workers; give both the same path", on_login.name, on_login.path, on_worker.path));

  if (!out.accounting.node_filter.empty() && !out.filters.contains(out.accounting.node_filter))
    out.accounting.problems.push_back(fmt::format("spec.slurmNodes.accounting.k8sNodeFilterName: \"{}\" is not among spec.k8sNodeFilters", out.accounting.node_filter));
  if (const std::string& source = out.accounting.backups.volume.source_name; !source.empty() && !out.volume_sources.contains(source))
    out.accounting.problems.push_back(fmt::format("spec.extensions.accounting.backup.volumeSourceName: \"{}\" is not among spec.volumeSources", source));

  out.backup = read_slurm_backup(spec, out);

  find_ignored(spec, "", out.ignored);
  for (const std::string& path : out.accounting.ignored) out.ignored.push_back(path);
  name_without_effect(spec, out.ignored);
  for (auto& path : out.ignored) path = with_suggestion(std::move(path));
  out.ignored.insert(out.ignored.end(), out.notification_problems.begin(), out.notification_problems.end());
  out.ignored.insert(out.ignored.end(), told.begin(), told.end());
  std::sort(out.ignored.begin(), out.ignored.end());
  return out;
}

}  // namespace fairlead::api
