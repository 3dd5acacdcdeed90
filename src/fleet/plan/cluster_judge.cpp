// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/cluster_planner.h"
#include "fleet/plan/minimum.h"

namespace fairlead::fleet::planner {

void Planner::tell_validity(const std::string& wrong) {
  Json holder = Json::object({{"metadata", object_["metadata"]}, {"status", std::move(status_)}});
  kube::set_condition(holder, {"SpecValid", wrong.empty() ? "True" : "False", wrong.empty() ? "Valid" : "Refused", wrong}, now_);
  status_ = std::move(*holder.find("status"));
  status_.set("observedGeneration", cluster_.generation);
}

int Planner::running_of(const InstanceGroup& group) const {
  std::set<int> out;
  for (const One& one : of_group(group.name))
    if (one.phase == "Running" && numbers_.at(group.name).live(one.value.number)) out.insert(one.value.number);
  return static_cast<int>(out.size());
}

Json Planner::minimum_of(const InstanceGroup& group, const Json* before, int running) {
  // Without its controllers a cluster is none: they are waited for.
  if (!cluster_.continuous || (slurm_ && group.node_type == SlurmNodeType::Controller)) return Json();
  const int asked = asked_of(group.name), least = asked_least_.contains(group.name) ? asked_least_.at(group.name) : group.min;
  Json out = next_minimum(before == nullptr ? Json() : (*before)["minimum"], {.min = least, .target = asked, .running = running, .target_before = before == nullptr ? 0 : static_cast<int>((*before)["target"].integer()), .held = !plan_note(group.name).empty()}, now_, options_.minimum);
  if (out.has("since") && !out.has("rolledBack") && !out.has("held"))
    if (const Instant due = parse_time(out["since"].string()).value_or(now_) + options_.minimum; due > now_) look_again(due - now_);
  if (gives_up(out, least, asked)) look_again(std::chrono::seconds(1));
  return out;
}

std::optional<Json> Planner::without_given_up() const {
  Json spec = object_["spec"];
  bool any = false;
  for (Json& group : spec.child("instanceGroups").items()) {
    const Json* told = nullptr;
    for (const Json& one : object_["status"]["instanceGroups"].items())  // as it is stored: what was not told yet is not done
      if (one["instanceGroupName"] == group["instanceGroupName"]) told = &one["minimum"];
    const auto target = group["instanceCount"].integer(), least = group["minInstanceCount"].integer();
    if (told == nullptr || !gives_up(*told, static_cast<int>(least), static_cast<int>(target))) continue;
    group.set("instanceCount", (*told)["good"]).set("minInstanceCount", (*told)["goodMin"]);
    any = true;
  }
  // What could not be carried out would stop all of the cluster.
  return any && api::read_cluster(object_, spec).problems.empty() ? std::optional(std::move(spec)) : std::nullopt;
}

void Planner::judge() {
  bool complete = applied(), enough = applied(), settled = true, waits = false;
  int running_all = 0, target_all = 0;
  Json groups = Json::array();
  std::set<std::string> told;
  for (const InstanceGroup& group : cluster_.groups) {
    const int running = running_of(group), target = group.target;
    running_all += running, target_all += target;
    const bool full = running == target && numbers_.at(group.name).size() == target;
    const auto mine = of_group(group.name);
    const bool leaving = std::any_of(mine.begin(), mine.end(), [](const One& one) { return one.leaves || one.value.deleting; });
    const auto old = old_failures_.find(group.name);
    const bool as_before = numbers_.at(group.name).size() == target && running + (old == old_failures_.end() ? 0 : old->second) >= target;
    complete = complete && as_before && !leaving;
    settled = settled && numbers_.at(group.name).size() == target && !leaving;
    const auto count = [&](const std::map<std::string, int>& all) {
      const auto found = all.find(group.name);
      return found == all.end() ? 0 : found->second;
    };
    waits = waits || running + count(old_failures_) + std::max(count(scripts_going_), count(updating_)) < target;
    enough = enough && running >= (slurm_ && group.node_type == SlurmNodeType::Controller ? std::max(1, group.min) : group.min);
    const One* stuck = nullptr;
    for (const One& one : mine)
      if (!one.leaves && !one.value.deleting && one.phase != "Running" && (stuck == nullptr || rank(one) > rank(*stuck))) stuck = &one;
    Json entry = Json::object({{"instanceGroupName", group.name}, {"status", full && !leaving ? "InService" : !served_ ? "Creating" : stuck != nullptr && (stuck->phase == "Failure" || stuck->value.node.empty()) ? "Degraded" : "Updating"}, {"current", running}, {"target", target}, {"issued", next_.at(group.name).issued}});
    for (const Json& update : rolls_out() ? status_["softwareUpdate"]["instanceGroups"].items() : std::vector<Json>())
      if (update["instanceGroupName"].string() == group.name && (update["status"].string() == "InProgress" || update["status"].string() == "RollbackInProgress")) entry.set("status", "SystemUpdating");
    if (const std::string retired = next_.at(group.name).retired.text(); !retired.empty()) entry.set("retired", retired);
    if (stuck != nullptr && !stuck->message.empty()) entry.set("message", fmt::format("{}: {}", stuck->value.id, stuck->message));
    if (const std::string& note = plan_note(group.name); !note.empty()) {
      if (stuck == nullptr || stuck->message.empty() || stuck->message == note) entry.set("message", note);
      if (target < asked_of(group.name) && entry["status"].string() == "InService") entry.set("status", served_ ? "Degraded" : "Creating");
    }
    if (!group.plan.empty()) entry.set("reservation", plan_note(group.name).empty() ? "InForce" : "Missing");
    const Json* before = nullptr;
    for (const Json& one : status_["instanceGroups"].items())
      if (one["instanceGroupName"].string() == group.name) before = &one;
    if (const Json minimum = minimum_of(group, before, running); minimum.is_object()) {
      entry.set("minimum", minimum);
      if (!minimum["message"].string().empty() && !entry.has("message")) entry.set("message", minimum["message"]);
    }
    // By it one occurrence is told from the next.
    const bool same = before != nullptr && (*before)["status"] == entry["status"] && lacks_machines(*before) == lacks_machines(entry);
    entry.set("since", same && before->has("since") ? (*before)["since"].string() : print_time(now_));
    groups.push(std::move(entry));
    told.insert(group.name);
  }
  // Of a group that is gone the numbers are kept: no name comes back.
  for (const Json& before : status_["instanceGroups"].items()) {
    if (!told.insert(before["instanceGroupName"].string()).second) continue;
    const auto left = of_group(before["instanceGroupName"].string());
    complete = complete && left.empty(), settled = settled && left.empty();
    Json entry = before;
    NumberSet retired;
    retired.add(1, static_cast<int>(before["issued"].integer()));
    entry.set("status", left.empty() ? "Deleted" : "Deleting").set("current", 0).set("target", 0);
    if (retired.size() > 0) entry.set("retired", retired.text());
    entry.erase("message");
    groups.push(std::move(entry));
  }
  for (const One& one : mine_)
    if (!told.contains(one.value.group)) complete = settled = false;
  status_.set("instanceGroups", std::move(groups)).set("summary", fmt::format("{}/{}", running_all, target_all)).set("observedGeneration", cluster_.generation);
  status_.set("namespace", cluster_.space);
  if (const std::string& hash = in_.slurm["status"]["appliedConfigHash"].string(); slurm_ && applied() && hash != api::kNoConfig) status_.set("slurmConfigHash", in_.slurm["status"]["appliedConfigHash"]);
  std::string slurm_refuses;
  if (const Json* valid = in_.slurm.is_object() ? kube::find_condition(in_.slurm, "SpecValid") : nullptr; valid != nullptr && (*valid)["status"].string() == "False") slurm_refuses = "Slurm: " + (*valid)["message"].string();

  if (cluster_.continuous) {
    status_.set("mode", "Continuous");
    if (served_ || enough) {
      status_.set("served", true);
      tell("InService", slurm_refuses);
    } else {
      tell("Creating", slurm_refuses);
    }
    return;
  }
  const std::int64_t good = status_["good"]["generation"].integer(-1);
  if (complete) {
    const std::string kept = taken_back_ ? status_["failed"]["message"].string() : "";
    if (!taken_back_ && good != cluster_.generation) status_.set("good", Json::object({{"generation", cluster_.generation}, {"spec", object_["spec"]}}));
    status_.set("served", true);
    status_.erase("began");
    if (taken_back_) status_.child("failed").set("done", true);
    return tell("InService", kept);
  }
  // Nothing of the change is left; what had failed before it has failed since.
  if (taken_back_ && settled) status_.child("failed").set("done", true);
  if (taken_back_) return tell(status_["failed"]["done"].boolean() ? "InService" : "RollingBack", status_["failed"]["message"].string());
  if (good == cluster_.generation) return tell("InService", slurm_refuses);
  const Instant began = parse_time(status_["began"].string()).value_or(now_);
  Instant latest = began;  // what a script has taken is not waiting
  for (const One& one : mine_)
    for (const ScriptStage stage : kStages)
      if (const auto at = parse_time(script_record(one, stage)["at"].string())) latest = std::max(latest, static_cast<Instant>(*at));
  const bool same = status_["beganGeneration"].integer(-1) == cluster_.generation;
  if (!same) status_.set("began", print_time(now_)).set("beganGeneration", cluster_.generation);
  tell(served_ ? "Updating" : "Creating", "");
  if (!same) return look_again(options_.no_machine);
  std::string why = failure_.empty() ? slurm_refuses : failure_;
  if (why.empty() && without_machine_ && now_ >= began + options_.no_machine) {
    for (const One& one : mine_)
      if (why.empty() && one.value.node.empty() && !one.message.empty()) why = fmt::format("group {}: {}", one.value.group, one.message);
  } else if (why.empty() && waits && now_ >= latest + options_.patience) {  // jobs of what leaves may take their time
    why = fmt::format("not all instances ran within {} minutes", options_.patience.count() / 60);
    for (const One& one : mine_)
      if (!one.message.empty() && one.phase != "Running" && !one.leaves) {
        why += fmt::format("; {} of group {}: {}", one.value.id, one.value.group, one.message);
        break;
      }
  }
  if (!why.empty()) {
    status_.set("failed", Json::object({{"generation", cluster_.generation}, {"message", why}, {"at", print_time(now_)}}));
    return tell("RollingBack", why);
  }
  const Instant next = without_machine_ && now_ < began + options_.no_machine ? began + options_.no_machine : latest + options_.patience;
  if (next > now_) look_again(next - now_);
}

}  // namespace fairlead::fleet::planner
