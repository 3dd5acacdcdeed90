// SPDX-License-Identifier: Apache-2.0
// Pods that run together or not at all: those of a namespace with the same label kueue.x-k8s.io/pod-group-name.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <tuple>

#include "governance/plan/pod_steps.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using What = OwnerStep::What;
using namespace pod_steps;

constexpr std::size_t most_roles = 18;  // pod sets of a Workload

bool has_succeeded(const Json& pod) { return pod["status"]["phase"].string() == "Succeeded"; }
bool has_failed(const Json& pod) { return pod["status"]["phase"].string() == "Failed"; }

struct PodGroup {
  std::vector<const Json*> all;      // that have to do with the queue
  std::vector<const Json*> active;   // that may run, run, or have succeeded: whom to keep first
  std::int64_t total = 0, succeeded = 0;
  bool fast = false, serving = false, retriable = true;
  std::string problem;               // what of it cannot be read
};

std::int64_t count_of(const Json& pod) {
  const std::string& text = annotation(pod, kGroupCount);
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  return error == std::errc{} && end == text.data() + text.size() && count > 0 && count <= 1'000'000 ? count : 0;
}

PodGroup read_group(const PodsInput& in) {
  PodGroup group;
  for (const Json& pod : in.pods)
    if (is_queued_pod(pod)) group.all.push_back(&pod);
  const auto problem = [&](std::string text) {
    if (group.problem.empty()) group.problem = std::move(text);
  };
  const Json* first = nullptr;
  for (const Json* pod : group.all) {
    if (has_succeeded(*pod)) ++group.succeeded;
    if (annotation(*pod, kRetriable) == "false") group.retriable = false;
    if (has_failed(*pod) || (kube::deleting(*pod) && is_gated(*pod))) continue;
    group.active.push_back(pod);
    const std::int64_t count = count_of(*pod);
    if (count == 0) problem(fmt::format("metadata.annotations[{}] of pod {}: the number of pods of group {} is expected, there is \"{}\"", kGroupCount, kube::name_of(*pod), in.group, annotation(*pod, kGroupCount)));
    if (std::string text = topology_problem(*pod); !text.empty()) problem(fmt::format("pod {}: {}", kube::name_of(*pod), text));
    if (first == nullptr) {
      first = pod;
      group.total = count;
      group.fast = annotation(*pod, kGroupFast) == "true";
      group.serving = annotation(*pod, kGroupServing) == "true";
    } else if (count != group.total) {
      problem(fmt::format("pods {} and {} of group {} differ in {}: {} and {}", kube::name_of(*first), kube::name_of(*pod), in.group, kGroupCount, annotation(*first, kGroupCount), annotation(*pod, kGroupCount)));
    } else if (queue_of(*first) != queue_of(*pod)) {
      problem(fmt::format("pods {} and {} of group {} have different queues: {} and {}", kube::name_of(*first), kube::name_of(*pod), in.group, queue_of(*first), queue_of(*pod)));
    }
  }
  if (first == nullptr && !group.all.empty()) group.total = count_of(*group.all.front());
  std::stable_sort(group.active.begin(), group.active.end(), [](const Json* a, const Json* b) {
    const auto rank = [](const Json& pod) { return std::tuple<bool, bool, const std::string&, const std::string&>(!has_finalizer(pod), is_gated(pod), pod["metadata"]["creationTimestamp"].string(), kube::name_of(pod)); };
    return rank(*a) < rank(*b);
  });
  return group;
}

// One pod set for each role, in order of their names. What a pod asks is read of one that has no flavor yet, where there is one.
Json pod_sets_of(const PodGroup& group) {
  struct Role {
    const Json* pod = nullptr;
    std::int64_t count = 0;
  };
  std::map<std::string, Role> roles;
  for (const Json* pod : group.active) {
    Role& role = roles[group.fast && !roles.empty() ? roles.begin()->first : role_of(*pod)];
    ++role.count;
    if (role.pod == nullptr || (is_gated(*pod) && !is_gated(*role.pod))) role.pod = pod;
  }
  Json out = Json::array();
  for (const auto& [name, role] : roles) out.push(pod_set(*role.pod, name, group.fast ? group.total : role.count));
  return out;
}

