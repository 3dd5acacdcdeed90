// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/cluster_planner.h"

namespace fairlead::fleet::planner {

void Planner::count_numbers() {
  for (const InstanceGroup& group : cluster_.groups) {
    Numbers numbers{.issued = group.issued, .retired = group.retired};
    numbers_[group.name] = numbers;  // what is decided now is acted on when it is stored
    if (const int lacking = group.target - numbers.size(); lacking > 0) numbers.issued += lacking;
    if (int beyond = numbers.size() - group.target; beyond > 0) {
      const auto there = by_number(group.name);
      const auto of_it = std::count_if(in_.pods.begin(), in_.pods.end(), [&](const Json& pod) { return counts(pod, group); });
      const bool settled = !slurm_ || of_it <= group.target;
      const auto kept = placed_.find(group.name);  // where a plan is not in force: an instance that waits to replace another is not all that its number has
      const auto busy = [&](int number) {
        const auto mine = of_group(group.name);
        return std::any_of(mine.begin(), mine.end(), [&](const One& one) { return one.value.number == number && !one.value.node.empty() && in_use(one.value.node, group); });
      };
      std::vector<std::pair<int, int>> candidates;  // rank, and the greatest number first
      for (int number = 1; number <= numbers.issued; ++number) {
        if (!numbers.live(number)) continue;
        const auto found = there.find(number);
        const bool placed = (found != there.end() && !found->second->value.node.empty()) || (kept != placed_.end() && kept->second.contains(number));
        if (!placed) candidates.emplace_back(found == there.end() ? 0 : 1, -number);
        else if (settled && (!slurm_ || !busy(number))) candidates.emplace_back(2, -number);
      }
      std::sort(candidates.begin(), candidates.end());
      for (const auto& [rank, number] : candidates) {
        if (beyond-- == 0) break;
        numbers.retired.add(-number);
      }
    }
    if (const auto back = wanted_back_.find(group.name); back != wanted_back_.end())
      for (const int number : back->second) numbers.retired.add(number);
    next_[group.name] = std::move(numbers);
  }
}

Json Planner::new_instance(const InstanceGroup& group, int number, int attempt, const std::string& replaces) const {
  const std::string id = api::instance_id_of(cluster_.uid, group.name, number, attempt), logical = api::logical_id_of(cluster_.uid, group.name, number);
  Json out = Json::object({{"apiVersion", api::kInstances.api_version()}, {"kind", api::kInstances.kind},
                       {"metadata", Json::object({{"name", id}, {"labels", Json::object({{api::kClusterLabel, cluster_.name}, {api::kLogicalIdLabel, logical}})}, {"finalizers", Json::array({Json(api::kInstanceFinalizer)})}, {"ownerReferences", Json::array({kube::owner_reference(object_)})}})},
                       {"spec", Json::object({{"cluster", cluster_.name}, {"clusterUid", cluster_.uid}, {"instanceGroupName", group.name}, {"number", number}, {"attempt", attempt}, {"nodeLogicalId", logical}, {"instanceType", group.type}})}});
  if (!replaces.empty()) out.child("spec").set("replaces", replaces);
  return out;
}

void Planner::make_instances() {
  for (const InstanceGroup& group : cluster_.groups) {
    const Numbers& numbers = numbers_.at(group.name);
    const auto there = by_number(group.name);
    for (int number = 1; number <= numbers.issued; ++number) {
      if (!numbers.live(number)) continue;
      const auto found = there.find(number);
      if (found == there.end()) add(Verb::Create, api::kInstances, new_instance(group, number, 1, ""), "a node is asked for");
      else if (const Instance& last = found->second->value; last.deleting) add(Verb::Create, api::kInstances, new_instance(group, number, last.attempt + 1, last.replace), last.id + " was deleted");
      else if (!last.replace.empty()) add(Verb::Create, api::kInstances, new_instance(group, number, last.attempt + 1, last.replace), last.id + " is to be replaced");
    }
  }
}

void Planner::mark_leaving() {
  for (One& one : mine_) {
    const InstanceGroup* group = cluster_.group(one.value.group);
    if (group == nullptr || !numbers_.at(group->name).live(one.value.number)) {
      one.leaves = true;
      continue;
    }
    // A machine on which a script failed is half made: it goes, and the next one tries again.
    if (const auto at = tries_again_at(one); at && !one.value.deleting) {
      if (now_ >= *at) {
        one.leaves = true;
        continue;
      }
      look_again(*at - now_);
    }
    // Of the machines of one node the last that is there works, and those before it until then. They stand behind one another.
    const One* last = nullptr;
    for (const One* other = &one + 1; other != mine_.data() + mine_.size() && other->value.group == one.value.group && other->value.number == one.value.number; ++other) {
      last = other;
      const Json* node = node_of(other->value.node);
      one.leaves = one.leaves || (node != nullptr && is_ready(*node) && owner_of(*node) == other->value.id && !other->value.deleting && is_open(*other));
    }
    if (last != nullptr && !one.leaves && !one.value.deleting) one.message = fmt::format("is replaced by {} as soon as that one is there", last->value.id);
  }
}

void Planner::choose_machines() {
  std::vector<One*> waiting;
  for (const InstanceGroup& group : cluster_.groups)
    for (One& one : mine_)
      if (one.value.group == group.name && one.value.node.empty() && !one.leaves && !one.value.deleting) waiting.push_back(&one);
  if (waiting.empty()) return;
  std::map<std::pair<std::string, std::string>, std::vector<const Json*>> spares;  // by type, and the plan for which they are kept
  std::map<std::string, std::string> lies;
  std::map<std::string, int> busy, aside, kept;
  std::set<std::string> types;  // that are waited for
  for (const One* one : waiting) types.insert(one->value.type);
  for (const auto& [node_name, node] : in_.nodes) {
    const Json& labels = node["metadata"]["labels"];
    if (labels[api::kSpareLabel].string() != "true") continue;
    const std::string& type_name = labels[api::kInstanceTypeLabel].string();
    const api::InstanceType* type = api::find_instance_type(type_name);
    if (type == nullptr) continue;
    if (const std::string lie = why_not_of_type(*type, node); !lie.empty()) {
      lies.emplace(type_name, fmt::format("{}: {}", node_name, lie));
      continue;
    }
    // Whoever is no agent of ours takes what its own configuration says: it is put right before it comes, or does not come.
    if (const std::string crowd = slurm_ || api::is_run_by_agent(node) ? "" : why_too_many_pods(*type, node); !crowd.empty()) {
      lies.emplace(type_name, fmt::format("{}: {}", node_name, crowd));
      continue;
    }
    if (!node["metadata"]["labels"][kReplaced].is_null()) ++aside[type_name];
    if (promised_.contains(node_name) || !owner_of(node).empty() || !is_ready(node) || cordoned(node) || api::closed_by_taints(node) || kube::deleting(node) || !node["metadata"]["labels"][kReplaced].is_null()) {
      ++busy[type_name];
      continue;
    }
    if (const std::string left = what_is_left(node); !left.empty()) {
      if (types.contains(type_name)) release_what_is_left(node);
      lies.emplace(type_name, fmt::format("{}: {}", node_name, left));
      continue;
    }
    const std::string& kept_for = labels[api::kPlanLabel].string();
    if (!kept_for.empty()) ++kept[type_name];
    spares[{type_name, kept_for}].push_back(&node);
  }
  for (One* one : waiting) {
    const InstanceGroup& group = *cluster_.group(one->value.group);
    const std::string& plan = group.plan;
    auto& free = spares[{one->value.type, plan}];
    // A kubelet makes no volumes.
    const auto chosen = std::find_if(free.begin(), free.end(), [&](const Json* node) { return group.volume_gib == 0 || slurm_ || api::is_run_by_agent(*node); });
    if (const std::string& note = plan_note(one->value.group); !note.empty()) {
      one->message = note;
    } else if (chosen != free.end()) {
      settle_scripts(*one);
      one->status.set("node", kube::name_of(**chosen)).set("made", false);
      promised_.insert(kube::name_of(**chosen));
      free.erase(chosen);
    } else if (!free.empty() && !options_.makes_machines) {
      one->message = fmt::format("no machine of type {} is free that makes volumes (instanceStorageConfigs): hosts that joined do, nodes with a kubelet do not ({})", one->value.type, kube::name_of(*free.front()));
      without_machine_ = true;
    } else if (!plan.empty()) {
      one->message = fmt::format("no machine of type {} is free of those that training plan {} has: they are in use, not ready, or not there yet (kubectl get trainingplan {})", one->value.type, plan, plan);
      if (const auto lie = lies.find(one->value.type); lie != lies.end()) one->message += "; " + lie->second;
      without_machine_ = true;
    } else if (options_.makes_machines) {
      settle_scripts(*one);
      one->status.set("node", made_name(one->value)).set("made", true);
    } else {
      const auto lie = lies.find(one->value.type);
      const std::string set_aside = aside[one->value.type] == 0 ? "" : fmt::format("; of {} somebody is to take away the label {}", aside[one->value.type], kReplaced);
      one->message = lie != lies.end() ? fmt::format("no machine of type {} is free; {}", one->value.type, lie->second)
                                       : fmt::format("no machine of type {} is free ({} are in use or not ready{}); machines are taken whose Node has the labels {}=true and {}={}", one->value.type, busy[one->value.type], kept[one->value.type] == 0 ? "" : fmt::format(", {} are kept for training plans", kept[one->value.type]), api::kSpareLabel, api::kInstanceTypeLabel, one->value.type);
      one->message += set_aside;
      without_machine_ = true;
    }
  }
}

Json Planner::new_machine(const One& one) const {
  const api::InstanceType* type = api::find_instance_type(one.value.type);
  Json local = Json::object(), more = Json::object();
  for (const auto& [resource, amount] : api::capacity_of(*type)) (resource == "cpu" || resource == "memory" ? local : more).set(resource, amount);
  if (!slurm_) more.set("pods", std::to_string(api::most_pods(*type)));
  if (!more.members().empty()) local.set("resources", std::move(more));
  return Json::object({{"apiVersion", resources::machines.api_version()}, {"kind", resources::machines.kind},
                       {"metadata", Json::object({{"name", made_name(one.value)}, {"labels", Json::object({{api::kClusterLabel, cluster_.name}, {api::kInstanceLabel, one.value.id}})}, {"ownerReferences", Json::array({kube::owner_reference(*one.object)})}})},
                       {"spec", Json::object({{"local", std::move(local)}, {"labels", labels_for(one.value, is_open(one))}})}});
}

void Planner::count_sizes() {
  for (const InstanceGroup& group : cluster_.groups) {
    Sizes& sizes = sizes_[group.name];
    for (const Json& pod : in_.pods) sizes.pods += has_role(pod, group);
    if (group.node_type == SlurmNodeType::Controller) {
      sizes.wanted = sizes.now = group.target;
      continue;
    }
    const Numbers& numbers = numbers_.at(group.name);
    std::set<int> placed, unmarked;
    for (const One& one : of_group(group.name)) {
      if (one.value.node.empty()) continue;
      if (numbers.live(one.value.number)) {
        if (is_open(one) || one.value.updating() || one.value.ran) placed.insert(one.value.number);  // whose software is updated, or who is checked again, keeps its place
      } else if (const auto found = pods_on_.find(one.value.node); group.node_type == SlurmNodeType::Compute && found != pods_on_.end()) {
        // Fewer are asked for when Slurm knows which one is meant: else it would choose another.
        for (const Json* pod : found->second)
          if (holds_machine(*pod, cluster_.orchestrator) && has_role(*pod, group) && !kube::deleting(*pod) && !(*pod)["metadata"]["annotations"].has(api::kLeavesFirst)) unmarked.insert(one.value.number);
      }
    }
    sizes.wanted = std::min(group.target, static_cast<int>(placed.size()));
    sizes.now = sizes.wanted + static_cast<int>(unmarked.size());
  }
}

}  // namespace fairlead::fleet::planner
