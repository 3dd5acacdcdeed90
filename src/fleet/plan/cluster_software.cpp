// SPDX-License-Identifier: Apache-2.0
// UpdateClusterSoftware (docs/design/052): batch after batch of a group is emptied, its machines are made anew where they are ours, and prepared again. One that fails ends it: what was not touched stays as it is.
#include "fleet/plan/cluster_planner.h"

namespace fairlead::fleet::planner {

Planner::Updated Planner::update_of(const One& one, Instant began, std::string& why) const {
  const Instance& value = one.value;
  if (value.software_id != cluster_.software.id || value.software_stage.empty()) {
    // Made since then, or to be replaced, which comes to the same.
    const auto made = parse_time((*one.object)["metadata"]["creationTimestamp"].string());
    if (!value.replace.empty() || (made && *made >= began)) return Updated::Yes;
    const bool reboots = !value.reboot.empty() && (value.reboot != value.reboot_id || (value.reboot_stage != "Done" && value.reboot_stage != "Failed"));
    return value.phase == "Running" && !reboots && !value.updating() ? Updated::Due : Updated::Waits;
  }
  if (value.software_stage == "Done") return Updated::Yes;
  if (value.phase == "Failure") {
    why = value.message;
    return Updated::Failed;
  }
  Instant since = parse_time(one.status["software"]["at"].string()).value_or(now_);
  for (const ScriptStage stage : kStages)
    if (const auto at = parse_time(script_record(one, stage)["at"].string())) since = std::max(since, static_cast<Instant>(*at));
  if (value.software_stage == "Preparing" && now_ >= since + options_.patience && !runs_script(one)) {
    why = fmt::format("it does not run {} minutes after it was made anew: {}", options_.patience.count() / 60, value.message);
    return Updated::Failed;
  }
  return Updated::UnderWay;
}

void Planner::roll_out() {
  const api::SoftwareUpdate& asked = cluster_.software;
  const auto end = [&](const char* phase, const std::string& message) {
    Json& told = status_.child("softwareUpdate");
    told.set("phase", phase).set("ended", print_time(now_));
    if (!message.empty()) told.set("message", message);
  };
  if (const Json& told = status_["softwareUpdate"]; told["id"].string() != asked.id) {
    if (rolls_out()) return end("Failed", "it was taken back");
    if (asked.id.empty() || asked.id == told["previous"].string()) return;  // what an older spec asked for is behind us
    Json begun = Json::object({{"id", asked.id}, {"phase", served_ ? "InProgress" : "Succeeded"}, {"began", print_time(now_)}});  // one that is made yet is made with it
    if (const std::string& previous = told["id"].string(); !previous.empty()) begun.set("previous", previous);
    status_.set("softwareUpdate", std::move(begun));
    return look_again(std::chrono::seconds(1));
  }
  if (!rolls_out()) return;
  // A change of the spec comes first, and may be taken back.
  if (!cluster_.continuous && status_["good"]["generation"].integer(-1) != cluster_.generation) return;
  const Instant began = parse_time(status_["softwareUpdate"]["began"].string()).value_or(now_);
  Json groups = Json::array();
  std::string failure;
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
            if (const auto at = parse_time(one.status["software"]["at"].string()); at && one.value.software_id == asked.id) last = std::max(last, static_cast<Instant>(*at));
            break;
          case Updated::UnderWay: ++under_way; break;
          case Updated::Failed:
            failed = true;
            if (failure.empty()) failure = fmt::format("instance {} of group {}: {}", one.value.id, group.name, why);
            break;
          case Updated::Due: due.push_back(&one); break;
          case Updated::Waits: break;
        }
      }
      const bool done = updated == of;
      all = all && done;
      if (failure.empty() && under_way == 0 && !due.empty() && (heads || heads_done)) {
        if (updated > 0 && now_ < last + asked.wait) {
          look_again(last + asked.wait - now_);
        } else {
          due.resize(std::min<std::size_t>(due.size(), static_cast<std::size_t>(asked.batch_of(of))));
          for (One* one : due) one->status.set("software", Json::object({{"id", asked.id}, {"stage", "Emptying"}, {"at", print_time(now_)}}));
          under_way = static_cast<int>(due.size());
        }
      }
      heads_done = heads_done && (done || !heads);
      groups.push(Json::object({{"instanceGroupName", group.name}, {"status", failed ? "Failed" : done ? "Succeeded" : updated + under_way > 0 ? "InProgress" : "Pending"}, {"updated", updated}, {"of", of}}));
    }
  status_.child("softwareUpdate").set("instanceGroups", std::move(groups));
  if (!failure.empty()) {
    for (Json& group : status_.child("softwareUpdate").child("instanceGroups").items())
      if (group["status"].string() == "InProgress" || group["status"].string() == "Pending") group.set("status", "Failed");
    return end("Failed", failure + "; instances that were not updated yet stay as they are");
  }
  if (all) end("Succeeded", "");
}

void Planner::prepare_again(One& one) {
  for (const char* const field : {"lifecycle", "runningSince", "slurmNode", "address", "address6"}) one.status.erase(field);
  one.status.set("software", Json::object({{"id", one.value.software_id}, {"stage", "Preparing"}, {"at", print_time(now_)}}));
  look_again(std::chrono::seconds(1));
}

bool Planner::renews(One& one, const Json* node, const Json* machine) {
  const Instance& value = one.value;
  const bool emptying = value.software_stage == "Emptying";
  if (!emptying && value.software_stage != "Renewing") return false;
  if (emptying && (value.software_id != cluster_.software.id || !rolls_out())) {  // another failed, or it was taken back: nothing was done to this one
    one.status.erase("software");
    return false;
  }
  const bool silent = is_silent(node);
  const auto empty = [&] { return silent || owner_of(*node) != value.id || (closed_for(one, *node) && emptied(one, true)); };
  if (emptying) {
    if (!empty()) {
      one.message = "its software is to be updated" + (one.message.empty() ? "" : "; " + one.message);
    } else if (value.made && machine != nullptr) {
      one.status.set("software", Json::object({{"id", value.software_id}, {"stage", "Renewing"}, {"at", print_time(now_)}, {"machine", kube::uid_of(*machine)}}));
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
