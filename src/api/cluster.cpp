// SPDX-License-Identifier: Apache-2.0
#include "api/cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "api/instance_types.h"
#include "api/instance_volume.h"
#include "api/training_plan.h"
#include "base/encoding.h"
#include "kube/selector.h"

namespace fairlead::api {

using kube::Json;

// ---- numbers

Result<NumberSet> NumberSet::parse(std::string_view text) {
  NumberSet out;
  const auto wrong = [&] { return fail(Code::Invalid, fmt::format("\"{}\" is not a list of numbers such as 1-3,7", text)); };
  constexpr int most = 100'000'000;
  for (std::string_view rest = text; !rest.empty();) {
    const auto comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    int first = 0, last = 0;
    const char *at = part.data(), *end = at + part.size();
    auto read = std::from_chars(at, end, first);
    if (read.ec != std::errc()) return wrong();
    last = first;
    if (read.ptr != end) {
      if (*read.ptr != '-') return wrong();
      read = std::from_chars(read.ptr + 1, end, last);
      if (read.ec != std::errc() || read.ptr != end) return wrong();
    }
    if (first < 1 || last < first || last > most || (!out.ranges_.empty() && first <= out.ranges_.back().second)) return wrong();
    if (!out.ranges_.empty() && first == out.ranges_.back().second + 1) out.ranges_.back().second = last;
    else out.ranges_.emplace_back(first, last);
    if (comma == rest.npos) break;
    rest.remove_prefix(comma + 1);
    if (rest.empty()) return wrong();
  }
  return out;
}

std::string NumberSet::text() const {
  std::string out;
  for (const auto& [first, last] : ranges_) out += fmt::format("{}{}", out.empty() ? "" : ",", first == last ? std::to_string(first) : fmt::format("{}-{}", first, last));
  return out;
}

bool NumberSet::contains(int number) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), number, [](int wanted, const auto& range) { return wanted < range.first; });
  return after != ranges_.begin() && number <= (after - 1)->second;
}

void NumberSet::add(int first, int last) {
  if (first < 1 || last < first) return;
  // All that touch it become one with it.
  auto begin = std::lower_bound(ranges_.begin(), ranges_.end(), first, [](const auto& range, int wanted) { return range.second < wanted - 1; });
  auto end = begin;
  for (; end != ranges_.end() && end->first <= last + 1; ++end) first = std::min(first, end->first), last = std::max(last, end->second);
  ranges_.insert(ranges_.erase(begin, end), {first, last});
}

void NumberSet::add(const NumberSet& other) {
  for (const auto& [first, last] : other.ranges_) add(first, last);
}

int NumberSet::size() const {
  int out = 0;
  for (const auto& [first, last] : ranges_) out += last - first + 1;
  return out;
}

// ---- names

std::string plain_label(std::string_view name, std::size_t longest) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  if (!name.empty() && name.size() <= longest && std::all_of(name.begin(), name.end(), plain) && name.front() != '-' && name.back() != '-') return std::string(name);
  std::string lower;
  for (char c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    lower += plain(c) ? c : '-';
  }
  constexpr std::size_t hash = 10;
  lower = lower.substr(0, longest - hash - 1);
  while (!lower.empty() && lower.back() == '-') lower.pop_back();
  while (!lower.empty() && lower.front() == '-') lower.erase(0, 1);
  return fmt::format("{}-{}", lower.empty() ? "x" : lower, hex(sha256(name)).substr(0, hash));
}

std::string logical_id_of(const std::string& cluster_uid, const std::string& group, int number) {
  const std::string all = hex(sha256(fmt::format("{}/{}/{}", cluster_uid, group, number)));
  return fmt::format("{}-{}-{}-{}-{}", all.substr(0, 8), all.substr(8, 4), all.substr(12, 4), all.substr(16, 4), all.substr(20, 12));
}

std::string instance_id_of(const std::string& cluster_uid, const std::string& group, int number, int attempt) {
  return "i-" + hex(sha256(fmt::format("{}/{}/{}/{}", cluster_uid, group, number, attempt))).substr(0, 17);
}

