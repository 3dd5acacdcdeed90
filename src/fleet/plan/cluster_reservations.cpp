// SPDX-License-Identifier: Apache-2.0
// What a training plan means to a group: which machines are for it, and how many nodes it has while its plan is not in force.
#include "fleet/plan/cluster_planner.h"

namespace fairlead::fleet::planner {

const std::string& Planner::plan_note(const std::string& group) const {
  static const std::string none;
  const auto found = plan_notes_.find(group);
  return found == plan_notes_.end() ? none : found->second;
}

int Planner::asked_of(const std::string& group) const {
  if (const auto found = asked_.find(group); found != asked_.end()) return found->second;
  const InstanceGroup* there = cluster_.group(group);
  return there == nullptr ? 0 : there->target;
}

bool Planner::suits(const InstanceGroup& group, const Json& node) const {
  const std::string& kept_for = node["metadata"]["labels"][api::kPlanLabel].string();
  return group.plan.empty() ? kept_for.empty() : kept_for == group.plan && plan_note(group.name).empty();
}

std::string Planner::why_not_in_force(const InstanceGroup& group) {
  const auto found = in_.plans.find(group.plan);
  if (found == in_.plans.end()) return fmt::format("there is no training plan {}: what the group has stays, nothing is added", group.plan);
  const api::TrainingPlan& plan = found->second;
  switch (plan.phase(now_)) {
    case api::PlanPhase::Pending: return fmt::format("waits for training plan {}, which is not decided yet", group.plan);
    case api::PlanPhase::Failed: return fmt::format("training plan {} was refused: kubectl get trainingplan {} says why", group.plan, group.plan);
    case api::PlanPhase::Scheduled: look_again(plan.granted->window.start - now_); return fmt::format("waits for training plan {}, which begins at {}", group.plan, print_time(plan.granted->window.start));
    case api::PlanPhase::Expired: return fmt::format("training plan {} ended at {}: what the group has stays until another plan needs it, nothing is added", group.plan, print_time(plan.granted->window.end));
    case api::PlanPhase::Active: break;
  }
  if (plan.granted->type != group.type) return fmt::format("training plan {} has machines of type {}, the group wants {}", group.plan, plan.granted->type, group.type);
  look_again(plan.granted->window.end - now_);
  return "";
}

void Planner::limit_by_plans() {
  for (InstanceGroup& group : cluster_.groups) {
    std::string note = group.plan.empty() ? "" : why_not_in_force(group);
    // What is wanted back is kept for another plan by now; a mark that is left from before the group's own plan began means nothing.
    std::set<int> placed, back;
    for (const One& one : of_group(group.name)) {
      const Instance& value = one.value;
      if (value.node.empty() || value.number > group.issued || group.retired.contains(value.number)) continue;
      placed.insert(value.number);
      const Json* node = node_of(value.node);
      if (value.deleting || node == nullptr || owner_of(*node) != value.id || (*node)["metadata"]["annotations"][api::kWantedBack].string() != value.id) continue;
      const std::string& kept_for = (*node)["metadata"]["labels"][api::kPlanLabel].string();
      if (group.node_type != SlurmNodeType::Controller && !kept_for.empty() && (kept_for != group.plan || !note.empty())) back.insert(value.number);
    }
    // The numbers of machines that are wanted back are retired as by BatchDelete: emptied, jobs end as the rules say, then given back. Until that is stored they count, else Slurm would be told of fewer workers without a word of which.
    if (!back.empty()) wanted_back_[group.name] = back;
    if (note.empty()) continue;
    asked_[group.name] = group.target;
    asked_least_[group.name] = group.min;
    // Numbers that were given out wait, where each node waits for itself (BatchAdd has told of them); where all comes or nothing, none is waited for. One whose instance goes counts until it has gone: then its number is the one without a machine, and no other goes for it.
    group.target = std::min(group.target, cluster_.continuous ? group.live() : static_cast<int>(placed.size()));
    group.min = std::min(group.min, static_cast<int>(placed.size()));
    placed_[group.name] = std::move(placed);
    plan_notes_[group.name] = std::move(note);
  }
}

}  // namespace fairlead::fleet::planner
