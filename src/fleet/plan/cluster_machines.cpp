// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/cluster_planner.h"

#include "kube/pod_words.h"

namespace fairlead::fleet::planner {

bool Planner::settle_instances() {
  bool gone = true;
  for (One& one : mine_) {
    const bool leaving = one.leaves || one.value.deleting;
    if (leaving) {
      gone = false;
      one.phase = "ShuttingDown";
      if (one.leaves && !one.value.deleting) add(Verb::Delete, api::kInstances, *one.object, cluster_.deleting ? "the cluster is deleted" : "it is to go");
      else if (one.value.finalizer) let_go(one);
    } else {
      keep(one);
      if (one.phase == "Pending" && one.value.updating()) {
        one.phase = "SystemUpdating";
        ++updating_[one.value.group];
      }
    }
  }
  return gone;
}

void Planner::keep(One& one) {
  const Instance& value = one.value;
  one.phase = "Pending";
  if (value.node.empty()) return;
  const Json* node = node_of(value.node);
  const Json* machine = machine_of(value.node);
  if (renews(one, node, machine)) return;
  const bool again = value.software_stage == "Preparing";
  if (again && held_.contains(value.id)) {
    one.message = "is to be prepared as before";
    return;
  }
  // Of the machine that went.
  if (again && node != nullptr && kube::uid_of(*node) == (*one.object)["status"]["software"]["node"].string()) node = nullptr;
  if (value.made) {
    if (machine == nullptr) {
      if (options_.makes_machines) {
        add(Verb::Create, resources::machines, new_machine(one), fmt::format("{} of group {} has none", value.id, value.group));
        last().if_live = value.id;
      } else {
        one.message = "its machine is gone, and this server makes none";
      }
      if (again) return;
    } else if ((*machine)["status"]["phase"].string() == "Refused") {
      fail_instance(one, kube::find_condition(*machine, "Ready") != nullptr ? (*kube::find_condition(*machine, "Ready"))["message"].string() : "its machine was refused");
    }
  } else if (node == nullptr) {
    fail_instance(one, fmt::format("Node {} is gone: replace this instance", value.node));
    return;
  } else if (const std::string& owner = owner_of(*node); owner != value.id) {
    // Another was quicker, or it is kept for a plan by now. What has run on it is its own, whoever took the label away.
    if (const InstanceGroup* group = cluster_.group(value.group); !owner.empty() || (!value.ran && group != nullptr && !suits(*group, *node))) {
      if (owner.empty()) one.gives_up = value.node;
      for (const char* const field : {"node", "made", "lifecycle", "runningSince", "slurmNode", "address", "address6", "software"}) one.status.erase(field);
    } else {
      add(Verb::Update, resources::nodes, laid_over(*node, Json::object({{"metadata", Json::object({{"labels", labels_for(value, is_open(one))}})}})), fmt::format("it is {} of group {} now", value.id, value.group));
      last().if_live = value.id;
    }
    return;
  }
  if (node == nullptr) {
    if (one.message.empty()) one.message = "its machine is made";
    return;
  }
  const std::size_t steps = out_.steps.size();
  if (owner_of(*node) == value.id) recover(one, *node);
  const bool recovers = out_.steps.size() > steps;
  if (reboots(one, *node, machine) || empties_for_check(one, *node)) return;
  if (std::optional<Json> told = recovers ? std::nullopt : told_of_check(one, *node)) {
    add(Verb::Update, resources::nodes, std::move(*told), "its deep health check");
    last().if_live = value.id;
    return;
  }
  const bool open = is_open(one);
  const InstanceGroup* of = cluster_.group(value.group);
  Json dressed = !slurm_ && open && of != nullptr ? with_volume(with_most_pods(dress(*node, of->labels, of->taints, true), api::find_instance_type(value.type)), value.id, *of) : *node;
  settle_scripts(one);
  const bool fixed = value.ran || value.scripts.has_value();  // as it is stored
  if (!open && !slurm_) {
    if (!closed_for(one, *node)) return;  // any pod might come
  } else if (!open && (*node)["metadata"]["labels"].has(api::kGroupNameLabel)) {
    Json shut = *node;
    shut.child("metadata").child("labels").erase(api::kGroupNameLabel);
    add(Verb::Update, resources::nodes, std::move(shut), "what is due before Slurm is on it comes first");
    last().if_live = value.id;
    return;
  } else if (!fixed) {
    look_again(std::chrono::seconds(1));
  } else if (open && (*node)["metadata"]["labels"][api::kGroupNameLabel].string() != value.group) {
    add(Verb::Update, resources::nodes, laid_over(*node, Json::object({{"metadata", Json::object({{"labels", labels_for(value, true)}})}})), fmt::format("group {} may use it", value.group));
    last().if_live = value.id;
    last().live_node = value.node;
    last().stages = stages_of(one.status);
  } else if (dressed != *node) {
    add(Verb::Update, resources::nodes, std::move(dressed), fmt::format("labels and taints of group {}", value.group));
    last().if_live = value.id;
  } else if ((open || (!again && one.status["healthCheck"].is_null())) && cordoned(*node) && (*node)["metadata"]["annotations"][kCordonedBy].string() == value.id) {
    add(Verb::Update, resources::nodes, uncordoned(*node), "it is in use again");
    // By a view of before it was closed it would be opened under whoever works there.
    last().if_live = value.id;
    last().live_node = value.node;
    last().stages = stages_of(one.status);
  }
  tell_addresses(one, *node);
  if (!is_ready(*node)) {
    const Json* ready = kube::find_condition(*node, "Ready");
    one.message = ready == nullptr ? "its machine starts" : fmt::format("its machine is not ready: {}", (*ready)["message"].string());
    return;
  }
  // One that stayed where it is may have got something while it was silent.
  if (!open && again && !runs_script(one) && !(closed_for(one, *node) && emptied(one, true))) return;
  if (!open && lacks_volume(one)) return order_volume(one, *node);
  if (!open) return is_prepared(one) ? run_check(one, *node) : run_script(one, ScriptStage::OnCreate);
  if (!slurm_) {
    const api::InstanceType* type = api::find_instance_type(value.type);
    const std::string crowd = type == nullptr ? "" : why_too_many_pods(*type, *node);
    // One that is in use stays so: what it runs is not ended for that.
    if (!crowd.empty()) one.message = api::is_run_by_agent(*node) ? fmt::format("its agent is to take {} pods at most", api::most_pods(*type)) : crowd;
    if (one.message.empty()) one.message = volume_note(one, *node);
    if (crowd.empty() || value.ran) complete(one);
    return;
  }
  const InstanceGroup* group = cluster_.group(value.group);
  const auto found = pods_on_.find(value.node);
  const Json* pod = nullptr;
  if (found != pods_on_.end() && group != nullptr)
    for (const Json* candidate : found->second)
      if (has_role(*candidate, *group)) pod = candidate;
  if (pod == nullptr) {
    if (one.message.empty()) one.message = "its machine is ready; Slurm has nothing on it yet";
    return;
  }
  one.status.set("slurmNode", kube::name_of(*pod));
  const kube::PodWords words = kube::words_of_pod(*pod);
  for (const Json& ip : (*pod)["status"]["podIPs"].items()) one.status.set(ip["ip"].string().find(':') == std::string::npos ? "address" : "address6", ip["ip"]);
  if (!kube::deleting(*pod) && (*pod)["status"]["phase"].string() == "Running" && kube::condition_is_true(*pod, "Ready")) complete(one);
  else one.message = fmt::format("{} on it: {}", kube::name_of(*pod), words.status == "Running" ? "not ready yet" : words.status);
}

void Planner::fail_instance(One& one, std::string why) {
  one.phase = "Failure";
  one.message = why;
  // One that was there before this change began is not the change's.
  const auto made = parse_time((*one.object)["metadata"]["creationTimestamp"].string());
  const auto began = parse_time(status_["began"].string());
  if (made && began && *made < *began && status_["beganGeneration"].integer(-1) == cluster_.generation) ++old_failures_[one.value.group];
  else if (failure_.empty()) failure_ = fmt::format("instance {} of group {}: {}", one.value.id, one.value.group, why);
}

Json Planner::dress(Json node, const std::map<std::string, std::string>& labels, const Json& taints, bool in_use) {
  const auto before = kube::parse_json(node["metadata"]["annotations"][kDressed].string());
  // Not kept: a member that is added moves the others.
  const auto metadata = [&node]() -> Json& { return node.child("metadata"); };
  const auto id_of = [](const Json& taint) { return taint["key"].string() + ":" + taint["effect"].string(); };
  std::set<std::string> had;
  if (before) {
    for (const Json& label : (*before)["labels"].items())
      if (!labels.contains(label.string())) metadata().child("labels").erase(label.string());
    for (const Json& taint : (*before)["taints"].items()) had.insert(taint.string());
  }
  Json now_labels = Json::array(), now_taints = Json::array(), all = Json::array();
  for (const auto& [key, value] : labels) {
    metadata().child("labels").set(key, value);
    now_labels.push(key);
  }
  if (in_use && !node["metadata"]["labels"].has(api::kHealthLabel)) metadata().child("labels").set(api::kHealthLabel, "Schedulable");
  if (!in_use) metadata().child("labels").erase(api::kHealthLabel);
  std::set<std::string> wanted;
  for (const Json& taint : taints.items()) {
    wanted.insert(id_of(taint));
    now_taints.push(id_of(taint));
  }
  for (const Json& taint : node["spec"]["taints"].items())
    if (!had.contains(id_of(taint)) && !wanted.contains(id_of(taint))) all.push(taint);
  for (const Json& taint : taints.items()) all.push(taint);
  if (!all.items().empty()) node.child("spec").set("taints", std::move(all));
  else if (node["spec"].has("taints")) node.child("spec").erase("taints");
  if (!now_labels.items().empty() || !now_taints.items().empty()) metadata().child("annotations").set(kDressed, kube::print_json(Json::object({{"labels", std::move(now_labels)}, {"taints", std::move(now_taints)}})));
  else if (Json* annotations = metadata().find("annotations"); annotations != nullptr) annotations->erase(kDressed);
  return node;
}

Json Planner::with_most_pods(Json node, const api::InstanceType* type) {
  if (type != nullptr) node.child("metadata").child("annotations").set(api::kMaxPodsNote, std::to_string(api::most_pods(*type)));
  else if (Json* annotations = node.child("metadata").find("annotations"); annotations != nullptr) annotations->erase(api::kMaxPodsNote);
  return node;
}

std::string Planner::volume_note(const One& one, const Json& node) const {
  const InstanceGroup* group = cluster_.group(one.value.group);
  if (group == nullptr) return "";
  const api::VolumeState state = api::read_volume_state(node);
  if (const std::string other = api::volume_of_another(node, one.value.id); !other.empty()) return fmt::format("the volume of instance {} is to go from its machine first{}", other, state.failed.empty() ? "" : ": " + state.failed);
  if (slurm_ || group->volume_gib == 0) {
    // It could not look.
    return state.of.empty() && state.instance.empty() && !state.failed.empty() ? "whether its machine has somebody's volume is not known: " + state.failed : "";
  }
  const bool as_ordered = group->volume_key.empty() || state.pool;
  if (state.instance == one.value.id && state.gib >= group->volume_gib && as_ordered) return "";
  if (state.instance == one.value.id && state.gib > 0 && !as_ordered) return "its volume is a file of its machine, which no key encrypts: bring its agent to this version, then replace the instance";
  if (const std::string& trouble = node["metadata"]["annotations"][api::kVolumeTroubleNote].string(); !group->volume_key.empty() && !trouble.empty()) return fmt::format("its volume of {} GiB: {}", group->volume_gib, trouble);
  if (state.of == one.value.id && !state.failed.empty()) return fmt::format("its volume of {} GiB: {}", group->volume_gib, state.failed);
  return fmt::format("its volume of {} GiB is made", group->volume_gib);
}

bool Planner::lacks_volume(const One& one) const {
  const InstanceGroup* group = cluster_.group(one.value.group);
  if (group == nullptr || (one.value.ran && one.value.software_stage != "Preparing")) return false;
  const Json* node = node_of(one.value.node);
  return node == nullptr ? !slurm_ && group->volume_gib != 0 : !volume_note(one, *node).empty();
}

Json Planner::with_volume(Json node, const std::string& instance, const InstanceGroup& group) {
  if (group.volume_gib == 0) return node;
  api::VolumeOrder order{.instance = instance, .gib = group.volume_gib, .released = false, .pool = !group.volume_key.empty()};
  // Nothing shrinks, and what was begun in one way stays so.
  if (const auto before = api::parse_volume_order(node["metadata"]["annotations"][api::kVolumeNote].string()); before && before->instance == instance && !before->released) order.gib = std::max(before->gib, order.gib), order.pool = before->pool;
  node.child("metadata").child("annotations").set(api::kVolumeNote, api::print_volume_order(order));
  return node;
}

Json Planner::without_volume(Json node, const std::string& instance) {
  if (Json* annotations = node.child("metadata").find("annotations"); annotations != nullptr) annotations->erase(api::kVolumeTroubleNote);
  const auto before = api::parse_volume_order(node["metadata"]["annotations"][api::kVolumeNote].string());
  return before && before->instance == instance ? with_release(std::move(node), instance) : node;
}

Json Planner::with_release(Json node, const std::string& instance) {
  const api::VolumeOrder release{.instance = instance, .gib = 0, .released = true, .pool = false};
  // It becomes part of a path: what is no instance's id is not asked for.
  if (const std::string text = api::print_volume_order(release); api::parse_volume_order(text)) node.child("metadata").child("annotations").set(api::kVolumeNote, text);
  return node;
}

std::string Planner::what_is_left(const Json& node) {
  const api::VolumeState state = api::read_volume_state(node);
  if (const std::string other = api::volume_of_another(node, ""); !other.empty()) return fmt::format("the volume of instance {} is still on it{}", other, state.failed.empty() ? "" : ": " + state.failed);
  return state.of.empty() && !state.failed.empty() ? "whether somebody's volume is on it is not known: " + state.failed : "";
}

void Planner::release_what_is_left(const Json& node) {
  const std::string other = api::volume_of_another(node, "");
  if (other.empty() || std::any_of(in_.instances.begin(), in_.instances.end(), [&](const Json& one) { return kube::name_of(one) == other; })) return;
  Json released = with_release(node, other);
  if (released == node) return;
  add(Verb::Update, resources::nodes, std::move(released), fmt::format("{} is gone, and its volume is still on it", other));
  last().if_no_instance = other;
}

void Planner::order_volume(One& one, const Json& node) {
  one.message = volume_note(one, node);
  const InstanceGroup* group = cluster_.group(one.value.group);
  const std::string other = api::volume_of_another(node, one.value.id);
  if (other.empty() && (slurm_ || group->volume_gib == 0)) return;
  Json ordered = other.empty() ? with_volume(node, one.value.id, *group) : with_release(node, other);
  if (ordered == node) return;
  add(Verb::Update, resources::nodes, std::move(ordered), other.empty() ? fmt::format("a volume of {} GiB is to be on it", group->volume_gib) : fmt::format("the volume of {} is to go from it", other));
  last().if_live = one.value.id;
  last().live_node = one.value.node;
}

bool Planner::is_silent(const Json* node) {
  if (node == nullptr) return true;
  const auto since = silent_since(*node);
  if (!since) return false;
  if (now_ >= *since + options_.silent) return true;
  look_again(*since + options_.silent - now_);
  return false;
}

bool Planner::emptied(One& one, bool comes_back) {
  const auto found = pods_on_.find(one.value.node);
  if (found == pods_on_.end() || overdue_) return true;
  bool empty = true;
  const InstanceGroup* group = cluster_.group(one.value.group);
  for (const Json* pod : found->second) {
    if (!holds_machine(*pod, cluster_.orchestrator)) continue;
    empty = false;
    if (is_script(*pod)) {
      one.message = fmt::format("its script is to end first ({})", kube::name_of(*pod));
      look_again(std::chrono::seconds(2));
      if ((one.leaves || one.value.deleting) && !kube::deleting(*pod)) add(Verb::Delete, resources::pods, *pod, fmt::format("{} goes", one.value.id));
      continue;
    }
    if (!slurm_) {
      one.message = fmt::format("pod {} is to leave it first", kube::key_of(*pod).text());
      look_again(std::chrono::seconds(2));
      if (!kube::deleting(*pod)) add(Verb::Evict, resources::pods, *pod, fmt::format("{} goes", one.value.id));
      continue;
    }
    const bool worker = (*pod)["metadata"]["labels"][api::kSlurmRoleLabel].string() == "worker";
    one.message = fmt::format("{} is to leave it first{}", kube::name_of(*pod), worker ? fmt::format("; condition WorkersAvailable of SlurmCluster {} says what it waits for", cluster_.slurm_name) : "");
    if (kube::deleting(*pod) || cluster_.deleting || undone_) continue;
    if (!worker) {
      add(Verb::Delete, resources::pods, *pod, fmt::format("{} goes; what is still wanted is made again elsewhere", one.value.id));
    } else if (group != nullptr && has_role(*pod, *group)) {
      const Sizes& sizes = sizes_.at(group->name);
      mark(*pod, !comes_back && sizes.pods > sizes.wanted ? api::kLeavesFirst : comes_back && meets_when_empty(one) ? api::kMadeAnewTogether : api::kMadeAnew, one.value.id);
    }  // else its NodeSet goes as a whole
  }
  return empty;
}

void Planner::let_go(One& one) {
  const Instance& value = one.value;
  const auto forget = [&](const char* why) {
    Json without = *one.object;
    kube::remove_finalizer(without, api::kInstanceFinalizer);
    add(Verb::Update, api::kInstances, std::move(without), why);
    (value.made ? last().if_gone : last().if_not_of) = value.node;
    changes_.push_back({one.object, nullptr});
  };
  if (value.node.empty()) return forget("it never had a machine");
  const Json* node = node_of(value.node);
  const Json* machine = machine_of(value.node);
  const bool ours = node != nullptr && owner_of(*node) == value.id;
  const bool silent = is_silent(node);
  if (ours && !silent) {
    if (!closed_for(one, *node)) return;
    const bool comes_back = cluster_.group(value.group) != nullptr && numbers_.contains(value.group) && numbers_.at(value.group).live(value.number);
    if (!emptied(one, comes_back)) return;
  }
  if (value.made) {
    if (machine == nullptr) return forget("its machine is gone");
    if (kube::deleting(*machine)) {
      one.message = "its machine is taken down";
    } else {
      add(Verb::Delete, resources::machines, *machine, fmt::format("{} has left", value.id));
      guard(value.node, silent && node != nullptr);
    }
    return;
  }
  if (!ours) {
    // Registered anew, it knows of no order.
    if (node != nullptr && owner_of(*node).empty() && api::read_volume_state(*node).instance == value.id)
      if (Json released = with_release(*node, value.id); released != *node) return add(Verb::Update, resources::nodes, std::move(released), fmt::format("{} has left, and its volume is still on it", value.id));
    return forget("its machine is given back");
  }
  Json back = slurm_ ? *node : without_volume(with_most_pods(dress(*node, {}, Json::array(), false), nullptr), value.id);
  back = (*node)["metadata"]["annotations"][kCordonedBy].string() == value.id ? uncordoned(std::move(back)) : std::move(back);
  for (const char* const label : {api::kInstanceLabel, api::kClusterLabel, api::kClusterNameLabel, api::kGroupNameLabel, api::kComputeTypeLabel, api::kHealthLabel, api::kDeepCheckLabel}) back.child("metadata").child("labels").erase(label);
  if (Json* annotations = back.child("metadata").find("annotations"); annotations != nullptr) annotations->erase(kRecovery);
  back = without_check_taint(std::move(back));
  // Nor is one that fell silent, and may run what it ran.
  // Where a script's root was the machine itself, and it did not end well, it is half made.
  const bool own_root = !slurm_ && (machine == nullptr || !(*machine)["spec"]["local"].is_object());
  const bool half_made = own_root && !value.ran && value.scripts && value.scripts->any() && (failed_script(one) != nullptr || script_record(one, ScriptStage::OnCreate)["phase"].string() != "Succeeded");
  const bool faulty = value.check_stage == "Failed" || one.status["healthCheck"]["failed"].boolean();
  if (!value.replace.empty() || silent || half_made || faulty) back.child("metadata").child("labels").set(kReplaced, value.id);
  add(Verb::Update, resources::nodes, std::move(back), fmt::format("{} has left", value.id));
  guard(value.node, silent);
}

bool Planner::reboots(One& one, const Json& node, const Json* machine) {
  const Instance& value = one.value;
  if (!is_to_reboot(value)) return false;
  const auto stage = [&](const char* next, std::string message = {}) {
    Json told = Json::object({{"id", value.reboot}, {"stage", next}});
    if (!message.empty()) told.set("message", std::move(message));
    one.status.set("reboot", std::move(told));
  };
  if (value.reboot != value.reboot_id) {
    if (machine == nullptr) {
      stage("Failed", "this machine is not Fairlead's to reboot: do it by its own means");
      return false;
    }
    stage("Emptying");
    one.message = "is to be rebooted";
    return true;
  }
  // A controller's work is taken over or waits; people on a login node were asked for.
  const InstanceGroup* group = cluster_.group(value.group);
  const bool drains = group != nullptr && (!slurm_ || group->node_type == SlurmNodeType::Compute) && !is_silent(&node);
  if (runs_script(one)) {
    one.message = "is to be rebooted when its script has ended";
    look_again(std::chrono::seconds(2));
    return true;
  }
  if (value.reboot_stage == "Emptying") {
    if (!drains || (closed_for(one, node) && emptied(one, true))) stage("Rebooting");
    one.message = one.message.empty() ? "is to be rebooted" : "is to be rebooted; " + one.message;
    return true;
  }
  one.message = "is rebooted";
  if (machine == nullptr) {
    stage("Failed", "its machine is gone");
    return false;
  }
  const Json &asked = (*machine)["spec"]["reboot"], &told = (*machine)["status"]["reboot"];
  if (asked["id"].string() != value.reboot) {
    if (drains && !(closed_for(one, node) && emptied(one, true))) return true;  // one came meanwhile
    add(Verb::Update, resources::machines, laid_over(*machine, Json::object({{"spec", Json::object({{"reboot", Json::object({{"id", value.reboot}, {"by", fmt::format("cluster {}, instance {}", cluster_.title, value.id)}})}})}})), value.id + " is to be rebooted");
    if (group != nullptr && (!slurm_ || group->node_type == SlurmNodeType::Compute)) guard(value.node, !drains);
    return true;
  }
  if (told["id"].string() != value.reboot || told["phase"].string() == "Rebooting") {
    look_again(std::chrono::seconds(10));
    return true;
  }
  if (told["phase"].string() == "Refused") stage("Failed", told["message"].string());
  else stage("Done");
  return true;
}

}  // namespace fairlead::fleet::planner
