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

Json names_of(const api::DeepChecks& checks) {
  Json out = Json::array();
  if (checks.stress) out.push("InstanceStress");
  if (checks.connectivity) out.push("InstanceConnectivity");
  return out;
}
bool asks_for(const Json& record, std::string_view check) {
  const auto& all = record["checks"].items();
  return std::any_of(all.begin(), all.end(), [&](const Json& one) { return one.string() == check; });
}

}  // namespace

void note_check(One& one, const std::string& id, const char* stage, Instant now, std::string message) {
  const Json before = one.status["healthCheck"];
  Json told = Json::object({{"id", id}, {"stage", stage}, {"at", print_time(now)}});
  // A request that came to an end is not asked for again; and what had failed stays shut until it has passed.
  const std::string& last = before["id"].string();
  if (!last.empty() && last != id && !last.starts_with("start")) told.set("answered", last);
  else if (before.has("answered")) told.set("answered", before["answered"]);
  if (stage == std::string_view("Emptying") && before["stage"].string() == "Failed") told.set("failed", true);
  // Others of its meeting are judged by what it told, too.
  if (const Json& meeting = before["meeting"]; last == id && meeting.has("tried")) told.set("meeting", Json::object({{"round", meeting["round"]}, {"tried", meeting["tried"]}}));
  if (!message.empty()) told.set("message", std::move(message));
  one.status.set("healthCheck", std::move(told));
}

bool Planner::empties_for_check(One& one, const Json& node) {
  const Instance& value = one.value;
  const Json record = one.status["healthCheck"];
  if (value.health_check.empty() || record["answered"].string() == value.health_check || (record["id"].string() == value.health_check && record["stage"].string() != "Emptying")) return false;
  // One after the other; and one that is not in use yet is checked as soon as it is prepared.
  if (!value.replace.empty() || value.updating() || is_to_reboot(value) || (!value.ran && record["stage"].string() != "Failed")) return false;
  one.phase = "DeepHealthCheckInProgress";
  if (record["id"].string() != value.health_check) {
    note_check(one, value.health_check, "Emptying", now_);
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
    note_check(one, value.health_check, "Checking", now_);
    one.status.child("healthCheck").set("checks", names_of(value.health_checks));
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
    note_check(one, id, "Checking", now_);
    if (const InstanceGroup* group = cluster_.group(value.group)) one.status.child("healthCheck").set("checks", names_of(group->checks_on_start));
    one.message = "its deep health check begins";
    return look_again(std::chrono::seconds(1));
  }
  const bool links = asks_for(record, "InstanceConnectivity");
  if (links && (record.has("meeting") || !asks_for(record, "InstanceStress"))) return meet(one, node);
  const auto failed = [&](std::string why) {
    note_check(one, id, "Failed", now_, why);
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
  const CheckPod check = look_at_check(one, check_pod_name(value.id), id);
  switch (check.kind) {
    case CheckPod::Kind::Waits: return;
    case CheckPod::Kind::Going: ++scripts_going_[value.group]; return;  // it has its own limit
    case CheckPod::Kind::Missing: return begin_check(one, node, [&] { return check_pod(cluster_, value, id, *one.object, gpus, options_.scripts); });
    case CheckPod::Kind::Fault: return failed(check.message);
    case CheckPod::Kind::Passed: break;
  }
  if (links) {
    one.status.child("healthCheck").set("message", check.message);
    return meet(one, node);
  }
  note_check(one, id, "Passed", now_, check.message);
  one.message = "it has passed its deep health check";
  look_again(std::chrono::seconds(1));
}

Planner::CheckPod Planner::look_at_check(One& one, const std::string& pod_name, const std::string& request) {
  const Json record = one.status["healthCheck"];
  const Json* pod = script_pod_named(pod_name);
  if (pod == nullptr) return {.kind = CheckPod::Kind::Missing};
  if (!is_script_of(*pod, *one.object) || (*pod)["spec"]["nodeName"].string() != one.value.node) {
    one.message = fmt::format("its deep health check waits: pod {} is not its own; delete it", kube::key_of(*pod).text());
    look_again(std::chrono::seconds(15));
    return {};
  }
  if (kube::deleting(*pod) || (*pod)["metadata"]["annotations"][kCheckRequest].string() != request) {
    one.message = "its deep health check waits for the pod of before to go";
    if (!kube::deleting(*pod)) add(Verb::Delete, resources::pods, *pod, "it is checked again");
    look_again(std::chrono::seconds(2));
    return {};
  }
  ScriptEnd end = end_of_script(*pod);
  // Only this is a word of the machine (gpl/deep_check.h): what could not be tried says nothing of it.
  constexpr int kFault = 10;
  if (end.kind == ScriptEnd::Kind::Failed && end.exit_code != kFault) end.kind = ScriptEnd::Kind::Lost;
  switch (end.kind) {
    case ScriptEnd::Kind::Waiting:
    case ScriptEnd::Kind::Going:
      one.message = fmt::format("deep health check: {} (kubectl logs -n {} {})", end.message, cluster_.space, pod_name);
      return {.kind = end.kind == ScriptEnd::Kind::Going ? CheckPod::Kind::Going : CheckPod::Kind::Waits, .pod = pod};
    case ScriptEnd::Kind::Succeeded: return {.kind = CheckPod::Kind::Passed, .message = end.message};
    case ScriptEnd::Kind::Failed: return {.kind = CheckPod::Kind::Fault, .message = end.message};
    case ScriptEnd::Kind::Lost: break;
  }
  // Again after 10, 20, ... 300 seconds.
  const std::int64_t lost = record["lost"].integer();
  const Instant next = parse_time(record["at"].string()).value_or(now_) + std::min<std::chrono::seconds>(std::chrono::minutes(5), std::chrono::seconds(10) * (1 << std::clamp<std::int64_t>(lost - 1, 0, 10)));
  one.message = fmt::format("deep health check: {}; it is made again", end.message);
  if (record["pod"].string() != kube::uid_of(*pod)) {
    Json& told = one.status.child("healthCheck");
    told.set("lost", lost + 1).set("at", print_time(now_)).set("pod", kube::uid_of(*pod));
    look_again(std::chrono::seconds(10));
    return {};
  }
  if (now_ >= next) add(Verb::Delete, resources::pods, *pod, "what became of the check is not known");
  look_again(now_ >= next ? std::chrono::nanoseconds(std::chrono::seconds(2)) : std::chrono::nanoseconds(next - now_));
  return {};
}

void Planner::begin_check(One& one, const Json& node, const std::function<Json()>& pod) {
  if (in_.space.is_null() || kube::deleting(in_.space)) {
    one.message = fmt::format("its deep health check waits for namespace {}", cluster_.space);
    return;
  }
  // One may have come since it was emptied.
  const bool asked = !one.status["healthCheck"]["id"].string().starts_with("start");
  if (asked && !(closed_for(one, node) && emptied(one, true))) {
    one.message = "its deep health check waits" + (one.message.empty() ? "" : ": " + one.message);
    return look_again(std::chrono::seconds(2));
  }
  add(Verb::Create, resources::pods, pod(), fmt::format("deep health check of {}", one.value.node));
  last().if_live = one.value.id;
  last().live_node = one.value.node;
  if (asked) last().if_empty = one.value.node;
  one.message = "its deep health check begins";
}

}  // namespace planner

}  // namespace fairlead::fleet
