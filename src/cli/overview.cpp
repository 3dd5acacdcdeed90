// SPDX-License-Identifier: Apache-2.0
#include "cli/overview.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "api/machine.h"
#include "base/encoding.h"
#include "kube/object.h"
#include "kube/pod_words.h"
#include "kube/selector.h"

namespace fairlead::cli {

using kube::Json;

namespace {

constexpr const char* kClusterLabel = "fairlead.dev/slurm-cluster";
constexpr const char* kRoleLabel = "fairlead.dev/slurm-role";

double amount(const Json& value) {
  auto quantity = kube::Quantity::from_json(value);
  return quantity ? static_cast<double>(quantity->milli_value()) / 1000 : 0;
}
double bytes(const Json& value) {
  auto quantity = kube::Quantity::from_json(value);
  return quantity ? static_cast<double>(quantity->value()) : 0;
}

bool is_gpu(std::string_view resource) { return resource == "gpu" || resource.ends_with(".com/gpu"); }

std::chrono::nanoseconds age_of(const Json& object, Instant now) {
  auto created = parse_time(object["metadata"]["creationTimestamp"].string());
  return created && *created < now ? now - *created : std::chrono::nanoseconds(0);
}

// What a pod asks for: its containers together, or its largest init container.
struct Asked {
  double cpu = 0, memory = 0, gpus = 0;
};
Asked asked_by(const Json& container) {
  Asked out;
  for (const auto& [resource, value] : container["resources"]["requests"].members()) {
    if (resource == "cpu") out.cpu += amount(value);
    if (resource == "memory") out.memory += bytes(value);
    if (is_gpu(resource)) out.gpus += amount(value);
  }
  return out;
}
Asked asked_by_pod(const Json& pod) {
  Asked sum;
  for (const auto& container : pod["spec"]["containers"].items()) {
    const Asked one = asked_by(container);
    sum = {sum.cpu + one.cpu, sum.memory + one.memory, sum.gpus + one.gpus};
  }
  for (const auto& container : pod["spec"]["initContainers"].items()) {
    const Asked one = asked_by(container);
    sum = {std::max(sum.cpu, one.cpu), std::max(sum.memory, one.memory), std::max(sum.gpus, one.gpus)};
  }
  return sum;
}

// The first reason that keeps a pod from being well, in its own words; empty: none.
std::pair<std::string, std::string> trouble_of(const Json& pod) {
  for (const char* list : {"initContainerStatuses", "containerStatuses"})
    for (const auto& status : pod["status"][list].items()) {
      const Json& waiting = status["state"]["waiting"];
      const std::string& reason = waiting["reason"].string();
      if (!reason.empty() && reason != "ContainerCreating" && reason != "PodInitializing")
        return {reason, fmt::format("container {}: {}", status["name"].string(), waiting["message"].string_or(reason))};
      const Json& ended = status["state"]["terminated"];
      if (!ended.is_null() && ended["exitCode"].integer() != 0 && pod["status"]["phase"].string() == "Failed")
        return {ended["reason"].string_or("Error"), fmt::format("container {} ended with status {}", status["name"].string(), ended["exitCode"].integer())};
    }
  if (const Json* scheduled = kube::find_condition(pod, "PodScheduled"); scheduled && (*scheduled)["status"].string() == "False")
    return {(*scheduled)["reason"].string_or("Unschedulable"), (*scheduled)["message"].string_or("no node takes it")};
  if (pod["status"]["phase"].string() == "Failed") return {pod["status"]["reason"].string_or("Failed"), pod["status"]["message"].string_or("it failed")};
  return {};
}

// Its state is the word of `fairlead get pods`; the health is our judgement.
Overview::Pod pod_row(const Json& pod, Instant now) {
  const kube::PodWords words = kube::words_of_pod(pod);
  Overview::Pod row{.space = kube::space_of(pod), .name = kube::name_of(pod), .state = words.status.empty() ? "Pending" : words.status, .node = pod["spec"]["nodeName"].string(), .age = age_of(pod, now)};
  row.ready = static_cast<int>(words.ready);
  row.containers = static_cast<int>(words.total);
  row.restarts = static_cast<int>(words.restarts);
  const std::string& phase = pod["status"]["phase"].string();
  if (kube::deleting(pod))
    row.health = Health::Waiting;
  else if (phase == "Succeeded")
    row.health = Health::Off;
  else if (!trouble_of(pod).first.empty())
    row.health = Health::Bad;
  else if (phase != "Running" || row.ready < row.containers)
    row.health = Health::Waiting;
  return row;
}

// "name|state|why" lines.
std::vector<std::vector<std::string>> fields_of(const std::string& text, std::size_t wanted) {
  std::vector<std::vector<std::string>> out;
  for (const auto& line : split(text, '\n')) {
    auto fields = split(trim(line), '|');
    if (fields.size() < wanted) continue;
    for (auto& field : fields) field = clean(trim(field));
    out.push_back(std::move(fields));
  }
  return out;
}

Health job_health(const std::string& state) {
  if (state == "RUNNING" || state == "COMPLETED" || state == "COMPLETING") return Health::Good;
  if (state == "PENDING" || state == "CONFIGURING" || state == "SUSPENDED" || state == "REQUEUED") return Health::Waiting;
  if (state == "CANCELLED") return Health::Off;
  return Health::Bad;
}

// What Slurm says of each of its nodes, which are named as the workers' pods: state and reason.
using SlurmNodes = std::map<std::string, std::pair<std::string, std::string>>;
SlurmNodes slurm_nodes(const SiteSnapshot& snapshot) {
  SlurmNodes out;
  for (const auto& answer : snapshot.slurm)
    for (const auto& fields : fields_of(answer.sinfo, 3)) out[fields[0]] = {fields[1], fields[2]};
  return out;
}

void add_capacity(Overview::Node& row, const Json& node) {
  const Json& can = node["status"]["allocatable"];
  row.cpu = amount(can["cpu"]);
  row.memory = bytes(can["memory"]);
  for (const auto& [resource, value] : can.members())
    if (is_gpu(resource)) row.gpus += amount(value);
  for (const auto& address : node["status"]["addresses"].items())
    if (address["type"].string() == "InternalIP") row.address = address["address"].string();
}

void add_use(Overview::Node& row, const std::vector<Json>& pods, const SlurmNodes& slurm) {
  for (const auto& pod : pods) {
    const std::string& phase = pod["status"]["phase"].string();
    if (pod["spec"]["nodeName"].string() != row.name || phase == "Succeeded" || phase == "Failed") continue;
    const Asked asked = asked_by_pod(pod);
    row.cpu_used += asked.cpu;
    row.memory_used += asked.memory;
    row.gpus_used += asked.gpus;
    ++row.pods;
    if (const auto says = slurm.find(kube::name_of(pod)); says != slurm.end() && kube::labels_of(pod)[kRoleLabel] == "worker") row.slurm = says->second.first;
  }
}

// State and health by what the machine and the node say (either may be absent), and the problem where there is one.
void judge_node(Overview::Node& row, const Json* node, const Json* machine_object, std::vector<Overview::Problem>& problems) {
  const std::string heal = "fairlead node heal " + row.name;
  const api::Machine machine = machine_object ? api::read_machine(*machine_object) : api::Machine{};
  if (machine_object && !machine.spec.host && machine.spec.power == api::Power::Off) {
    row.state = "Off";
    row.health = Health::Off;
    problems.push_back({Health::Bad, row.name, "the power is off", heal});
    return;
  }
  if (machine_object && !machine.spec.host && machine.spec.link == api::Link::Cut) {
    row.state = "Cut off";
    row.health = Health::Bad;
    problems.push_back({Health::Bad, row.name, "its network link is cut", heal});
    return;
  }
  if (!node) {
    const Json* told = machine_object ? kube::find_condition(*machine_object, "Ready") : nullptr;
    const std::string words = told ? (*told)["message"].string() : "";
    const bool refused = machine.phase == "Refused";
    row.state = machine.phase.empty() ? "New" : machine.phase;
    row.health = refused ? Health::Bad : Health::Waiting;
    if (refused) problems.push_back({row.health, row.name, words, "fairlead get machine " + row.name + " -o yaml"});
    if (!refused && !words.empty()) problems.push_back({row.health, row.name, "has not registered yet: " + words, ""});
    return;
  }
  const Json* ready = kube::find_condition(*node, "Ready");
  if (!ready || (*ready)["status"].string() != "True") {
    row.state = ready && (*ready)["status"].string() == "Unknown" ? "Silent" : "Not ready";
    row.health = Health::Bad;
    problems.push_back({Health::Bad, row.name, ready ? (*ready)["message"].string_or("the node is not ready") : "the node has not told how it is", "fairlead get node " + row.name + " -o yaml"});
    return;
  }
  row.state = (*node)["spec"]["unschedulable"].boolean() ? "Cordoned" : "Ready";
  if (row.state == "Cordoned") row.health = Health::Waiting;
}

void add_nodes(Overview& out, const SiteSnapshot& snapshot) {
  struct Sources {
    const Json* node = nullptr;
    const Json* machine = nullptr;
  };
  std::map<std::string, Sources> sources;
  for (const auto& node : snapshot.nodes) sources[kube::name_of(node)].node = &node;
  for (const auto& machine : snapshot.machines) sources[kube::name_of(machine)].machine = &machine;
  const SlurmNodes slurm = slurm_nodes(snapshot);
  for (const auto& [name, from] : sources) {
    Overview::Node row{.name = name};
    if (from.node)
      add_capacity(row, *from.node);
    else
      row.address = api::read_machine(*from.machine).seat.address;
    add_use(row, snapshot.pods, slurm);
    judge_node(row, from.node, from.machine, out.problems);
    out.nodes.push_back(std::move(row));
  }
  for (const auto& [name, says] : slurm) {
    const auto& [state, why] = says;
    if (state.starts_with("down") || state.starts_with("drain") || state.starts_with("fail") || state.ends_with("*"))
      out.problems.push_back({Health::Bad, name, fmt::format("Slurm has it as {}{}", state, why.empty() || why == "none" ? "" : ": " + why), ""});
  }
}

void add_pods(Overview& out, const SiteSnapshot& snapshot) {
  for (const auto& pod : snapshot.pods) {
    Overview::Pod row = pod_row(pod, snapshot.now);
    // Its status is what was told last; of a node that is off or silent nothing is known. The node's own problem is told already.
    const auto node = std::find_if(out.nodes.begin(), out.nodes.end(), [&](const auto& one) { return one.name == row.node; });
    if (node != out.nodes.end() && (node->health == Health::Off || node->health == Health::Bad) && row.health != Health::Off) {
      row.state = "Unknown";
      row.health = Health::Waiting;
    } else if (const auto [reason, message] = trouble_of(pod); row.health == Health::Bad) {
      out.problems.push_back({Health::Bad, row.space + "/" + row.name, message.empty() ? reason : message, fmt::format("fairlead logs -n {} {}", row.space, row.name)});
    } else if (row.health == Health::Waiting && pod["status"]["phase"].string() == "Running" && !kube::deleting(pod) && row.age > std::chrono::minutes(2)) {
      out.problems.push_back({Health::Waiting, row.space + "/" + row.name, fmt::format("{} of {} containers ready", row.ready, row.containers), fmt::format("fairlead logs -n {} {}", row.space, row.name)});
    }
    out.pods.push_back(std::move(row));
  }
  std::sort(out.pods.begin(), out.pods.end(), [](const auto& a, const auto& b) { return std::tie(a.space, a.name) < std::tie(b.space, b.name); });
}

bool told_of(const Overview& out, const std::string& subject) {
  return std::any_of(out.problems.begin(), out.problems.end(), [&](const auto& problem) { return problem.subject == subject; });
}

Overview::Head head_row(const Overview::Cluster& cluster, const Json& pod, const Overview::Pod& row, bool ready, const SiteSnapshot::SlurmAnswer* answer) {
  Overview::Head head{.cluster = cluster.name, .pod = row.name, .node = row.node, .address = pod["status"]["podIP"].string(), .state = "", .health = row.health, .age = row.age};
  if (answer && answer->asked && answer->error.empty()) {
    const bool up = answer->ping.find("is UP") != std::string::npos;
    head.state = up ? "slurmctld answers" : "slurmctld does not answer";
    if (!up) head.health = Health::Bad;
  } else {
    head.state = ready ? "ready" : row.state == "Running" ? "starting" : row.state;
  }
  return head;
}

void add_cluster(Overview& out, const SiteSnapshot& snapshot, const Json& object) {
  Overview::Cluster row{.space = kube::space_of(object), .name = kube::name_of(object), .phase = object["status"]["phase"].string_or("New")};
  row.health = row.phase == "Available" ? Health::Good : row.phase == "Not available" ? Health::Bad : Health::Waiting;
  row.workers = static_cast<int>(object["status"]["workers"].integer(object["spec"]["slurmNodes"]["worker"]["size"].integer()));  // with those of NodeSets
  row.logins = static_cast<int>(object["spec"]["slurmNodes"]["login"]["size"].integer());
  if (const Json& exporter = object["spec"]["slurmNodes"]["exporter"]; exporter["enabled"].boolean() && exporter["size"].integer(1) > 0) row.exporter_ready = false;
  const SiteSnapshot::SlurmAnswer* answer = nullptr;
  for (const auto& one : snapshot.slurm)
    if (one.cluster == row.name && one.space == row.space) answer = &one;
  int explained_workers = 0, explained_logins = 0;  // not ready, and a problem says why
  for (const auto& pod : snapshot.pods) {
    auto labels = kube::labels_of(pod);
    if (kube::space_of(pod) != row.space || labels[kClusterLabel] != row.name) continue;
    const std::string& role = labels[kRoleLabel];
    const Overview::Pod as_pod = pod_row(pod, snapshot.now);
    const auto on = std::find_if(out.nodes.begin(), out.nodes.end(), [&](const auto& one) { return one.name == as_pod.node; });
    const bool ready = as_pod.health == Health::Good && (on == out.nodes.end() || on->health == Health::Good || on->health == Health::Waiting);
    const bool explained = !ready && (told_of(out, as_pod.node) || told_of(out, as_pod.name) || told_of(out, as_pod.space + "/" + as_pod.name));
    if (role == "worker") ready ? ++row.workers_ready : explained_workers += explained;
    if (role == "exporter" && row.exporter_ready && ready) row.exporter_ready = true;
    if (role == "login") ready ? ++row.logins_ready : explained_logins += explained;
    if (role == "controller") out.heads.push_back(head_row(row, pod, as_pod, ready, answer));
  }
  bool explained = false;
  for (const auto& condition : object["status"]["conditions"].items()) {
    const std::string& type = condition["type"].string();
    if (condition["status"].string() != "False" || !type.ends_with("Available")) continue;
    out.problems.push_back({row.health == Health::Bad ? Health::Bad : Health::Waiting, row.name, condition["message"].string_or(type + " is False"), ""});
    explained = true;
  }
  if (answer && answer->asked && !answer->error.empty()) out.problems.push_back({Health::Bad, row.name, "Slurm does not answer: " + answer->error, ""});
  // A cluster is available with some of its workers: those that are missing are named all the same.
  const std::string look = "fairlead get pods -n " + row.space;
  if (!explained && row.workers_ready + explained_workers < row.workers)
    out.problems.push_back({Health::Waiting, row.name, fmt::format("{} of {} workers ready", row.workers_ready, row.workers), look});
  if (!explained && row.logins_ready + explained_logins < row.logins)
    out.problems.push_back({Health::Waiting, row.name, fmt::format("{} of {} login nodes ready", row.logins_ready, row.logins), look});
  out.clusters.push_back(std::move(row));
}

// Those that go on first, then what has ended, latest first; of the ended ones only a few.
void add_jobs(Overview& out, const SiteSnapshot& snapshot) {
  for (const auto& answer : snapshot.slurm)
    for (const auto& f : fields_of(answer.squeue, 7)) {
      out.jobs.push_back({.cluster = answer.cluster, .id = f[0], .name = f[1], .user = f[2], .state = f[3], .time = f[4], .nodes = f[5], .where = f[6], .health = job_health(f[3])});
    }
  const auto ended = [](const Overview::Job& job) { return job.state != "RUNNING" && job.health != Health::Waiting && job.state != "COMPLETING"; };
  std::stable_sort(out.jobs.begin(), out.jobs.end(), [&](const auto& a, const auto& b) {
    if (ended(a) != ended(b)) return !ended(a);
    return ended(a) && std::atoll(a.id.c_str()) > std::atoll(b.id.c_str());
  });
  constexpr int kEndedShown = 5;
  int shown = 0;
  std::erase_if(out.jobs, [&](const auto& job) { return ended(job) && ++shown > kEndedShown; });
}

void add_storage(Overview& out, const SiteSnapshot& snapshot) {
  for (const auto& claim : snapshot.claims) {
    Overview::Storage row{.space = kube::space_of(claim), .name = kube::name_of(claim), .phase = claim["status"]["phase"].string_or("Pending")};
    row.size = claim["status"]["capacity"]["storage"].string_or(claim["spec"]["resources"]["requests"]["storage"].string());
    row.health = row.phase == "Bound" ? Health::Good : row.phase == "Lost" ? Health::Bad : Health::Waiting;
    for (const auto& pod : snapshot.pods) {
      if (kube::space_of(pod) != row.space) continue;
      for (const auto& volume : pod["spec"]["volumes"].items())
        if (volume["persistentVolumeClaim"]["claimName"].string() == row.name) {
          row.used_by.push_back(kube::name_of(pod));
          break;
        }
    }
    std::sort(row.used_by.begin(), row.used_by.end());
    if (row.health != Health::Good) out.problems.push_back({row.health, row.space + "/" + row.name, "the claim is " + row.phase, fmt::format("fairlead get pvc -n {} {} -o yaml", row.space, row.name)});
    out.storage.push_back(std::move(row));
  }
  if (out.disk_size_bytes > 0 && out.disk_free_bytes < 2'000'000'000)
    out.problems.push_back({Health::Bad, "disk", fmt::format("{:.1f} GB free below {}", static_cast<double>(out.disk_free_bytes) / 1e9, out.state_dir), "make room; writes are refused when it is full"});
}

}  // namespace

Overview overview_of(const SiteSnapshot& snapshot) {
  Overview out;
  out.now = snapshot.now;
  out.state_dir = snapshot.state_dir;
  out.server_version = snapshot.server_version;
  out.images = snapshot.images;
  out.disk_free_bytes = snapshot.disk_free_bytes;
  out.disk_size_bytes = snapshot.disk_size_bytes;
  add_nodes(out, snapshot);
  add_pods(out, snapshot);
  for (const auto& cluster : snapshot.slurm_clusters) add_cluster(out, snapshot, cluster);
  add_jobs(out, snapshot);
  add_storage(out, snapshot);
  for (auto& problem : out.problems) {
    problem.what = clean(problem.what);
    problem.advice = clean(problem.advice);
  }
  // What is broken before what is on its way; otherwise nodes, pods, clusters, storage as they came.
  std::stable_sort(out.problems.begin(), out.problems.end(), [](const auto& a, const auto& b) { return (a.health == Health::Bad) > (b.health == Health::Bad); });
  return out;
}

}  // namespace fairlead::cli