Json owner_of_group(const Json& pod) { return Json::object({{"apiVersion", "v1"}, {"kind", "Pod"}, {"name", kube::name_of(pod)}, {"uid", kube::uid_of(pod)}}); }

Json group_workload(const PodsInput& in, const PodGroup& group) {
  Json owners = Json::array();
  for (const Json* pod : group.active) owners.push(owner_of_group(*pod));
  const Json& first = *group.active.front();
  Json out = new_workload({kube::space_of(first), in.group}, kube::uid_of(first), std::move(owners), queue_of(first), pod_sets_of(group), in.priority);
  out.child("metadata").child("annotations").set(kGroupWorkload, "true");
  return out;
}

// One more than there may be; nothing of it has started.
std::optional<OwnerPlan> drop(const Json& pod, const std::string& group, std::int64_t total) {
  if (!is_gated(pod) || kube::deleting(pod)) return std::nullopt;
  return take_step(What::DeleteOwner, pod, Note{false, "ExcessPodDeleted", fmt::format("Excess pod deleted: {} has all of its {} pods", group, total)});
}

std::optional<OwnerPlan> add_owners(const PodGroup& group, const Json& workload) {
  Json next = workload;
  Json& owners = next.child("metadata").child("ownerReferences");
  bool changed = false;
  std::set<std::string> there;
  for (const Json& one : owners.items()) there.insert(one["uid"].string());
  for (const Json* pod : group.active) {
    if (!there.insert(kube::uid_of(*pod)).second) continue;
    owners.push(owner_of_group(*pod));
    changed = true;
  }
  if (!changed) return std::nullopt;
  return take_step(What::UpdateWorkload, std::move(next));
}

// What has succeeded gives its part back; what is missing is told.
std::optional<OwnerPlan> tell_parts(const PodsInput& in, const PodGroup& group, const Json& workload) {
  std::map<std::string, std::int64_t> succeeded, there;
  for (const Json* pod : group.active) {
    ++there[role_of(*pod)];
    if (has_succeeded(*pod) && !group.serving) ++succeeded[role_of(*pod)];
  }
  Json reclaimable = Json::array();
  std::int64_t absent = 0;
  for (const Json& set : workload["spec"]["podSets"].items()) {
    const std::string& name = set["name"].string();
    const std::int64_t count = set["count"].integer();
    if (const std::int64_t done = std::min(count, succeeded[name]); done > 0) reclaimable.push(Json::object({{"name", name}, {"count", done}}));
    absent += group.fast ? (there[name] == 0 ? 1 : 0) : std::max<std::int64_t>(0, count - there[name]);
  }
  Json next = workload;
  bool changed = false;
  if (holds_quota(workload) && !(reclaimable.items() == workload["status"]["reclaimablePods"].items())) {
    if (reclaimable.items().empty()) next.child("status").erase("reclaimablePods");
    else next.child("status").set("reclaimablePods", std::move(reclaimable));
    changed = true;
  }
  constexpr const char* waits = "WaitingForReplacementPods";
  if (absent > 0) changed = kube::set_condition(next, {.type = waits, .status = "True", .reason = "PodsFailed", .message = fmt::format("{} pods of the group need replacement", absent)}, in.now) || changed;
  else if (kube::condition_is_true(workload, waits)) changed = kube::set_condition(next, {.type = waits, .status = "False", .reason = "PodsReady", .message = "No pods need replacement"}, in.now) || changed;
  if (!changed) return std::nullopt;
  return take_step(What::WorkloadStatus, std::move(next));
}

