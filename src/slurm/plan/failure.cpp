// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/failure.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/machine.h"

namespace fairlead::slurm {
namespace {

using kube::Json;

bool ready(const Json& node) { return kube::condition_is_true(node, "Ready"); }

// When it was last seen to go: a second power cut is another death.
std::string went(const Json& node) {
  const Json* ready = kube::find_condition(node, "Ready");
  return ready ? (*ready)["lastTransitionTime"].string() : std::string();
}

bool out_of_service(const Json& node) {
  const auto& taints = node["spec"]["taints"].items();
  return std::any_of(taints.begin(), taints.end(), [](const Json& taint) { return taint["key"].string() == api::kOutOfService; });
}

const Json* find(const std::map<std::string, const Json*>& in, const std::string& name) {
  const auto found = in.find(name);
  return found == in.end() ? nullptr : found->second;
}

bool without_jobs(const SlurmView& view, const std::string& name) {
  const auto jobs = view.jobs_on(name);
  return std::all_of(jobs.begin(), jobs.end(), [](const SlurmJob* job) { return job->state == "COMPLETING"; });
}
// Nothing of Slurm's is there that could be lost or run twice.
bool nothing_runs(const SlurmView& view, const SlurmNode& node) { return node.cpus == 0 && !node.has("COMPLETING") && without_jobs(view, node.name); }

// What `fairlead-slurm died` is told. Whose death it is can only be asked of a companion that knows whose slurmd it is.
TellSlurm death(const SlurmView& view, const std::string& name, const Proof& proof, const std::string& of) {
  TellSlurm tell{NodeVerb::Died, name, {proof.ended, "died: " + proof.why}};
  if (const auto node = view.nodes.find(name); node != view.nodes.end() && !node->second.pod.empty()) tell.arguments.push_back(of);
  return tell;
}
// Slurm knows another's slurmd there: of that one, this proof says nothing.
bool of_another(const SlurmView& view, const std::string& name, const Proof& proof, const std::string& pod, const std::string& machine) {
  const auto node = view.nodes.find(name);
  if (node == view.nodes.end() || node->second.pod.empty()) return false;
  return proof.machine ? node->second.machine != machine : node->second.pod != pod;
}

// Slurm has given up whatever ran there.
bool given_up(const SlurmView& view, const std::string& name) {
  const auto node = view.nodes.find(name);
  return node == view.nodes.end() || (node->second.has("DOWN") && without_jobs(view, name));
}

template <class Each>
void each_death(const FailureInput& input, Each each) {
  for (const auto& [name, pod] : input.pods)
    if (const auto proof = proof_of_death(*pod, "slurmd", find(input.nodes, (*pod)["spec"]["nodeName"].string()))) each(name, *pod, *proof);
}

// For how long the container of a worker that is not ready runs; none: it does not, or the worker is ready.
std::optional<std::chrono::nanoseconds> starts_for(const Json& pod, Instant now) {
  if (kube::condition_is_true(pod, "Ready")) return std::nullopt;
  for (const Json& status : pod["status"]["containerStatuses"].items()) {
    if (status["name"].string() != "slurmd" || !status["state"]["running"].is_object()) continue;
    const auto since = parse_time(status["state"]["running"]["startedAt"].string());
    return since ? now - *since : std::chrono::hours(1);
  }
  return std::nullopt;
}
constexpr std::chrono::seconds kStart{5}, kLongStart{60}, kSeldom{30};

// Since when it holds; none: it does not, or nobody knows.
std::optional<Instant> ready_since(const Json& node) {
  if (!ready(node)) return std::nullopt;
  const auto since = parse_time(went(node));
  return since ? std::optional<Instant>(*since) : std::nullopt;
}

bool writes_marks(const Json& pod) {
  for (const Json& container : pod["spec"]["containers"].items())
    for (const Json& variable : container["env"].items())
      if (variable["name"].string() == "FAIRLEAD_POD_UID") return true;
  return false;
}

// A worker that another pod's slurmd keeps from its node.
void plan_orphan(const FailureInput& input, const std::string& name, const Json& pod, FailurePlan& out) {
  // One that is ready serves, whatever is written down; one that knows nothing of marks writes none.
  if (kube::condition_is_true(pod, "Ready") || !writes_marks(pod)) return;
  const auto node = input.view->nodes.find(name);
  if (node == input.view->nodes.end() || node->second.pod.empty() || node->second.pod == kube::uid_of(pod) || nothing_runs(*input.view, node->second)) return;
  const std::string& machine = node->second.machine;
  out.look_again = true;
  const auto proof = proof_of_orphan(pod, machine, find(input.nodes, machine), input.now);
  if (proof) {
    out.notes.push_back(fmt::format("the {} before this one died ({}); Slurm is told", name, proof->why));
    out.steps.push_back(death(*input.view, name, *proof, fmt::format("{}@{}", node->second.pod, machine)));
    return;
  }
  const Json* had = find(input.nodes, machine);
  if (had && ready(*had)) out.notes.push_back(fmt::format("{} waits until machine {} has ended the pod that had its name before", name, machine));
  else if (!had)
    out.notes.push_back(fmt::format("{} waits: the pod that had its name before was on machine {}, whose Node is gone, and nobody can tell whether its jobs still run there. When the machine is off for certain: "
                                    "scontrol update nodename={} state=down reason=\"its machine is off\"",
                                    name, machine, name));
  else
    out.notes.push_back(fmt::format("{} waits: the pod that had its name before was deleted while nobody could reach its machine {}, and its jobs may still run there. They start again when the machine is back, or when it is off for certain: "
                                    "kubectl taint node {} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
                                    name, machine, machine));
}

}  // namespace

std::optional<Proof> proof_of_orphan(const Json& waiting, const std::string& machine, const Json* node, Instant now) {
  // A slurmd that started after the waiting pod was made is not that of the pod before it.
  const std::string ended = waiting["metadata"]["creationTimestamp"].string();
  const auto made = parse_time(ended);
  if (!made || !node || kube::name_of(*node) != machine) return std::nullopt;
  if (out_of_service(*node)) {
    if (ready(*node)) return std::nullopt;
    return Proof{.why = fmt::format("machine {} is out of service", machine), .ended = ended, .of = fmt::format("{}/orphan/{}", kube::uid_of(waiting), went(*node)), .machine = true};
  }
  const auto since = ready_since(*node);
  const auto patience = kOrphanEnds + std::chrono::seconds(std::max<std::int64_t>(waiting["spec"]["terminationGracePeriodSeconds"].integer(30), 0));
  if (!since || now < *made + patience || now < *since + patience) return std::nullopt;
  return Proof{.why = fmt::format("its pod was deleted, and machine {} has reported ever since", machine), .ended = ended, .of = fmt::format("{}/orphan", kube::uid_of(waiting))};
}

std::optional<Proof> proof_of_death(const Json& pod, const std::string& container, const Json* node) {
  if (!node || pod["spec"]["nodeName"].string() != kube::name_of(*node)) return std::nullopt;
  if (out_of_service(*node)) {
    if (ready(*node)) return std::nullopt;
    return Proof{.why = fmt::format("machine {} is out of service", kube::name_of(*node)), .of = fmt::format("{}/machine/{}", kube::uid_of(pod), went(*node)), .machine = true};
  }
  if (!ready(*node)) return std::nullopt;
  for (const Json& status : pod["status"]["containerStatuses"].items()) {
    if (status["name"].string() != container || status["state"]["running"].is_object()) continue;
    const Json& last = status["state"]["terminated"].is_object() ? status["state"]["terminated"] : status["lastState"]["terminated"];
    if (!last.is_object() || !parse_time(last["finishedAt"].string())) return std::nullopt;
    return Proof{.why = fmt::format("its container ended with {}", last["exitCode"].integer()), .ended = last["finishedAt"].string(), .of = fmt::format("{}/{}", kube::uid_of(pod), last["finishedAt"].string())};
  }
  return std::nullopt;
}

bool needs_look(const FailureInput& input) {
  bool any = !input.ended.empty();
  each_death(input, [&](const std::string& name, const Json&, const Proof& proof) { any = any || input.memory[name].string() != proof.of; });
  return any || !may_wait(input).empty();
}

std::vector<std::string> may_wait(const FailureInput& input) {
  std::vector<std::string> out;
  for (const auto& [name, pod] : input.pods)
    if (const auto since = starts_for(*pod, input.now); since && *since >= kStart) out.push_back(name);
  return out;
}

FailurePlan plan_failures(const FailureInput& input) {
  FailurePlan out;
  Json memory = Json::object();
  each_death(input, [&](const std::string& name, const Json& pod, const Proof& proof) {
    const std::string uid = kube::uid_of(pod), machine = pod["spec"]["nodeName"].string();
    bool known = input.memory[name].string() == proof.of;
    if (!known && input.view) known = given_up(*input.view, name) || of_another(*input.view, name, proof, uid, machine);
    if (known) {
      memory.set(name, proof.of);
      if (proof.machine) out.settled.push_back(name);
      return;
    }
    out.look_again = true;
    out.notes.push_back(fmt::format("{} died ({}); Slurm is told", name, proof.why));
    if (input.view) out.steps.push_back(death(*input.view, name, proof, proof.machine ? "@" + machine : uid + "@"));
  });
  // Sooner than its successor, which reports it when it starts (gpl/past.cpp).
  for (const auto& [name, proof] : input.ended) {
    const std::string uid = proof.of.substr(0, proof.of.find('/'));
    if (input.view && (!input.view->nodes.contains(name) || without_jobs(*input.view, name) || (!proof.machine && of_another(*input.view, name, proof, uid, "")))) {
      out.ends_known.push_back(name);
      continue;
    }
    out.look_again = true;
    if (input.view) out.steps.push_back(death(*input.view, name, proof, uid + "@"));
  }
  for (const auto& [name, pod] : input.pods) {
    if (input.view) plan_orphan(input, name, *pod, out);
    if (const auto since = starts_for(*pod, input.now)) out.look_later = std::min(out.look_later.value_or(kSeldom), *since < kLongStart ? kStart : kSeldom);
  }
  if (!memory.members().empty()) out.memory = std::move(memory);
  return out;
}

}  // namespace fairlead::slurm
