// SPDX-License-Identifier: Apache-2.0
#include "training/plan/training_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <tuple>

namespace fairlead::training {

using kube::Json;

const kube::Resource kJobs{"sagemaker.amazonaws.com", "v1", "hyperpodpytorchjobs", "HyperPodPyTorchJob", true};

namespace {

constexpr const char* kHealthLabel = "sagemaker.amazonaws.com/node-health-status";
constexpr int kMostNodes = 10'000;

std::optional<std::chrono::seconds> seconds_of(const Json& value) {
  if (!value.is_number() || value.integer(-1) < 0) return std::nullopt;
  return std::chrono::seconds(std::min<std::int64_t>(value.integer(), 10LL * 365 * 86'400));
}

// All words of a container's command line, as one text.
std::string command_of(const Json& container) {
  std::string out;
  for (const char* part : {"command", "args"})
    for (const Json& word : container[part].items()) out += word.string() + " ";
  return out;
}

bool starts_agent(const Json& container) {
  const std::string command = command_of(container);
  return command.find("hyperpodrun") != std::string::npos || command.find("hyperpod_elastic_agent") != std::string::npos;
}

Launcher launcher_of(const Json& job, const std::vector<Replica>& replicas) {
  if (const std::string& said = job["metadata"]["annotations"][kLauncher].string(); said == "hyperpodrun") return Launcher::Agent;
  else if (said == "torchrun") return Launcher::Plain;
  bool silent = false;
  for (const Replica& replica : replicas) {
    const auto& containers = replica.pod["spec"]["containers"].items();
    if (std::ranges::any_of(containers, starts_agent)) return Launcher::Agent;
    const std::string command = containers.empty() ? "" : command_of(containers[0]);
    silent = silent || (command.find("torchrun") == std::string::npos && command.find("torch.distributed.") == std::string::npos && !command.starts_with("python"));
  }
  return silent ? Launcher::Unknown : Launcher::Plain;
}

// --server-port of its command, where it says one.
unsigned short agent_port_of(const Json& container) {
  const std::string command = command_of(container);
  constexpr std::string_view flag = "--server-port";
  std::size_t at = command.find(flag);
  if (at == std::string::npos) return 8080;
  at = command.find_first_not_of("= ", at + flag.size());
  unsigned port = 0;
  if (at != std::string::npos) std::from_chars(command.data() + at, command.data() + command.size(), port);
  return port > 0 && port < 65'536 ? static_cast<unsigned short>(port) : 8080;
}

bool is_label(const std::string& name) {
  if (name.empty() || name.size() > 63) return false;
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return plain(name.front()) && plain(name.back()) && std::ranges::all_of(name, [&](char c) { return plain(c) || c == '-'; });
}

// What we change in a template must be of the form that it has everywhere: the definition lets anything pass. Empty: it is.
std::string odd_shape(const Json& spec) {
  const auto object = [](const Json& value) { return value.is_null() || value.is_object(); };
  for (const char* list : {"containers", "initContainers"})
    for (const Json& one : spec[list].items())
      if (!one.is_object()) return fmt::format("{}: a container is an object", list);
  if (!object(spec["affinity"])) return "affinity: it is an object";
  if (!object(spec["affinity"]["nodeAffinity"])) return "affinity.nodeAffinity: it is an object";
  const Json& required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
  if (!object(required)) return "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution: it is an object";
  const Json& terms = required["nodeSelectorTerms"];
  if (!terms.is_null() && !terms.is_array()) return "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: it is a list";
  for (const Json& term : terms.items())
    if (!term.is_object()) return "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: a term is an object";
  return "";
}

// Whose end is the pod's end, and where its agent listens: the one that starts an agent, else the first.
std::pair<std::string, unsigned short> main_container(const std::vector<Json>& containers) {
  auto at = std::ranges::find_if(containers, starts_agent);
  if (at == containers.end()) at = containers.begin();
  return {(*at)["name"].string(), agent_port_of(*at)};
}

std::string read_replicas(const Json& job, TrainingJob& out) {
  const auto& specs = job["spec"]["replicaSpecs"].items();
  if (specs.empty()) return "spec.replicaSpecs: at least one is needed";
  std::set<std::string> names;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::string at = fmt::format("spec.replicaSpecs[{}]", i);
    Replica one{.name = specs[i]["name"].string(), .first_rank = out.nodes, .pod = specs[i]["template"]};
    if (!is_label(one.name)) return fmt::format("{}.name: \"{}\" is not a name of lower-case letters, digits and '-'", at, one.name.substr(0, 64));
    if (!names.insert(one.name).second) return fmt::format("{}.name: there are two of {}", at, one.name);
    const std::int64_t count = specs[i]["replicas"].integer(1), spares = specs[i]["spares"].integer(0);
    if (count < 1 || count > kMostNodes) return fmt::format("{}.replicas: {} is not between 1 and {}", at, count, kMostNodes);
    if (spares < 0 || spares > kMostNodes) return fmt::format("{}.spares: {} is not between 0 and {}", at, spares, kMostNodes);
    one.count = one.base = static_cast<int>(count);
    one.spares = static_cast<int>(spares);
    one.seats = one.count + one.spares;
    const auto& containers = one.pod["spec"]["containers"].items();
    if (containers.empty()) return at + ".template.spec.containers: at least one is needed";
    if (std::string problem = odd_shape(one.pod["spec"]); !problem.empty()) return fmt::format("{}.template.spec.{}", at, problem);
    std::tie(one.main, one.agent_port) = main_container(containers);
    const std::string longest = pod_name(job, one, one.count + one.spares - 1);
    if (longest.size() > 253) return fmt::format("metadata.name: its pods' names, such as {}, would be longer than 253 characters", longest);
    out.nodes += one.count;
    if (out.nodes > kMostNodes) return fmt::format("spec.replicaSpecs: {} nodes, more than {}", out.nodes, kMostNodes);
    out.replicas.push_back(std::move(one));
  }
  if (kube::name_of(job).size() > 63) return fmt::format("metadata.name: longer than 63 characters; its pods have it as a label ({})", kJobLabel);
  return "";
}

// What the policy says is wrong, or empty.
std::string read_elastic(const Json& job, TrainingJob& out) {
  const Json &policy = job["spec"]["elasticPolicy"], &restarts = job["spec"]["runPolicy"]["restartPolicy"];
  if (!policy.is_object() || out.replicas.empty()) return "";
  if (out.replicas.size() != 1) return "spec.elasticPolicy: it is for one replicaSpec";
  Replica& replica = out.replicas.front();
  const std::int64_t least = policy["minReplicas"].integer(1), most = policy["maxReplicas"].integer(std::max<std::int64_t>(least, job["spec"]["replicaSpecs"].items()[0]["maxReplicas"].integer(replica.base)));
  if (least < 1 || most < least || most > kMostNodes) return fmt::format("spec.elasticPolicy: minReplicas {} and maxReplicas {} are no range within 1 and {}", least, most, kMostNodes);
  Elastic elastic;
  if (const Json& values = policy["replicaDiscreteValues"]; !values.items().empty()) {
    std::set<int> sizes;
    for (const Json& one : values.items())
      if (one.integer() >= least && one.integer() <= most) sizes.insert(static_cast<int>(one.integer()));
    if (sizes.empty()) return fmt::format("spec.elasticPolicy.replicaDiscreteValues: none is within {} and {}", least, most);
    elastic.sizes.assign(sizes.begin(), sizes.end());
  } else {
    const std::int64_t step = std::clamp<std::int64_t>(policy["replicaIncrementStep"].integer(1), 1, kMostNodes);
    for (std::int64_t size = least; size <= most; size += step) elastic.sizes.push_back(static_cast<int>(size));
  }
  elastic.settle = seconds_of(policy["scalingTimeoutInSeconds"]).value_or(elastic.settle);
  elastic.give_up = seconds_of(policy["faultyScaleDownTimeoutInSeconds"]).value_or(elastic.give_up);
  elastic.snooze = seconds_of(restarts["scaleUpSnoozeTimeInSeconds"]).value_or(elastic.snooze);
  elastic.write_down = seconds_of(policy["gracefulShutdownTimeoutInSeconds"]);
  if (out.launcher == Launcher::Plain) return "";  // its pods cannot be told another size: it stays as it is
  const std::int64_t target = job["status"]["elasticScalingStatus"]["targetReplicas"][replica.name].integer();
  if (std::ranges::find(elastic.sizes, target) != elastic.sizes.end()) replica.count = out.nodes = static_cast<int>(target);
  const auto next = std::ranges::upper_bound(elastic.sizes, replica.count);
  replica.seats = std::max(next == elastic.sizes.end() ? replica.count : *next, replica.base) + replica.spares;
  out.elastic = std::move(elastic);
  return "";
}

RestartLimits read_limits(const Json& policy) {
  RestartLimits out;
  const Json &retries = policy["jobMaxRetryCount"], &windows = policy["restartPolicy"];
  if (retries.is_number()) out.retries = std::max<std::int64_t>(0, retries.integer());
  out.windows = !out.retries || windows.is_object();
  if (windows["numRestartBeforeFullJobRestart"].is_number()) out.before_full = std::max<std::int64_t>(0, windows["numRestartBeforeFullJobRestart"].integer());
  if (windows["maxFullJobRestarts"].is_number()) out.full = std::max<std::int64_t>(0, windows["maxFullJobRestarts"].integer());
  if (const auto window = seconds_of(windows["evalPeriodSeconds"]); window && window->count() > 0) out.window = *window;
  return out;
}

// Of one node: a number, or torchrun's word. `auto` is the accelerators that the container asks for, else 1: torchrun would start a process for each core.
std::string processes_of(const Json& job, const Json& container) {
  const Json& said = job["spec"]["nprocPerNode"];
  const std::string word = said.is_number() ? std::to_string(said.integer()) : said.string();
  if (!word.empty() && word != "auto") return word;
  for (const char* kind : {"nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuroncore", "aws.amazon.com/neurondevice", "aws.amazon.com/neuron"})
    for (const char* amount : {"limits", "requests"})
      if (const Json& value = container["resources"][amount][kind]; !value.is_null())
        if (const std::string count = value.is_number() ? std::to_string(value.integer()) : value.string(); !count.empty() && count != "0") return count;
  return "1";
}

void put_environment(Json& container, const std::vector<std::pair<std::string, Json>>& values) {
  Json all = Json::array();
  std::set<std::string> set;
  for (const Json& one : container["env"].items()) set.insert(one["name"].string());
  // First: what the template says may be made of them ($(NNODES)).
  for (const auto& [name, value] : values)
    if (!set.contains(name)) all.push(Json(value).set("name", name));
  for (const Json& one : container["env"].items()) all.push(one);
  container.set("env", std::move(all));
}

// None of the terms may hold on a node that is to go; terms are alternatives.
void avoid_unhealthy(Json& spec) {
  const Json rule = Json::object({{"key", kHealthLabel}, {"operator", "NotIn"}, {"values", Json::array({"UnschedulablePendingReboot", "UnschedulablePendingReplacement", "Unschedulable"})}});
  Json& required = spec.child("affinity").child("nodeAffinity").child("requiredDuringSchedulingIgnoredDuringExecution");
  Json terms = required["nodeSelectorTerms"];
  if (terms.items().empty()) terms = Json::array({Json::object({})});
  for (Json& term : terms.items()) {
    Json rules = term["matchExpressions"].is_array() ? term["matchExpressions"] : Json::array();
    rules.push(rule);
    term.set("matchExpressions", std::move(rules));
  }
  required.set("nodeSelectorTerms", std::move(terms));
}

}  // namespace

int Elastic::at_most(int nodes) const {
  const auto above = std::ranges::upper_bound(sizes, nodes);
  return above == sizes.begin() ? 0 : *std::prev(above);
}

bool is_unhealthy(const Json& node) { return node["metadata"]["labels"][kHealthLabel].string().starts_with("Unschedulable"); }

std::string pod_name(const Json& job, const Replica& replica, int index) { return fmt::format("{}-{}-{}", kube::name_of(job), replica.name, index); }

TrainingJob read_training_job(const Json& job) {
  TrainingJob out;
  const Json& policy = job["spec"]["runPolicy"];
  out.suspended = policy["suspend"].boolean();
  out.clean = policy["cleanPodPolicy"].string_or("None");
  out.limits = read_limits(policy);
  out.startup_deadline = seconds_of(policy["startupDeadlineSeconds"]);
  out.fault_deadline = seconds_of(policy["faultDeadlineSeconds"]);
  out.active_deadline = seconds_of(policy["activeDeadlineSeconds"]);
  out.ttl = seconds_of(policy["ttlSecondsAfterFinished"]);
  if (out.ttl && out.ttl->count() == 0) out.ttl.reset();  // hyp writes 0 with every run policy, and looks for the job afterwards
  out.rules = policy["logMonitoringConfiguration"];
  out.problem = read_replicas(job, out);
  if (out.problem.empty() && out.clean != "None" && out.clean != "All" && out.clean != "OnlyComplete") out.problem = fmt::format("spec.runPolicy.cleanPodPolicy: {} is none of None, All, OnlyComplete", out.clean.substr(0, 64));
  out.launcher = launcher_of(job, out.replicas);
  if (out.problem.empty()) out.problem = read_elastic(job, out);
  return out;
}

Json make_pod(const Json& job, const TrainingJob& read, const Replica& replica, const PodWish& wish) {
  Json metadata = Json::object({{"name", pod_name(job, replica, wish.index)}, {"namespace", kube::space_of(job)}});
  for (const char* part : {"labels", "annotations"})
    if (const Json& from = replica.pod["metadata"][part]; from.is_object()) metadata.set(part, from);
  metadata.child("labels").set(kJobLabel, kube::name_of(job)).set(kReplicaLabel, replica.name);
  metadata.child("labels").erase(kRankLabel);
  metadata.child("labels").erase(kElasticLabel);
  if (wish.elastic) metadata.child("labels").set(kElasticLabel, "true");
  if (wish.rank >= 0) metadata.child("labels").set(kRankLabel, std::to_string(wish.rank));
  metadata.child("annotations").set(kMadeFor, std::to_string(wish.attempt)).set(kNodesOf, std::to_string(read.nodes));
  if (!wish.master_address.empty()) metadata.child("annotations").set(kMasterOf, wish.master_address);
  metadata.set("ownerReferences", Json::array({kube::owner_reference(job)}));

  Json spec = replica.pod["spec"];
  if (wish.queued) {
    // What governance has put into the template is of the job's own Workload: its places, its gates.
    const auto of_queues = [](const std::string& key) { return key.starts_with("kueue.x-k8s.io/"); };
    for (const char* part : {"labels", "annotations"}) std::erase_if(metadata.child(part).members(), [&](const auto& member) { return of_queues(member.first); });
    if (spec["schedulingGates"].is_array()) std::erase_if(spec.child("schedulingGates").items(), [&](const Json& gate) { return of_queues(gate["name"].string()); });
    for (const char* label : {"kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"})
      if (const Json& said = job["metadata"]["labels"][label]; !said.is_null()) metadata.child("labels").set(label, said);
    Json gates = spec["schedulingGates"].is_array() ? spec["schedulingGates"] : Json::array();
    gates.push(Json::object({{"name", "kueue.x-k8s.io/admission"}}));
    spec.set("schedulingGates", std::move(gates));
  }
  spec.set("restartPolicy", "Never");  // its end is ours to judge
  avoid_unhealthy(spec);
  const auto value = [](const std::string& text) { return Json::object({{"name", ""}, {"value", text}}); };
  const std::string nodes = std::to_string(read.nodes), port = std::to_string(kMasterPort + wish.attempt % 100);
  const Json own_address = Json::object({{"name", ""}, {"valueFrom", Json::object({{"fieldRef", Json::object({{"fieldPath", "status.podIP"}})}})}});
  for (Json& container : spec.child("containers").items()) {
    const std::string processes = processes_of(job, container);
    std::vector<std::pair<std::string, Json>> values{{"JOB_NAME", value(kube::name_of(job))}, {"NNODES", value(nodes)}, {"NPROC_PER_NODE", value(processes)}, {"PET_NNODES", value(nodes)}, {"PET_NPROC_PER_NODE", value(processes)}};
    if (wish.rank >= 0 && read.launcher != Launcher::Agent) {
      const std::string rank = std::to_string(wish.rank);
      const Json master = wish.master_address.empty() ? own_address : value(wish.master_address);
      values.insert(values.end(), {{"NODE_RANK", value(rank)}, {"PET_NODE_RANK", value(rank)}, {"MASTER_ADDR", master}, {"PET_MASTER_ADDR", master}, {"MASTER_PORT", value(port)}, {"PET_MASTER_PORT", value(port)}});
      // For a program that is its node's only process, and that no launcher tells.
      if (processes == "1") values.insert(values.end(), {{"RANK", value(rank)}, {"WORLD_SIZE", value(nodes)}, {"LOCAL_RANK", value("0")}});
    }
    put_environment(container, values);
  }
  return Json::object({{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", std::move(metadata)}, {"spec", std::move(spec)}});
}

}  // namespace fairlead::training