OwnerPlan plan_admitted(const PodsInput& in, const PodGroup& group, const Json& workload) {
  const auto& sets = workload["spec"]["podSets"].items();
  std::map<std::string, std::int64_t> going, leaving;  // by role; who leaves has its part until it is gone
  for (const Json* pod : group.active) {
    if (is_gated(*pod)) continue;
    ++going[role_of(*pod)];
    if (uses_quota(*pod) && kube::deleting(*pod)) ++leaving[role_of(*pod)];
  }
  std::string problem;
  const auto note = [&](std::string text) {
    if (problem.empty()) problem = std::move(text);
  };
  for (const Json* pod : group.active) {
    if (!is_gated(*pod) || kube::deleting(*pod)) continue;
    const std::string role = role_of(*pod);
    const auto set = std::find_if(sets.begin(), sets.end(), [&](const Json& one) { return one["name"].string() == role; });
    if (set == sets.end()) {
      note(fmt::format("pod {} asks for something else than the pods that group {} was admitted with: delete it, or the Workload {} to queue the group anew", kube::name_of(*pod), in.group, kube::name_of(workload)));
      continue;
    }
    if (going[role] >= (*set)["count"].integer()) {
      if (leaving[role]-- > 0) continue;  // it is to take that one's place
      if (auto gone = drop(*pod, in.group, group.total)) return std::move(*gone);
      continue;
    }
    Json alone = *set;  // the role is an annotation, which anybody writes: what counts is what the pod asks
    alone.set("count", 1);
    if (shape_of_pod_set(alone) != shape_of_pod_set(pod_set(*pod, role, 1))) {
      note(fmt::format("pod {} has the role {} of group {}, and asks for something else", kube::name_of(*pod), role, in.group));
      continue;
    }
    std::vector<const Json*> of_role;
    for (const Json* one : group.all)
      if (!has_ended(*one) && role_of(*one) == role) of_role.push_back(one);
    OwnerPlan lifted = lift_gate(*pod, workload, role, in.flavors, of_role);
    if (lifted.step) return lifted;
    note(fmt::format("pod {}: {}", kube::name_of(*pod), lifted.problem));
  }
  if (auto told = tell_parts(in, group, workload)) return std::move(*told);
  if (auto follows = follow_class(workload, in.priority)) return std::move(*follows);
  if (!group.active.empty())
    if (auto told = tell_checkpoints(workload, *group.active.front())) return std::move(*told);
  const bool all_ready = std::ranges::count_if(group.active, [](const Json* pod) { return is_ready(*pod); }) >= group.total;
  if (auto told = tell_ready(workload, in.tells_ready, all_ready, in.now)) return std::move(*told);
  return trouble(std::move(problem));
}

OwnerPlan plan_waiting(const PodsInput& in, const PodGroup& group, const Json& workload) {
  for (const Json* pod : group.active)
    if (uses_quota(*pod) && !kube::deleting(*pod)) return stop(*pod, Stop::NotAdmitted, "Not admitted by cluster queue", in.now);
  if (static_cast<std::int64_t>(group.active.size()) > group.total)
    if (auto gone = drop(*group.active.back(), in.group, group.total)) return std::move(*gone);
  if (!in.priority.problem.empty()) return trouble(in.priority.problem);
  if (holds_quota(workload)) return {};
  if (group.active.empty()) return tell_parts(in, group, workload).value_or(OwnerPlan{});
  Json wanted = group_workload(in, group);
  if (std::string problem = put_run_limit(wanted, *group.active.front()); !problem.empty()) return trouble(std::move(problem));
  // Who is missing is counted as if it were there: it keeps its place in the line.
  if (static_cast<std::int64_t>(group.active.size()) != group.total) wanted.child("spec").set("podSets", workload["spec"]["podSets"]);
  if (OwnerPlan changed = update_waiting(workload, wanted); changed.step) return changed;
  return tell_parts(in, group, workload).value_or(OwnerPlan{});
}

OwnerPlan plan_new(const PodsInput& in, const PodGroup& group) {
  for (const Json* pod : group.active)
    if (uses_quota(*pod) && !kube::deleting(*pod) && has_finalizer(*pod)) return stop(*pod, Stop::NoWorkload, "The Workload of its group is not there", in.now);
  const auto there = static_cast<std::int64_t>(group.active.size());
  if (there > group.total)
    if (auto gone = drop(*group.active.back(), in.group, group.total)) return std::move(*gone);
  if (group.active.empty()) return {};
  if (there < group.total && !group.fast) return trouble(fmt::format("'{}' group has fewer runnable pods than expected: {} are needed", in.group, group.total));
  if (!in.priority.problem.empty()) return trouble(in.priority.problem);
  Json made = group_workload(in, group);
  if (std::string problem = put_run_limit(made, *group.active.front()); !problem.empty()) return trouble(std::move(problem));
  if (made["spec"]["podSets"].items().size() > most_roles) return trouble(fmt::format("pods of group {} ask for {} different things: {} are allowed", in.group, made["spec"]["podSets"].items().size(), most_roles));
  return create(std::move(made), *group.active.front());
}

}  // namespace