std::string_view text(SlurmNodeType type) { return type == SlurmNodeType::Controller ? "Controller" : type == SlurmNodeType::Login ? "Login" : "Compute"; }

std::string entity_id(std::string_view uid) {
  static constexpr std::string_view digits = "0123456789abcdefghijklmnopqrstuvwxyz";
  const std::string hash = sha256(uid);
  std::uint64_t number = 0;  // 36^12 is about 2^62
  for (std::size_t i = 0; i < 8; ++i) number = number << 8U | static_cast<unsigned char>(hash[i]);
  std::string id;
  for (int i = 0; i < 12; ++i, number /= digits.size()) id += digits[number % digits.size()];
  return id;
}

namespace {

bool add_check(DeepChecks& to, std::string_view name) {
  if (name == "InstanceStress") return to.stress = true;
  if (name == "InstanceConnectivity") return to.connectivity = true;
  return false;
}


// The workers of a group are SET-0, SET-1, ...: no name of another part of a Slurm cluster (api/node_set.h).
std::string set_of(const std::string& group) {
  constexpr std::size_t longest = 40;
  for (const char* const taken : {"controller", "login", "accounting", "exporter", "rest", "all", "default", "main", "worker", "dev"})
    if (group == taken) return plain_label("group-" + group, longest);
  return plain_label(group, longest);
}

// Of the spec and of the status.
void read_numbers(InstanceGroup& out, const Json& from, const std::string& where, std::vector<std::string>& problems) {
  out.issued = std::max(out.issued, static_cast<int>(std::clamp<std::int64_t>(from["issued"].integer(), 0, 50'000'000)));
  const auto retired = NumberSet::parse(from["retired"].string());
  if (!retired) problems.push_back(fmt::format("{}.retired: {}", where, retired.error().message));
  else out.retired.add(*retired);
}

// A file below the folder: no way out of it.
bool is_inner_path(std::string_view path) {
  if (path.empty() || path.front() == '/' || path.back() == '/' || path.find('\0') != path.npos || path.find('\n') != path.npos) return false;
  for (std::string_view rest = path; !rest.empty();) {
    const auto slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    rest = slash == rest.npos ? std::string_view() : rest.substr(slash + 1);
  }
  return true;
}

LifecycleScripts read_scripts(const Json& from, const auto& problem) {
  LifecycleScripts out;
  if (from.is_null()) return out;
  out.uri = from["sourceS3Uri"].string();
  out.on_create = from["onCreate"].string();
  out.on_init_complete = from["onInitComplete"].string();
  for (const auto& [field, file] : {std::pair("lifeCycleConfig.onCreate", out.on_create), std::pair("lifeCycleConfig.onInitComplete", out.on_init_complete)})
    if (!file.empty() && !is_inner_path(file)) problem(field, fmt::format("\"{}\" is not the path of a file below sourceS3Uri", file));
  if (out.uri.empty()) {
    if (out.any()) problem("lifeCycleConfig.sourceS3Uri", "the folder of the scripts is expected, as s3://BUCKET/PREFIX");
    return out;
  }
  // Names of buckets are those of S3: nothing else gets into a path.
  static constexpr std::string_view scheme = "s3://";
  std::string_view rest = std::string_view(out.uri).substr(std::min(scheme.size(), out.uri.size()));
  const auto slash = rest.find('/');
  out.bucket = std::string(rest.substr(0, slash));
  std::string_view prefix = slash == rest.npos ? std::string_view() : rest.substr(slash + 1);
  while (!prefix.empty() && prefix.back() == '/') prefix.remove_suffix(1);
  out.prefix = std::string(prefix);
  if (!out.uri.starts_with(scheme) || !is_bucket_name(out.bucket) || (!out.prefix.empty() && !is_inner_path(out.prefix))) problem("lifeCycleConfig.sourceS3Uri", fmt::format("\"{}\" is not of the form s3://BUCKET/PREFIX", out.uri));
  else if (!out.any()) problem("lifeCycleConfig", "onCreate or onInitComplete is expected: the script to run");
  return out;
}

void read_storage(InstanceGroup& out, const Json& configs, Orchestrator orchestrator, const auto& problem) {
  const char* const field = "instanceStorageConfigs";
  for (const Json& one : configs.items()) {
    const Json& volume = one["ebsVolumeConfig"];
    if (one.has("fsxLustreConfig") || one.has("fsxOpenZfsConfig")) problem(field, "FSx file systems are not served: mount the site's own by a lifecycle script, or give pods a claim (docs/clusters.md)");
    else if (!volume.is_object()) problem(field, "ebsVolumeConfig is expected");
    else if (orchestrator == Orchestrator::Slurm) problem(field, "served where Kubernetes orchestrates; with Slurm, give the SlurmCluster a volume (jailSubMounts)");
    else if (volume["rootVolume"].boolean()) problem(field, "rootVolume is not served: the root of a machine is its own");
    else if (const std::int64_t gib = volume["volumeSizeInGB"].integer(); gib < 1 || gib > kMostVolumeGib) problem(field, fmt::format("volumeSizeInGB is a whole number from 1 to {}", kMostVolumeGib));
    else if (volume.has("volumeKmsKeyId") && volume["volumeKmsKeyId"].string().empty()) problem(field, "volumeKmsKeyId names no key: say which, or leave it out, and nothing is encrypted");
    else if (out.volume_gib > 0) problem(field, "one volume beside the root is served");
    else out.volume_gib = static_cast<int>(gib), out.volume_key = volume["volumeKmsKeyId"].string();
  }
}

InstanceGroup read_group(const Json& from, const std::string& where, const Json& status, Orchestrator orchestrator, std::vector<std::string>& problems) {
  InstanceGroup out;
  out.name = from["instanceGroupName"].string();
  out.set = set_of(out.name);
  out.type = from["instanceType"].string();
  out.role = from["executionRole"].string();
  out.target = static_cast<int>(from["instanceCount"].integer(-1));
  out.min = static_cast<int>(from["minInstanceCount"].integer(0));
  const auto problem = [&](const char* field, std::string what) { problems.push_back(fmt::format("{}.{}: {}", where, field, what)); };
  constexpr int most = 6758;
  if (out.name.empty()) problem("instanceGroupName", "a name is expected");
  if (find_instance_type(out.type) == nullptr) problem("instanceType", fmt::format("\"{}\" is no type of the API", out.type));
  if (out.target < 0 || out.target > most) problem("instanceCount", fmt::format("{} is not a whole number from 0 to {}", kube::print_json(from["instanceCount"]), most));
  if (out.min < 0 || out.min > std::max(out.target, 0)) problem("minInstanceCount", fmt::format("{} is not a whole number from 0 to instanceCount ({})", out.min, out.target));
  const Json& slurm = from["slurmConfig"];
  const std::string& node_type = slurm["nodeType"].string();
  if (orchestrator == Orchestrator::Slurm) {
    if (node_type == "Controller") out.node_type = SlurmNodeType::Controller;
    else if (node_type == "Login") out.node_type = SlurmNodeType::Login;
    else if (node_type != "Compute") problem("slurmConfig.nodeType", fmt::format("\"{}\" is none of Controller, Login, Compute", node_type));
  } else if (!slurm.is_null()) {
    problem("slurmConfig", "only clusters that Slurm orchestrates have it");
  }
  for (const Json& one : slurm["partitionNames"].items()) out.partitions.push_back(one.string());
  if (orchestrator == Orchestrator::Slurm) {
    if (out.node_type == SlurmNodeType::Compute && out.partitions.size() != 1) problem("slurmConfig.partitionNames", "a group of compute nodes is in one partition, beside dev");
    if (out.node_type != SlurmNodeType::Compute && !out.partitions.empty()) problem("slurmConfig.partitionNames", "only compute nodes are in partitions");
    if (out.node_type == SlurmNodeType::Controller && (out.target < 1 || out.target > 3)) problem("instanceCount", fmt::format("{} controllers; 1 to 3 are possible", out.target));
  }
  const Json& kubernetes = from["kubernetesConfig"];
  if (orchestrator == Orchestrator::Slurm && !kubernetes.is_null()) problem("kubernetesConfig", "only clusters that Kubernetes orchestrates have it");
  for (const auto& [key, value] : kubernetes["labels"].members()) {
    std::string wrong = kube::check_label_key(key);
    if (wrong.empty()) wrong = kube::check_label_value(value.string());
    // By these others decide: what a node is, which cluster has it, how it is.
    const std::string domain = "." + key.substr(0, key.find('/') == std::string::npos ? 0 : key.find('/'));
    for (const char* const theirs : {".fairlead.dev", ".sagemaker.amazonaws.com", ".kubernetes.io", ".k8s.io"})
      if (domain.ends_with(theirs)) wrong = "it is not yours to set";
    if (wrong.empty()) out.labels[key] = value.string();
    else problem("kubernetesConfig.labels", fmt::format("{}: {}", key, wrong));
  }
  for (const Json& taint : kubernetes["taints"].items()) {
    const std::string& effect = taint["effect"].string();
    if (const std::string wrong = kube::check_label_key(taint["key"].string()); !wrong.empty()) problem("kubernetesConfig.taints", wrong);
    else if (effect != "NoSchedule" && effect != "PreferNoSchedule" && effect != "NoExecute") problem("kubernetesConfig.taints", fmt::format("\"{}\" is none of NoSchedule, PreferNoSchedule, NoExecute", effect));
    else out.taints.push(taint);
  }
  out.scripts = read_scripts(from["lifeCycleConfig"], problem);
  read_storage(out, from["instanceStorageConfigs"], orchestrator, problem);
  for (const Json& check : from["onStartDeepHealthChecks"].items())
    if (!add_check(out.checks_on_start, check.string())) problem("onStartDeepHealthChecks", fmt::format("\"{}\" is none of InstanceStress, InstanceConnectivity", check.string()));
  // As in HyperPod: while it is checked a node carries a taint of ours, and who sets taints would have others taken for it.
  if (out.checks_on_start.any() && !out.taints.items().empty()) problem("kubernetesConfig.taints", "not in a group with onStartDeepHealthChecks");
  if (const std::string& named = from["trainingPlanArn"].string(); !named.empty()) {
    out.plan = plan_object_name(named);
    if (out.plan.empty()) problem("trainingPlanArn", fmt::format("\"{}\" is neither the ARN of a training plan nor a name", named));
    // Slurm's heads are there from the first day to the last.
    if (orchestrator == Orchestrator::Slurm && out.node_type != SlurmNodeType::Compute) problem("trainingPlanArn", "only groups of compute nodes have a training plan");
  }
  read_numbers(out, from, where, problems);
  for (const Json& one : status.items())
    if (one["instanceGroupName"].string() == out.name) read_numbers(out, one, "status of " + out.name, problems);
  if (out.live() > std::max(out.target, 0) + most) problem("issued", fmt::format("{} numbers would be in use; the API gives them out, {} at most", out.live(), most));
  return out;
}

}  // namespace

