// SPDX-License-Identifier: Apache-2.0
#include "cli/readiness.h"

#include <fmt/format.h>

#include "kube/object.h"

namespace fairlead::cli {

using kube::Json;
using State = Readiness::State;

namespace {

Readiness waiting(std::string why) { return {State::Waiting, std::move(why)}; }

Readiness machine_readiness(const Json& machine, const Json& node) {
  const std::string& phase = machine["status"]["phase"].string();
  const Json* ready = kube::find_condition(machine, "Ready");
  if (phase == "Refused") return {State::Refused, ready ? (*ready)["message"].string() : "its spec is refused"};
  if (phase == "Off" || phase == "Cut") return {State::Ready, phase == "Off" ? "off, as asked" : "cut off, as asked"};
  if (phase != "Running") return waiting(ready && (*ready)["reason"].string() == "StepFailed" ? (*ready)["message"].string() : phase.empty() ? "not seen yet" : "starting");
  if (node.is_null()) return waiting("has not registered yet");
  if (!kube::condition_is_true(node, "Ready")) {
    const Json* condition = kube::find_condition(node, "Ready");
    return waiting(condition ? (*condition)["message"].string_or("node not ready") : "node not ready");
  }
  return {State::Ready, machine["status"]["address"].string()};
}

Readiness cluster_readiness(const Json& cluster) {
  const std::string& phase = cluster["status"]["phase"].string();
  std::string why;
  for (const auto& condition : cluster["status"]["conditions"].items())
    if (condition["status"].string() == "False") {
      if (condition["type"].string() == "Accepted" || condition["reason"].string() == "Refused" || condition["reason"].string() == "InvalidSpec") return {State::Refused, condition["message"].string()};
      if (why.empty() && condition["type"].string().ends_with("Available")) why = condition["message"].string();
    }
  if (phase == "Available") return {State::Ready, "available"};
  return waiting(why.empty() ? (phase.empty() ? "not seen yet" : phase) : why);
}

// One of instance groups: every instance is to run, also of one that is used before that.
Readiness groups_readiness(const Json& cluster) {
  const Json& status = cluster["status"];
  const std::string &phase = status["phase"].string(), &message = status["message"].string();
  const Json* valid = kube::find_condition(cluster, "SpecValid");
  const bool seen = status["observedGeneration"].integer() >= cluster["metadata"]["generation"].integer();
  if (phase == "Failed" || (seen && valid != nullptr && (*valid)["status"].string() == "False")) return {State::Refused, message};
  if (phase.empty() || !seen) return waiting(message.empty() ? "not seen yet" : message);
  for (const auto& group : status["instanceGroups"].items())
    if (group["current"].integer() < group["target"].integer()) return waiting(fmt::format("{} instances run; {}: {}", status["summary"].string(), group["instanceGroupName"].string(), group["message"].string_or("starting")));
  return phase == "InService" ? Readiness{State::Ready, status["summary"].string() + " instances run"} : waiting(phase);
}

Readiness pod_readiness(const Json& pod) {
  const std::string& phase = pod["status"]["phase"].string();
  if (phase == "Succeeded") return {State::Ready, "completed"};
  if (phase == "Failed") return {State::Refused, pod["status"]["message"].string_or("it failed")};
  if (kube::condition_is_true(pod, "Ready")) return {State::Ready, "on " + pod["spec"]["nodeName"].string()};
  for (const char* list : {"initContainerStatuses", "containerStatuses"})
    for (const auto& status : pod["status"][list].items())
      if (const std::string& reason = status["state"]["waiting"]["reason"].string(); !reason.empty())
        return waiting(fmt::format("{}: {}", status["name"].string(), status["state"]["waiting"]["message"].string_or(reason)));
  if (const Json* scheduled = kube::find_condition(pod, "PodScheduled"); scheduled && (*scheduled)["status"].string() == "False") return waiting((*scheduled)["message"].string());
  return waiting(phase.empty() ? "pending" : phase == "Running" ? "not ready yet" : "starting");
}

}  // namespace

Readiness readiness_of(const Json& object, const Json& node) {
  const std::string& kind = object["kind"].string();
  if (kube::deleting(object)) return waiting("being deleted");
  if (kind == "Machine") return machine_readiness(object, node);
  if (kind == "Cluster") return groups_readiness(object);
  if (kind == "SlurmCluster") return cluster_readiness(object);
  if (kind == "Pod") return pod_readiness(object);
  if (kind == "PersistentVolumeClaim") {
    const std::string phase = object["status"]["phase"].string_or("Pending");
    return phase == "Bound" ? Readiness{State::Ready, "bound"} : waiting(phase);
  }
  if (kind == "CustomResourceDefinition") return kube::condition_is_true(object, "Established") ? Readiness{State::Ready, ""} : waiting("not established yet");
  return {};
}

}  // namespace fairlead::cli