OwnerPlan plan_group(const PodsInput& in) {
  const PodGroup group = read_group(in);
  const Json* workload = in.workloads.empty() ? nullptr : &in.workloads.front();
  const bool taken = workload != nullptr && (!is_group_workload(*workload) || kube::controller_of(*workload) != nullptr);
  const bool ended = group.total > 0 && !group.serving && group.succeeded >= group.total;
  const bool over = (workload != nullptr && !taken && kube::condition_is_true(*workload, "Finished")) || (workload == nullptr && ended);
  // A pod that has succeeded is remembered while others go on, even if it was deleted; nobody else is.
  const bool nobody_stays = std::all_of(in.pods.begin(), in.pods.end(), [](const Json& pod) { return kube::deleting(pod); });
  for (const Json& pod : in.pods)
    if (has_finalizer(pod) && (over || nobody_stays || has_failed(pod) || (kube::deleting(pod) && !has_succeeded(pod)))) return release_finalizer(pod);
  if (group.all.empty()) {
    const bool made_here = workload != nullptr && !(*workload)["metadata"]["ownerReferences"].items().empty();
    if (workload != nullptr && !taken && (made_here || kube::deleting(*workload)))
      if (auto gone = let_go(*workload)) return std::move(*gone);
    const auto stray = std::find_if(in.pods.begin(), in.pods.end(), [](const Json& pod) { return !has_ended(pod) && !kube::deleting(pod) && !queue_of(pod).empty(); });
    return stray == in.pods.end() ? OwnerPlan{} : trouble(fmt::format("pod {}: {}", kube::name_of(*stray), no_gate()));
  }
  if (taken) return trouble(fmt::format("there is a Workload {} that is not of this group of pods: delete it, or give the group another name", in.group));
  if (over) {
    if (workload != nullptr)
      if (auto last = finish(*workload, true, "", in.now)) return std::move(*last);
    const auto late = std::find_if(group.all.begin(), group.all.end(), [](const Json* pod) { return is_gated(*pod) && !kube::deleting(*pod); });
    return late == group.all.end() ? OwnerPlan{} : trouble(fmt::format("pod {}: group {} has finished: use another name, or delete the Workload and the pods that have ended", kube::name_of(**late), in.group));
  }
  if (workload != nullptr && (kube::deleting(*workload) || (holds_quota(*workload) && kube::condition_is_true(*workload, "Evicted")))) {
    const bool deleted = kube::deleting(*workload);
    for (const Json* pod : group.all)
      if (uses_quota(*pod) && !kube::deleting(*pod)) return stop(*pod, deleted ? Stop::WorkloadDeleted : Stop::Evicted, deleted ? "The Workload of its group was deleted" : stop_reason(*workload), in.now);
    if (std::any_of(group.all.begin(), group.all.end(), [](const Json* pod) { return uses_quota(*pod); })) return {};
    return deleted ? let_go(*workload).value_or(OwnerPlan{}) : give_back(*workload, in.now);
  }
  if (!group.problem.empty()) return trouble(group.problem);
  for (const Json* pod : group.all)
    if (is_gated(*pod) && !kube::deleting(*pod) && !is_adopted(*pod)) return adopt(*pod);
  if (workload == nullptr) return plan_new(in, group);
  const bool given_up = !group.retriable && !group.serving && std::all_of(group.all.begin(), group.all.end(), [](const Json* pod) { return has_ended(*pod); });
  if (ended || given_up) return finish(*workload, ended, fmt::format("Pods succeeded: {}/{}.", group.succeeded, group.total), in.now).value_or(OwnerPlan{});
  if (auto owners = add_owners(group, *workload)) return std::move(*owners);
  return holds_quota(*workload) && kube::condition_is_true(*workload, "Admitted") ? plan_admitted(in, group, *workload) : plan_waiting(in, group, *workload);
}

}  // namespace fairlead::governance
