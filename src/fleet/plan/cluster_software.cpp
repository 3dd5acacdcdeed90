// SPDX-License-Identifier: Apache-2.0
// UpdateClusterSoftware (docs/design/052): batch after batch of a group is emptied, its machines are made anew where they are ours, and prepared again. One that fails ends it: what was not touched stays as it is; where alarms watch it, that or an alarm takes all back (docs/design/065).
#include "fleet/plan/cluster_planner.h"

namespace fairlead::fleet::planner {

Planner::Updated Planner::update_of(const One& one, Instant began, std::string& why) {
  const Instance& value = one.value;
  if (value.software_id != cluster_.software.id || value.software_stage.empty()) {
    // Made since then, or to be replaced, which comes to the same.
    if (!value.replace.empty() || made_since(one, began)) return Updated::Yes;
    // So is what has no machine yet, and what comes in place of one that has failed.
    if (value.node.empty() || value.phase == "Failure") return Updated::Yes;
    return value.phase == "Running" && !is_to_reboot(value) && !value.updating() ? Updated::Due : Updated::Waits;
  }
  return value.software_stage == "Done" ? Updated::Yes : under_way(one, why);
}

Planner::Updated Planner::under_way(const One& one, std::string& why) {
  const Instance& value = one.value;
  const Instant turned = parse_time(status_["softwareUpdate"]["rollbackBegan"].string()).value_or(Instant());
  const auto failing = parse_time(one.status["phaseSince"].string());
  const auto at = parse_time(one.status["software"]["at"].string());
  // What it failed with onwards is behind it, and has not been prepared anew yet.
  const bool behind = goes_back() && failing && (*failing <= turned || (value.software_stage == "Emptying" && at && *failing <= *at));
  if (value.phase == "Failure" && !behind) {
    why = value.message;
    return Updated::Failed;
  }
  Instant since = std::max(at ? static_cast<Instant>(*at) : now_, turned);
  for (const ScriptStage stage : kStages)
    if (const auto ran = parse_time(script_record(one, stage)["at"].string())) since = std::max(since, static_cast<Instant>(*ran));
  if (value.software_stage != "Emptying" && !runs_script(one)) {
    if (now_ >= since + options_.patience) {
      why = fmt::format("it does not run {} minutes after it was emptied: {}", options_.patience.count() / 60, value.message);
      return Updated::Failed;
    }
    look_again(since + options_.patience - now_);
  }
  return Updated::UnderWay;
}

// ---- back to what was there before (docs/design/065)

Planner::Updated Planner::rollback_of(const One& one, Instant began, std::string& why) {
  const Instance& value = one.value;
  if (!value.replace.empty()) return Updated::Yes;  // what comes in its place is prepared as before
  if (value.software_id == cluster_.software.back_id()) return value.software_stage == "Done" ? Updated::Yes : under_way(one, why);
  const bool touched = value.software_id == cluster_.software.id && value.updating() && value.software_stage != "Emptying";
  const bool updated = value.software_id == cluster_.software.id && value.software_stage == "Done";
  // What is only being emptied is let go. What has no machine yet is prepared as before.
  if (!touched && !updated && (!prepared_since(one, began) || value.node.empty())) return Updated::Yes;
  if (touched && (value.software_stage == "Renewing" || !value.scripts || is_of_before(one))) return under_way(one, why);
  if (is_of_before(one) || (!touched && !value.ran && !value.scripts)) return Updated::Yes;
  // Whatever its new software keeps it from, it need not run to go back.
  return is_to_reboot(value) || runs_script(one) || (value.ran && value.phase == "DeepHealthCheckInProgress") ? Updated::Waits : Updated::Due;
}

bool Planner::made_since(const One& one, Instant began) {
  const auto made = parse_time((*one.object)["metadata"]["creationTimestamp"].string());
  return made && *made >= began;
}

// Of one that the update has not come to: by what was there since then.
bool Planner::prepared_since(const One& one, Instant began) {
  if (made_since(one, began) || (!one.value.ran && one.value.scripts)) return true;
  const auto since = [&](const Json& when) {
    const auto at = parse_time(when.string());
    return at && *at >= began;
  };
  return since(one.status["runningSince"]) || std::any_of(std::begin(kStages), std::end(kStages), [&](ScriptStage stage) { return since(script_record(one, stage)["at"]); });
}

namespace {

const Json* of_group_in(const Json& list, const std::string& group) {
  for (const Json& one : list.items())
    if (one["instanceGroupName"].string() == group) return &one;
  return nullptr;
}
// Of the files that its scripts were among; empty: none ran, or not all of them were among the same.
std::string sum_of(const Json& lifecycle) {
  std::string out;
  for (const ScriptStage stage : kStages) {
    const std::string& sum = lifecycle[field_of(stage)]["sum"].string();
    if (!out.empty() && !sum.empty() && sum != out) return "";
    if (!sum.empty()) out = sum;
  }
  return out;
}
Json without_sum(const Json& config) {
  Json out = config.is_object() ? config : Json::object();
  out.erase("sum");
  return out;
}

}  // namespace

Json Planner::own_lifecycle(const std::string& group) const {
  const Json spec = api::spec_in_force(object_);
  const Json* found = of_group_in(spec["instanceGroups"], group);
  return found != nullptr && (*found)["lifeCycleConfig"].is_object() ? (*found)["lifeCycleConfig"] : Json::object();
}

std::optional<Json> Planner::prepared_by(const InstanceGroup& group) const {
  std::map<std::string, int> counts;
  std::optional<Json> out;
  bool unknown = false;
  int most = 0;
  for (const One& one : of_group(group.name)) {
    if (!one.value.ran || one.leaves || one.value.deleting) continue;
    const Json& lifecycle = one.status["lifecycle"];
    Json config = without_sum(lifecycle["config"]);
    if (const std::string sum = sum_of(lifecycle); !sum.empty()) config.set("sum", sum);
    if (api::read_lifecycle(config).any() && !config.has("sum")) {
      unknown = true;
    } else if (const int count = ++counts[kube::print_json(config)]; count > most) {
      most = count;
      out = std::move(config);
    }
  }
  if (out || unknown) return out ? out : Json();
  // Nobody runs: what would come now.
  const Json* pin = of_group_in(status_["scripts"], group.name);
  return pin == nullptr ? std::nullopt : std::optional((*pin)["lifeCycleConfig"]);
}

bool Planner::is_of_before(const One& one) const {
  const Json* pin = of_group_in(status_["scripts"], one.value.group);
  if (pin == nullptr) return true;  // there is nothing to go back to
  const Json &wanted = (*pin)["lifeCycleConfig"], &has = one.status["lifecycle"]["config"];
  if (has == wanted) return true;
  if (without_sum(has) != without_sum(wanted)) return false;
  // By files that lay there when it was prepared: all of its scripts, and none is due.
  return one.value.ran && sum_of(one.status["lifecycle"]) == wanted["sum"].string();
}

// A configuration that people have changed since, or that is gone, takes its pin along; not one of a change that may be taken back yet.
void Planner::drop_pins() {
  if (status_["scripts"].is_null() || (!cluster_.continuous && (taken_back_ || status_["good"]["generation"].integer(-1) != cluster_.generation))) return;
  Json pins = Json::array();
  for (const Json& pin : status_["scripts"].items())
    if (cluster_.group(pin["instanceGroupName"].string()) != nullptr && pin["insteadOf"] == own_lifecycle(pin["instanceGroupName"].string())) pins.push(pin);
  if (pins.items().empty()) status_.erase("scripts");
  else if (pins != status_["scripts"]) status_.set("scripts", std::move(pins));
}

std::string Planner::alarmed(bool& fires) {
  using State = api::Alarm::State;
  std::string out;
  for (const std::string& name : cluster_.software.alarms) {
    const auto found = in_.alarms.find(name);
    const api::Alarm alarm = found == in_.alarms.end() ? api::Alarm{.state = State::Unknown, .message = "it was not looked at yet"} : found->second;
    if (alarm.state == State::Ok) continue;
    fires = alarm.state == State::Firing;
    const char* const what = fires ? "fires" : alarm.state == State::Pending ? "is about to fire" : alarm.state == State::Missing ? "is not there" : "is not known to be well";
    if (fires || out.empty()) out = fmt::format("alarm {} {}{}{}", name, what, alarm.message.empty() ? "" : ": ", alarm.message);
    if (fires) break;
  }
  return out;
}

void Planner::roll_back(const std::string& reason) {
  Json& told = status_.child("softwareUpdate");
  std::string others;
  Json pins = Json::array();
  const Json before = told["before"];
  for (const Json& pin : status_["scripts"].items())
    if (of_group_in(before, pin["instanceGroupName"].string()) == nullptr) pins.push(pin);
  for (const Json& was : before.items()) {
    const std::string& group = was["instanceGroupName"].string();
    Json own = own_lifecycle(group);
    if (cluster_.group(group) == nullptr) continue;
    if (own != was["own"]) others += fmt::format("{} group {}", others.empty() ? "" : ",", group);  // what people asked for since counts
    else if (own != was["lifeCycleConfig"]) pins.push(Json::object({{"instanceGroupName", group}, {"lifeCycleConfig", was["lifeCycleConfig"]}, {"insteadOf", std::move(own)}}));
  }
  told.set("phase", "RollbackInProgress").set("rollbackBegan", print_time(now_)).set("reason", others.empty() ? reason : fmt::format("{} (not{}: its lifeCycleConfig has been changed since)", reason, others));
  told.erase("message");
  for (Json& group : told.child("instanceGroups").items())
    if (cluster_.software.of(group["instanceGroupName"].string())) group.set("status", "RollbackInProgress");
  if (pins.items().empty()) status_.erase("scripts");
  else status_.set("scripts", std::move(pins));
  // By what this round still takes for theirs nothing more is begun.
  for (const One& one : mine_)
    if (cluster_.software.of(one.value.group)) held_.insert(one.value.id);
  look_again(std::chrono::seconds(1));
}

void Planner::note_software(One& one, const char* stage) {
  const Json before = one.status["software"];
  const bool same = before["id"].string() == update_id() || stage != std::string_view("Emptying");
  Json next = Json::object({{"id", stage == std::string_view("Emptying") ? update_id() : before["id"].string()}, {"stage", stage}, {"at", print_time(now_)}});
  for (const char* const kept : {"machine", "node", "updated", "before"})
    if (before.has(kept)) next.set(kept, before[kept]);
  if (!same && before.has("id")) next.set("before", before["id"]);
  if (stage == std::string_view("Done")) next.set("updated", print_time(now_));
  one.status.set("software", std::move(next));
}

void Planner::end_update(const char* phase, const std::string& message) {
  Json& told = status_.child("softwareUpdate");
  told.set("phase", phase).set("ended", print_time(now_));
  if (message.empty()) told.erase("message");
  else told.set("message", message);
  for (Json& group : told.child("instanceGroups").items())
    if (const std::string& status = group["status"].string(); status == "InProgress" || status == "Pending" || status == "RollbackInProgress") group.set("status", phase);
}

Json Planner::with_other_groups(Json groups) const {
  for (const Json& before : status_["softwareUpdate"]["instanceGroups"].items())
    if (!cluster_.software.of(before["instanceGroupName"].string()) && cluster_.group(before["instanceGroupName"].string()) != nullptr) groups.push(before);
  return groups;
}

// Of an update that is taken back: groups of which it has touched nothing are prepared as before it.
void Planner::lay_pins_back() {
  const Json told = status_["softwareUpdate"];
  if (told["phase"].string() != "InProgress" || told["lifted"].items().empty()) return;
  Json pins = status_["scripts"].is_array() ? status_["scripts"] : Json::array();
  for (const Json& pin : told["lifted"].items()) {
    const std::string& group = pin["instanceGroupName"].string();
    const bool touched = std::any_of(mine_.begin(), mine_.end(), [&](const One& one) { return one.value.group == group && one.value.software_id == told["id"].string(); });
    if (!touched && of_group_in(pins, group) == nullptr) pins.push(pin);
  }
  if (!pins.items().empty()) status_.set("scripts", std::move(pins));
  status_.child("softwareUpdate").erase("lifted");
}

bool Planner::begins_update() {
  const api::SoftwareUpdate& asked = cluster_.software;
  const Json& told = status_["softwareUpdate"];
  if (told["id"].string() == asked.id) return false;
  if (rolls_out()) {
    lay_pins_back();
    end_update("Failed", "it was taken back");
    return true;
  }
  Json earlier = Json::array();
  for (const Json& id : told["earlier"].items()) earlier.push(id);
  // What an older spec asked for is behind us.
  if (asked.id.empty() || std::any_of(earlier.items().begin(), earlier.items().end(), [&](const Json& id) { return id.string() == asked.id; })) return true;
  if (const std::string& last = told["id"].string(); !last.empty()) earlier.push(last);
  constexpr std::size_t kept = 20;
  if (earlier.items().size() > kept) earlier.items().erase(earlier.items().begin());
  Json groups = Json::array(), before = Json::array(), pins = Json::array();
  std::string unknown;
  for (const InstanceGroup& group : cluster_.groups) {
    if (!asked.of(group.name)) continue;
    groups.push(Json::object({{"instanceGroupName", group.name}, {"status", served_ ? "Pending" : "Succeeded"}, {"updated", 0}, {"of", group.target}}));
    std::optional<Json> config = asked.alarms.empty() ? std::nullopt : prepared_by(group);
    if (!config) continue;
    if (config->is_null()) unknown = group.name;
    else before.push(Json::object({{"instanceGroupName", group.name}, {"lifeCycleConfig", std::move(*config)}, {"own", own_lifecycle(group.name)}}));
  }
  // From now on they are prepared by what is there.
  Json lifted = Json::array();
  for (const Json& pin : status_["scripts"].items()) (asked.of(pin["instanceGroupName"].string()) ? lifted : pins).push(pin);
  Json begun = Json::object({{"id", asked.id}, {"phase", served_ ? "InProgress" : "Succeeded"}, {"began", print_time(now_)}, {"instanceGroups", with_other_groups(std::move(groups))}});  // one that is made yet is made with it
  if (!earlier.items().empty()) begun.set("earlier", std::move(earlier));
  if (!before.items().empty()) begun.set("before", std::move(before));
  if (!lifted.items().empty()) begun.set("lifted", std::move(lifted));
  status_.set("softwareUpdate", std::move(begun));
  if (!unknown.empty()) {
    end_update("Failed", fmt::format("by what machines of group {} were prepared is not known, so there is nothing to go back to: ask for the update without AutoRollbackConfiguration", unknown));
    return true;
  }
  if (pins.items().empty()) status_.erase("scripts");
  else status_.set("scripts", std::move(pins));
  look_again(std::chrono::seconds(1));
  return true;
}

void Planner::roll_out() {
  const api::SoftwareUpdate& asked = cluster_.software;
  drop_pins();
  if (begins_update() || !rolls_out()) return;
  const Instant began = parse_time(status_["softwareUpdate"]["began"].string()).value_or(now_);
  const bool back = goes_back();
  std::string alarm;  // why no further batch begins
  if (!back && !asked.alarms.empty()) {
    bool fires = false;
    alarm = alarmed(fires);
    if (fires) return roll_back(alarm);
    look_again(std::chrono::seconds(10));  // nobody tells of alarms
  }
  // A change of the spec comes first, and may be taken back.
  if (!cluster_.continuous && (taken_back_ ? !status_["failed"]["done"].boolean() : status_["good"]["generation"].integer(-1) != cluster_.generation)) return;
  const char *const under = back ? "RollbackInProgress" : "InProgress", *const good = back ? "RollbackComplete" : "Succeeded";
  Json groups = Json::array();
  std::string failure, waits_for;
  bool all = true, heads_done = true;
  Instant last_of_all = began;
  // Who leads first, alone: where that goes wrong, nothing else is touched.
  for (const bool heads : {true, false})
    for (const InstanceGroup& group : cluster_.groups) {
      if (!asked.of(group.name) || (slurm_ && group.node_type == SlurmNodeType::Controller) != heads) continue;
      const Numbers& numbers = numbers_.at(group.name);
      int of = 0, updated = 0, going = 0;
      bool failed = false;
      Instant last = began;
      std::vector<One*> due;
      for (One& one : mine_) {
        if (one.value.group != group.name || one.leaves || one.value.deleting || !numbers.live(one.value.number)) continue;
        ++of;
        std::string why;
        switch (back ? rollback_of(one, began, why) : update_of(one, began, why)) {
          case Updated::Yes:
            ++updated;
            if (const auto at = parse_time(one.status["software"]["updated"].string()); at && one.value.software_id == update_id()) last = std::max(last, static_cast<Instant>(*at));
            break;
          case Updated::UnderWay: ++going; break;
          case Updated::Failed:
            failed = true;
            if (failure.empty()) failure = fmt::format("instance {} of group {}: {}", one.value.id, group.name, why);
            break;
          case Updated::Due:
            due.push_back(&one);
            if (back) held_.insert(one.value.id);
            break;
          case Updated::Waits:
            if (waits_for.empty()) waits_for = fmt::format("waits for instance {} of group {}{}{}", one.value.id, group.name, one.value.message.empty() ? "" : ": ", one.value.message);
            break;
        }
      }
      const bool done = updated == of;  // where alarms watch it, it has succeeded only with all others, and a while later
      all = all && done;
      last_of_all = std::max(last_of_all, last);
      if (failure.empty() && going == 0 && !due.empty() && (heads || heads_done)) {
        if (!back && updated > 0 && now_ < last + asked.wait) {
          look_again(last + asked.wait - now_);
        } else if (alarm.empty()) {
          due.resize(std::min<std::size_t>(due.size(), static_cast<std::size_t>(heads ? 1 : (back ? asked.back_batch : asked.batch).of(of))));
          for (One* one : due) note_software(*one, "Emptying");
          going = static_cast<int>(due.size());
        }
      }
      heads_done = heads_done && (done || !heads);
      groups.push(Json::object({{"instanceGroupName", group.name}, {"status", failed ? "Failed" : done && (back || asked.alarms.empty()) ? good : back || updated + going > 0 ? under : "Pending"}, {"updated", updated}, {"of", of}}));
    }
  Json& told = status_.child("softwareUpdate").set("instanceGroups", with_other_groups(std::move(groups)));
  if (!alarm.empty()) waits_for = alarm + "; no further batch begins until that is over";
  if (waits_for.empty()) told.erase("message");
  else told.set("message", waits_for);
  if (!failure.empty()) return back || asked.alarms.empty() ? end_update("Failed", failure + (back ? "; the rollback ends here" : "; instances that were not updated yet stay as they are")) : roll_back(failure);
  if (!all) return;
  if (back) return end_update("RollbackComplete", std::string(told["reason"].string()));
  // Of what the last batch brought alarms speak later, too.
  if (!asked.alarms.empty() && now_ < last_of_all + asked.wait) return look_again(last_of_all + asked.wait - now_);
  if (alarm.empty()) end_update("Succeeded", "");
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
  if (emptying && (value.software_id != update_id() || !rolls_out())) {  // another failed, or it was taken back: nothing was done to this one
    Json& software = one.status.child("software");
    if (!value.ran && software.has("before")) software.set("id", Json(software["before"])).set("stage", "Preparing");  // of an update that had begun with it
    else if (software.has("updated")) software.set("id", software["before"].string_or(software["id"].string())).set("stage", "Done");
    else one.status.erase("software");
    return false;
  }
  const bool goes = value.made && machine != nullptr && options_.makes_machines;
  if (emptying && !goes && (node == nullptr || owner_of(*node) != value.id)) return false;  // keep() tells what is wrong
  const bool silent = (goes || !emptying) && is_silent(node);  // one that stays is prepared when it answers, and not before
  const auto empty = [&] { return silent || owner_of(*node) != value.id || (closed_for(one, *node) && emptied(one, true)); };
  if (emptying) {
    if (!empty()) {
      one.message = (goes_back() ? "its software is to be that of before" : "its software is to be updated") + (one.message.empty() ? "" : "; " + one.message);
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
