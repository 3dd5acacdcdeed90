// SPDX-License-Identifier: Apache-2.0
// UpdateClusterSoftware (docs/design/052): batch after batch of a group is emptied, its machines are made anew where they are ours, and prepared again. One that fails ends it: what was not touched stays as it is.
#include "fleet/plan/cluster_planner.h"

namespace fairlead::fleet::planner {

Planner::Updated Planner::update_of(const One& one, Instant began, std::string& why) {
  const Instance& value = one.value;
  if (value.software_id != cluster_.software.id || value.software_stage.empty()) {
    // Made since then, or to be replaced, which comes to the same.
    const auto made = parse_time((*one.object)["metadata"]["creationTimestamp"].string());
    if (!value.replace.empty() || (made && *made >= began)) return Updated::Yes;
    // So is what has no machine yet, and what comes in place of one that has failed.
    if (value.node.empty() || value.phase == "Failure") return Updated::Yes;
    return value.phase == "Running" && !is_to_reboot(value) && !value.updating() ? Updated::Due : Updated::Waits;
  }
  if (value.software_stage == "Done") return Updated::Yes;
  if (value.phase == "Failure") {
    why = value.message;
    return Updated::Failed;
  }
  Instant since = parse_time(one.status["software"]["at"].string()).value_or(now_);
  for (const ScriptStage stage : kStages)
    if (const auto at = parse_time(script_record(one, stage)["at"].string())) since = std::max(since, static_cast<Instant>(*at));
  if (value.software_stage != "Emptying" && !runs_script(one)) {
    if (now_ >= since + options_.patience) {
      why = fmt::format("it does not run {} minutes after it was emptied: {}", options_.patience.count() / 60, value.message);
      return Updated::Failed;
    }
    look_again(since + options_.patience - now_);
  }
  return Updated::UnderWay;
}

void Planner::note_software(One& one, const char* stage) {
  const Json before = one.status["software"];
  const bool same = before["id"].string() == cluster_.software.id || stage != std::string_view("Emptying");
  Json next = Json::object({{"id", stage == std::string_view("Emptying") ? cluster_.software.id : before["id"].string()}, {"stage", stage}, {"at", print_time(now_)}});
  for (const char* const kept : {"machine", "node", "updated", "before"})
    if (before.has(kept)) next.set(kept, before[kept]);
  if (!same && before.has("id")) next.set("before", before["id"]);
  if (stage == std::string_view("Done")) next.set("updated", print_time(now_));
  one.status.set("software", std::move(next));
}

void Planner::roll_out() {
  const api::SoftwareUpdate& asked = cluster_.software;
  const auto end = [&](const char* phase, const std::string& message) {
    Json& told = status_.child("softwareUpdate");
    told.set("phase", phase).set("ended", print_time(now_));
    if (message.empty()) told.erase("message");
    else told.set("message", message);
    for (Json& group : told.child("instanceGroups").items())
      if (group["status"].string() == "InProgress" || group["status"].string() == "Pending") group.set("status", phase);
  };
  // What became of other groups, the last time that they were.
  const auto with_others = [&](Json groups) {
    for (const Json& before : status_["softwareUpdate"]["instanceGroups"].items())
      if (!asked.of(before["instanceGroupName"].string()) && cluster_.group(before["instanceGroupName"].string()) != nullptr) groups.push(before);
    return groups;
  };
  if (const Json& told = status_["softwareUpdate"]; told["id"].string() != asked.id) {
    if (rolls_out()) return end("Failed", "it was taken back");
    Json earlier = Json::array();
    for (const Json& id : told["earlier"].items()) earlier.push(id);
    // What an older spec asked for is behind us.
    if (asked.id.empty() || std::any_of(earlier.items().begin(), earlier.items().end(), [&](const Json& id) { return id.string() == asked.id; })) return;
    if (const std::string& last = told["id"].string(); !last.empty()) earlier.push(last);
    constexpr std::size_t kept = 20;
    if (earlier.items().size() > kept) earlier.items().erase(earlier.items().begin());
    Json groups = Json::array();
    for (const InstanceGroup& group : cluster_.groups)
      if (asked.of(group.name)) groups.push(Json::object({{"instanceGroupName", group.name}, {"status", served_ ? "Pending" : "Succeeded"}, {"updated", 0}, {"of", group.target}}));
    Json begun = Json::object({{"id", asked.id}, {"phase", served_ ? "InProgress" : "Succeeded"}, {"began", print_time(now_)}, {"instanceGroups", with_others(std::move(groups))}});  // one that is made yet is made with it
    if (!earlier.items().empty()) begun.set("earlier", std::move(earlier));
    status_.set("softwareUpdate", std::move(begun));
    return look_again(std::chrono::seconds(1));
  }
  if (!rolls_out()) return;
  // A change of the spec comes first, and may be taken back.
  if (!cluster_.continuous && (taken_back_ ? !status_["failed"]["done"].boolean() : status_["good"]["generation"].integer(-1) != cluster_.generation)) return;
  const Instant began = parse_time(status_["softwareUpdate"]["began"].string()).value_or(now_);
  Json groups = Json::array();
  std::string failure, waits_for;
  bool all = true, heads_done = true;
  // Who leads first, alone: where that goes wrong, nothing else is touched.
  for (const bool heads : {true, false})
    for (const InstanceGroup& group : cluster_.groups) {
      if (!asked.of(group.name) || (slurm_ && group.node_type == SlurmNodeType::Controller) != heads) continue;
      const Numbers& numbers = numbers_.at(group.name);
      int of = 0, updated = 0, under_way = 0;
      bool failed = false;
      Instant last = began;
      std::vector<One*> due;
      for (One& one : mine_) {
        if (one.value.group != group.name || one.leaves || one.value.deleting || !numbers.live(one.value.number)) continue;
        ++of;
        std::string why;
        switch (update_of(one, began, why)) {
          case Updated::Yes:
            ++updated;
            if (const auto at = parse_time(one.status["software"]["updated"].string()); at && one.value.software_id == asked.id) last = std::max(last, static_cast<Instant>(*at));
            break;
          case Updated::UnderWay: ++under_way; break;
          case Updated::Failed:
            failed = true;
            if (failure.empty()) failure = fmt::format("instance {} of group {}: {}", one.value.id, group.name, why);
            break;
          case Updated::Due: due.push_back(&one); break;
          case Updated::Waits:
            if (waits_for.empty()) waits_for = fmt::format("waits for instance {} of group {}{}{}", one.value.id, group.name, one.value.message.empty() ? "" : ": ", one.value.message);
            break;
        }
      }
      const bool done = updated == of;
      all = all && done;
      if (failure.empty() && under_way == 0 && !due.empty() && (heads || heads_done)) {
        if (updated > 0 && now_ < last + asked.wait) {
          look_again(last + asked.wait - now_);
        } else {
          due.resize(std::min<std::size_t>(due.size(), static_cast<std::size_t>(heads ? 1 : asked.batch_of(of))));
          for (One* one : due) note_software(*one, "Emptying");
          under_way = static_cast<int>(due.size());
        }
      }
      heads_done = heads_done && (done || !heads);
      groups.push(Json::object({{"instanceGroupName", group.name}, {"status", failed ? "Failed" : done ? "Succeeded" : updated + under_way > 0 ? "InProgress" : "Pending"}, {"updated", updated}, {"of", of}}));
    }
  groups = with_others(std::move(groups));
  Json& told = status_.child("softwareUpdate").set("instanceGroups", std::move(groups));
  if (waits_for.empty()) told.erase("message");
  else told.set("message", waits_for);
  if (!failure.empty()) return end("Failed", failure + "; instances that were not updated yet stay as they are");
  if (all) end("Succeeded", "");
}

void Planner::prepare_again(One& one) {
  for (const char* const field : {"lifecycle", "runningSince", "slurmNode", "address", "address6"}) one.status.erase(field);
  if (const Json before = one.status["healthCheck"]; !before.is_null()) {
    const std::string& last = before["id"].string();
    const std::string answered = last.starts_with("start") ? before["answered"].string() : last;
    if (answered.empty()) one.status.erase("healthCheck");
    else one.status.set("healthCheck", Json::object({{"answered", answered}}));
  }
  note_software(one, "Preparing");
  look_again(std::chrono::seconds(1));
}

bool Planner::renews(One& one, const Json* node, const Json* machine) {
  const Instance& value = one.value;
  const bool emptying = value.software_stage == "Emptying";
  if (!emptying && value.software_stage != "Renewing") return false;
  if (emptying && (value.software_id != cluster_.software.id || !rolls_out())) {  // another failed, or it was taken back: nothing was done to this one
    Json& software = one.status.child("software");
    if (software.has("updated")) software.set("id", software["before"].string_or(software["id"].string())).set("stage", "Done");
    else one.status.erase("software");
    return false;
  }
  const bool goes = value.made && machine != nullptr && options_.makes_machines;
  if (emptying && !goes && (node == nullptr || owner_of(*node) != value.id)) return false;  // keep() tells what is wrong
  const bool silent = (goes || !emptying) && is_silent(node);  // one that stays is prepared when it answers, and not before
  const auto empty = [&] { return silent || owner_of(*node) != value.id || (closed_for(one, *node) && emptied(one, true)); };
  if (emptying) {
    if (!empty()) {
      one.message = "its software is to be updated" + (one.message.empty() ? "" : "; " + one.message);
    } else if (goes) {
      note_software(one, "Renewing");
      Json& software = one.status.child("software").set("machine", kube::uid_of(*machine));
      if (node != nullptr) software.set("node", kube::uid_of(*node));
      one.message = "its machine is made anew";
    } else {
      prepare_again(one);
      one.message = "is prepared again";
    }
    return true;
  }
  one.message = "its machine is made anew";
  if (machine == nullptr || kube::uid_of(*machine) != (*one.object)["status"]["software"]["machine"].string()) {
    prepare_again(one);
  } else if (!kube::deleting(*machine) && empty()) {
    add(Verb::Delete, resources::machines, *machine, fmt::format("the software of {} is updated", value.id));
    guard(value.node, silent && node != nullptr);
  }
  return true;
}

}  // namespace fairlead::fleet::planner