bool is_bucket_name(std::string_view name) {
  return name.size() >= 3 && name.size() <= 63 && name.front() != '.' && name.front() != '-' && name.find("..") == name.npos && std::all_of(name.begin(), name.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-'; });
}

LifecycleScripts read_lifecycle(const Json& config) {
  bool good = true;
  LifecycleScripts out = read_scripts(config, [&](const char*, const std::string&) { good = false; });
  out.sum = config["sum"].string();
  return good ? out : LifecycleScripts();
}

const InstanceGroup* Cluster::group(std::string_view wanted) const {
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const InstanceGroup& one) { return one.name == wanted; });
  return found == groups.end() ? nullptr : &*found;
}

bool SoftwareUpdate::of(std::string_view group) const { return !id.empty() && (groups.empty() || std::find(groups.begin(), groups.end(), group) != groups.end()); }

int CapacitySize::of(int instances) const {
  if (value <= 0) return std::max(1, instances);
  return std::max(1, percent ? static_cast<int>(std::int64_t{instances} * std::min(value, 100) / 100) : value);
}

bool Cluster::has_scripts() const {
  return std::any_of(groups.begin(), groups.end(), [](const InstanceGroup& one) { return one.scripts.any(); });
}

std::string space_of_cluster(const std::string& name) { return plain_label("cluster-" + name, 63); }

