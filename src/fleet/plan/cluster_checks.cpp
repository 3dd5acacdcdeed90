// SPDX-License-Identifier: Apache-2.0
// Deep health checks (docs/design/058): of a machine before it is in use, and when somebody asks for one, which waits until its work has ended. A machine that fails runs nothing.
#include "api/instance_types.h"
#include "fleet/plan/cluster_planner.h"

namespace fairlead::fleet {

namespace {
constexpr const char* kTaintValue = "Unschedulable";
bool is_check_taint(const kube::Json& taint) { return taint["key"].string() == api::kHealthLabel && taint["value"].string() == kTaintValue; }
}  // namespace

namespace planner {

Json without_check_taint(Json node) {
  Json taints = Json::array();
  const auto& before = node["spec"]["taints"].items();
  for (const Json& taint : before)
    if (!is_check_taint(taint)) taints.push(taint);
  if (taints.items().size() == before.size()) return node;
  if (taints.items().empty()) node.child("spec").erase("taints");
  else node.child("spec").set("taints", std::move(taints));
  return node;
}

namespace {

bool has_check_taint(const Json& node) {
  const auto& taints = node["spec"]["taints"].items();
  return std::any_of(taints.begin(), taints.end(), is_check_taint);
}

Json with_check_taint(Json node) {
  if (has_check_taint(node)) return node;
  Json all = node["spec"]["taints"].is_array() ? node["spec"]["taints"] : Json::array();
  all.push(Json::object({{"key", api::kHealthLabel}, {"value", kTaintValue}, {"effect", "NoSchedule"}}));
  node.child("spec").set("taints", std::move(all));
  return node;
}

void note(One& one, const std::string& id, const char* stage, Instant now, std::string message = {}) {
  const Json before = one.status["healthCheck"];
  Json told = Json::object({{"id", id}, {"stage", stage}, {"at", print_time(now)}});
  // A request that came to an end is not asked for again; and what had failed stays shut until it has passed.
  const std::string& last = before["id"].string();
  if (!last.empty() && last != id && !last.starts_with("start")) told.set("answered", last);
  else if (before.has("answered")) told.set("answered", before["answered"]);
  if (stage == std::string_view("Emptying") && before["stage"].string() == "Failed") told.set("failed", true);
  if (!message.empty()) told.set("message", std::move(message));
  one.status.set("healthCheck", std::move(told));
}

}  // namespace

bool Planner::empties_for_check(One& one, const Json& node) {
  const Instance& value = one.value;
  const Json record = one.status["healthCheck"];
  if (value.health_check.empty() || record["answered"].string() == value.health_check || (record["id"].string() == value.health_check && record["stage"].string() != "Emptying")) return false;
  // One after the other; and one that is not in use yet is checked as soon as it is prepared.
  if (!value.replace.empty() || value.updating() || is_to_reboot(value) || (!value.ran && record["stage"].string() != "Failed")) return false;
  one.phase = "DeepHealthCheckInProgress";
  if (record["id"].string() != value.health_check) {
    note(one, value.health_check, "Emptying", now_);
    one.message = "is to be checked";
    look_again(std::chrono::seconds(1));
    return true;
  }
  if (!is_ready(node)) {
    one.message = "is to be checked; its machine is not ready";
    look_again(std::chrono::seconds(10));
    return true;
  }
  if (runs_script(one)) {
    one.message = "is to be checked when its script has ended";
    look_again(std::chrono::seconds(2));
    return true;
  }
  if (closed_for(one, node) && emptied(one, true)) {
    note(one, value.health_check, "Checking", now_);
    look_again(std::chrono::seconds(1));
  }
  one.message = one.message.empty() ? "is to be checked" : "is to be checked; " + one.message;
  return true;
}

std::optional<Json> Planner::told_of_check(const One& one, const Json& node) const {
  const Json& record = one.status["healthCheck"];
  const std::string& stage = record["stage"].string();
  const std::string& told = node["metadata"]["labels"][api::kDeepCheckLabel].string();
  Json out;
  const auto say = [&](const char* status, const char* health) {
    Json& labels = out.child("metadata").child("labels");
    labels.set(api::kDeepCheckLabel, status);
    labels.set(api::kHealthLabel, health);
  };
  if (stage == "Checking" || (checked_on_start(one) && stage.empty())) {
    out = with_check_taint(node);
    // What somebody asked for by the label is done afterwards.
    const std::string& asked = node["metadata"]["labels"][api::kHealthLabel].string();
    say("InProgress", recovery_of(asked) == RecoveryAsked::None ? kTaintValue : asked.c_str());
  } else if (stage == "Passed" && (told == "InProgress" || has_check_taint(node))) {
    out = without_check_taint(node);
    const std::string& asked = node["metadata"]["labels"][api::kHealthLabel].string();
    say("Passed", recovery_of(asked) == RecoveryAsked::None ? "Schedulable" : asked.c_str());
  } else if (stage == "Failed" && told == "InProgress") {
    // By this label it is replaced, where nodes are to be (cluster_health.cpp). One that was never in use goes by itself.
    const InstanceGroup* group = cluster_.group(one.value.group);
    const bool replaced = one.value.ran && cluster_.recovers && group != nullptr && (!slurm_ || group->node_type == SlurmNodeType::Compute);
    out = with_check_taint(node);
    say("Failed", replaced ? "UnschedulablePendingReplacement" : kTaintValue);
  } else {
    return std::nullopt;
  }
  if (out == node) return std::nullopt;
  return out;
}

void Planner::run_check(One& one, const Json& node) {
  const Instance& value = one.value;
  const Json record = one.status["healthCheck"];
  const std::string id = !record["stage"].string().empty() ? record["id"].string() : value.software_id.empty() ? "start" : "start-" + value.software_id;
  if (record["stage"].string() == "Failed") {
    const auto again = tries_again_at(one);
    return fail_instance(one, fmt::format("deep health check: {}{}", record["message"].string(), again ? fmt::format(" (another machine is taken at {})", print_time(*again)) : ""));
  }
  one.phase = "DeepHealthCheckInProgress";
  if (record["stage"].string().empty()) {
    note(one, id, "Checking", now_);
    one.message = "its deep health check begins";
    return look_again(std::chrono::seconds(1));
  }
  const auto failed = [&](std::string why) {
    note(one, id, "Failed", now_, why);
    one.message = why;
    look_again(std::chrono::seconds(1));
  };
  const api::InstanceType* type = api::find_instance_type(value.type);
  const int gpus = type == nullptr ? 0 : type->gpus;
  if (const Json& offered = node["status"]["allocatable"][api::kGpuResource]; gpus > std::atoll(offered.string().c_str())) {
    // Whoever tells of GPUs comes after the node does, also after each boot. Nothing told is no fault; too few for long is.
    constexpr std::chrono::minutes kGpusCome{10};
    const auto since = parse_time(record["at"].string());
    if (!offered.is_null() && since && now_ - *since >= kGpusCome) return failed(fmt::format("{} has {} GPUs; its node offers {}", value.type, gpus, offered.string()));
    one.message = fmt::format("its deep health check waits for GPUs: {} has {}, its node offers {}", value.type, gpus, offered.string_or("none yet"));
    return look_again(std::chrono::seconds(10));
  }
  const std::string pod_name = check_pod_name(value.id);
  if (const Json* pod = script_pod_named(pod_name); pod != nullptr) {
    if (!is_script_of(*pod, *one.object) || (*pod)["spec"]["nodeName"].string() != value.node) {
      one.message = fmt::format("its deep health check waits: pod {} is not its own; delete it", kube::key_of(*pod).text());
      return look_again(std::chrono::seconds(15));
    }
    if (kube::deleting(*pod) || (*pod)["metadata"]["annotations"][kCheckRequest].string() != id) {
      one.message = "its deep health check waits for the pod of before to go";
      if (!kube::deleting(*pod)) add(Verb::Delete, resources::pods, *pod, "it is checked again");
      return look_again(std::chrono::seconds(2));
    }
    ScriptEnd end = end_of_script(*pod);
    // Only this is a word of the machine (gpl/deep_check.h): what could not be tried says nothing of it.
    constexpr int kFault = 10;
    if (end.kind == ScriptEnd::Kind::Failed && end.exit_code != kFault) end.kind = ScriptEnd::Kind::Lost;
    switch (end.kind) {
      case ScriptEnd::Kind::Going: ++scripts_going_[value.group]; [[fallthrough]];  // it has its own limit
      case ScriptEnd::Kind::Waiting: one.message = fmt::format("deep health check: {} (kubectl logs -n {} {})", end.message, cluster_.space, pod_name); return;
      case ScriptEnd::Kind::Succeeded:
        note(one, id, "Passed", now_, end.message);
        one.message = "it has passed its deep health check";
        return look_again(std::chrono::seconds(1));
      case ScriptEnd::Kind::Failed: return failed(end.message);
      case ScriptEnd::Kind::Lost: {
        // Again after 10, 20, ... 300 seconds.
        const std::int64_t lost = record["lost"].integer();
        const Instant next = parse_time(record["at"].string()).value_or(now_) + std::min<std::chrono::seconds>(std::chrono::minutes(5), std::chrono::seconds(10) * (1 << std::clamp<std::int64_t>(lost - 1, 0, 10)));
        one.message = fmt::format("deep health check: {}; it is made again", end.message);
        if (record["pod"].string() != kube::uid_of(*pod)) {
          Json& told = one.status.child("healthCheck");
          told.set("lost", lost + 1).set("at", print_time(now_)).set("pod", kube::uid_of(*pod));
          return look_again(std::chrono::seconds(10));
        }
        if (now_ >= next) add(Verb::Delete, resources::pods, *pod, "what became of the check is not known");
        return look_again(now_ >= next ? std::chrono::nanoseconds(std::chrono::seconds(2)) : std::chrono::nanoseconds(next - now_));
      }
    }
  }
  if (in_.space.is_null() || kube::deleting(in_.space)) {
    one.message = fmt::format("its deep health check waits for namespace {}", cluster_.space);
    return;
  }
  // One may have come since it was emptied.
  if (!id.starts_with("start") && !(closed_for(one, node) && emptied(one, true))) {
    one.message = "its deep health check waits" + (one.message.empty() ? "" : ": " + one.message);
    return look_again(std::chrono::seconds(2));
  }
  add(Verb::Create, resources::pods, check_pod(cluster_, value, id, *one.object, gpus, options_.scripts), fmt::format("deep health check of {}", value.node));
  last().if_live = value.id;
  last().live_node = value.node;
  if (!id.starts_with("start")) last().if_empty = value.node;
  one.message = "its deep health check begins";
}

}  // namespace planner

}  // namespace fairlead::fleet
