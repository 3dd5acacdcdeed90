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

}  // namespace

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
  return any;
}

FailurePlan plan_failures(const FailureInput& input) {
  FailurePlan out;
  Json memory = Json::object();
  each_death(input, [&](const std::string& name, const Json&, const Proof& proof) {
    bool known = input.memory[name].string() == proof.of;
    if (!known && input.view) known = given_up(*input.view, name);
    if (known) {
      memory.set(name, proof.of);
      if (proof.machine) out.settled.push_back(name);
      return;
    }
    out.look_again = true;
    out.notes.push_back(fmt::format("{} died ({}); Slurm is told", name, proof.why));
    if (input.view) out.steps.push_back({NodeVerb::Died, name, {proof.ended, "died: " + proof.why}});
  });
  // Sooner than its successor, which reports it when it starts (gpl/main.cpp).
  for (const auto& [name, proof] : input.ended) {
    if (input.view && (!input.view->nodes.contains(name) || without_jobs(*input.view, name))) {
      out.ends_known.push_back(name);
      continue;
    }
    out.look_again = true;
    if (input.view) out.steps.push_back({NodeVerb::Died, name, {proof.ended, "died: " + proof.why}});
  }
  if (!memory.members().empty()) out.memory = std::move(memory);
  return out;
}

}  // namespace fairlead::slurm