Json event_metadata(const Json& event) {
  const Json &spec = event["spec"], &had = spec["metadata"];
  const std::string& type = spec["resourceType"].string();
  Json out = Json::object();
  if (had.has("failureMessage")) out.set("FailureMessage", had["failureMessage"]);
  if (type == "Instance") {
    if (had.has("lcsExecutionState")) out.set("LcsExecutionState", had["lcsExecutionState"]);
    if (spec.has("nodeLogicalId")) out.set("NodeLogicalId", spec["nodeLogicalId"]);
    return Json::object({{"Instance", std::move(out)}});
  }
  if (had.has("minCount")) out.set("MinCount", had["minCount"]);
  if (type == "InstanceGroup" && had.has("targetCount")) return Json::object({{"InstanceGroupScaling", std::move(out.set("InstanceCount", had["instanceCount"]).set("TargetCount", had["targetCount"]))}});
  return Json::object({{type, std::move(out)}});
}

const Json& lifecycle_in_force(const Json& object, const Json& spec, std::string_view group) {
  static const Json none;
  const Json* own = &none;
  for (const Json& one : spec["instanceGroups"].items())
    if (one["instanceGroupName"].string() == group) own = &one["lifeCycleConfig"];
  for (const Json& pin : object["status"]["scripts"].items())
    if (pin["instanceGroupName"].string() == group && pin["insteadOf"] == (own->is_null() ? Json::object() : *own)) return pin["lifeCycleConfig"];
  return *own;
}

Json spec_in_force(const Json& object) {
  const Json &spec = object["spec"], &failed = object["status"]["failed"], &good = object["status"]["good"]["spec"];
  if (!failed.is_object() || !good.is_object() || failed["generation"].integer() != object["metadata"]["generation"].integer()) return spec;
  Json out = good;
  for (Json& group : out.child("instanceGroups").items())
    for (const Json& other : spec["instanceGroups"].items()) {
      if (other["instanceGroupName"] != group["instanceGroupName"]) continue;
      group.set("issued", std::max(group["issued"].integer(), other["issued"].integer()));
      auto retired = NumberSet::parse(group["retired"].string());
      const auto more = NumberSet::parse(other["retired"].string());
      if (!retired || !more) continue;
      retired->add(*more);
      if (const std::string text = retired->text(); !text.empty()) group.set("retired", text);
    }
  if (spec.has("additions")) out.set("additions", spec["additions"]);
  return out;
}

void keep_of_group(Json& group, const Json& there) {
  for (const char* const kept : {"issued", "retired", "slurmConfig", "trainingPlanArn", "instanceStorageConfigs", "lifeCycleConfig", "kubernetesConfig"})
    if (there.has(kept) && !group.has(kept)) group.set(kept, there[kept]);
}

Cluster read_cluster(const Json& object, const Json& spec) {
  Cluster out;
  out.name = kube::name_of(object);
  out.title = spec["clusterName"].string_or(out.name);
  out.uid = kube::uid_of(object);
  if (const std::string& begin = object["metadata"]["annotations"][kArnBegin].string(); !begin.empty()) out.arn = begin + entity_id(out.uid);
  out.space = space_of_cluster(out.name);
  out.slurm_name = plain_label(out.name, 40);
  out.generation = object["metadata"]["generation"].integer();
  out.deleting = kube::deleting(object);
  out.finalizer = kube::has_finalizer(object, kClusterFinalizer);
  out.orchestrator = spec["orchestrator"]["eks"].is_object() ? Orchestrator::Eks : Orchestrator::Slurm;
  out.recovers = spec["nodeRecovery"].string() != "None";
  out.continuous = spec["nodeProvisioningMode"].string() == "Continuous";
  if (const Json& update = spec["softwareUpdate"]; update.is_object()) {
    out.software.id = update["id"].string();
    if (out.software.id.ends_with(SoftwareUpdate::kBack)) out.problems.push_back(fmt::format("spec.softwareUpdate.id: \"{}\" ends with {}, as that of a rollback does", out.software.id, SoftwareUpdate::kBack));
    for (const Json& group : update["instanceGroups"].items()) out.software.groups.push_back(group.string());
    const Json &deployment = update["deploymentConfig"], &policy = deployment["rollingUpdatePolicy"];
    const auto size = [](const Json& most) { return CapacitySize{.value = static_cast<int>(std::clamp<std::int64_t>(most["value"].integer(), 0, 1'000'000)), .percent = most["type"].string() == "CAPACITY_PERCENTAGE"}; };
    out.software.batch = size(policy["maximumBatchSize"]);
    out.software.back_batch = size(policy["rollbackMaximumBatchSize"]);
    for (const Json& alarm : deployment["autoRollbackConfiguration"].items())
      if (const std::string& name = alarm["alarmName"].string(); !name.empty()) out.software.alarms.push_back(name);
    out.software.wait = std::chrono::seconds(std::clamp<std::int64_t>(deployment["waitIntervalInSeconds"].integer(), 0, 3600));
  }
  std::set<std::string> names, sets;
  int controllers = 0, logins = 0;
  const auto& groups = spec["instanceGroups"].items();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string where = fmt::format("spec.instanceGroups[{}]", i);
    InstanceGroup group = read_group(groups[i], where, object["status"]["instanceGroups"], out.orchestrator, out.problems);
    if (!names.insert(group.name).second) out.problems.push_back(fmt::format("{}.instanceGroupName: \"{}\" is there twice", where, group.name));
    else if (!sets.insert(group.set).second) out.problems.push_back(fmt::format("{}.instanceGroupName: \"{}\" is too much like the name of another group", where, group.name));
    if (group.min > 0 && !out.continuous) out.problems.push_back(fmt::format("{}.minInstanceCount: only with nodeProvisioningMode Continuous", where));
    if (!object["status"]["scripts"].items().empty()) group.scripts = read_lifecycle(lifecycle_in_force(object, spec, group.name));
    controllers += group.node_type == SlurmNodeType::Controller;
    logins += group.node_type == SlurmNodeType::Login;
    out.groups.push_back(std::move(group));
  }
  if (out.orchestrator == Orchestrator::Slurm && controllers != 1) out.problems.push_back(fmt::format("spec.instanceGroups: {} groups with nodeType Controller; a Slurm cluster has one", controllers));
  if (logins > 1) out.problems.push_back(fmt::format("spec.instanceGroups: {} groups with nodeType Login; one at most", logins));
  return out;
}

Instance read_instance(const Json& object) {
  Instance out;
  out.id = kube::name_of(object);
  const Json &spec = object["spec"], &status = object["status"];
  out.cluster = spec["cluster"].string();
  out.cluster_uid = spec["clusterUid"].string();
  out.group = spec["instanceGroupName"].string();
  out.type = spec["instanceType"].string();
  out.logical_id = spec["nodeLogicalId"].string();
  out.number = static_cast<int>(spec["number"].integer());
  out.attempt = static_cast<int>(spec["attempt"].integer(1));
  out.reboot = spec["reboot"]["id"].string();
  out.replace = spec["replace"]["id"].string();
  out.health_check = spec["healthCheck"]["id"].string();
  for (const Json& check : spec["healthCheck"]["checks"].items()) add_check(out.health_checks, check.string());
  if (!out.health_checks.any()) out.health_checks.stress = !out.health_check.empty();
  out.check_id = status["healthCheck"]["id"].string();
  out.check_stage = status["healthCheck"]["stage"].string();
  out.deleting = kube::deleting(object);
  out.finalizer = kube::has_finalizer(object, kInstanceFinalizer);
  out.phase = status["phase"].string();
  out.message = status["message"].string();
  out.node = status["node"].string();
  out.made = status["made"].boolean();
  out.ran = status.has("runningSince");
  if (const Json& config = status["lifecycle"]["config"]; config.is_object()) out.scripts = read_lifecycle(config);
  out.reboot_id = status["reboot"]["id"].string();
  out.reboot_stage = status["reboot"]["stage"].string();
  out.software_id = status["software"]["id"].string();
  out.software_stage = status["software"]["stage"].string();
  return out;
}

}  // namespace fairlead::api
