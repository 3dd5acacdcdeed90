// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/reconcile_planner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "api/node_set.h"
#include "api/slurm_import.h"
#include "slurm/plan/actions.h"
#include "slurm/plan/accounting.h"
#include "slurm/plan/backup.h"
#include "slurm/plan/inputs.h"
#include "slurm/plan/jail.h"
#include "slurm/plan/login_renewal.h"
#include "slurm/plan/login_service.h"
#include "slurm/plan/munge_word.h"
#include "slurm/plan/node_sets.h"
#include "slurm/plan/surroundings.h"
#include "slurm/plan/trouble.h"

namespace fairlead::slurm {

using api::SlurmCluster;
using kube::Json;
namespace resources = kube::resources;

void ClusterPlanner::plan_lost() {
  const FailurePlan lost = plan_failures(failure_input(snapshot_, cluster_, now_));
  if (lost.memory.is_null()) object_.child("status").erase("lostWorkers");
  else object_.child("status").set("lostWorkers", lost.memory);
  views_[Role::Worker].leaving = lost.notes;
  plan_.ends_known = lost.ends_known;
  if (lost.look_again) look_again_in(std::chrono::seconds(2));
  if (lost.look_later) look_again_in(*lost.look_later);
  if (const Json* head = ready_head(snapshot_, cluster_))
    for (const auto& tell : lost.steps) {
      const Json* pod = find(snapshot_.pods, tell.node);
      plan_.steps.push_back(NodeStep{kube::key_of(*head), tell, pod ? kube::uid_of(*pod) : ""});
    }
  // Deleted by somebody, and nobody is left to confirm it. The others of the dead machine hold nothing that Slurm must be told.
  for (const auto& [name, pod] : snapshot_.pods) {
    if (!owned_by(pod, cluster_) || !kube::deleting(pod)) continue;
    const bool worker = of_role(pod, cluster_, Role::Worker);
    if (worker && std::find(lost.settled.begin(), lost.settled.end(), name) == lost.settled.end()) continue;
    const auto proof = proof_of_death(pod, "slurmd", find(snapshot_.nodes, pod["spec"]["nodeName"].string()));
    if (proof && proof->machine) plan_.steps.push_back(DeletePod{.key = kube::key_of(pod), .uid = kube::uid_of(pod), .why = proof->why, .version = kube::version_of(pod), .forget = true});
  }
}

// Only where somebody has the machines who reboots and replaces them (docs/design/050).
void ClusterPlanner::plan_actions_asked() {
  if (!action_look(snapshot_.cluster)) return;
  ActionsInput input{.memory = snapshot_.cluster["status"]["nodeActions"], .view = snapshot_.view};
  for (const auto& [name, pod] : snapshot_.pods)
    if (of_role(pod, cluster_, Role::Worker)) input.pods[name] = &pod;
  for (const auto& [name, node] : snapshot_.nodes) input.nodes[name] = &node;
  ActionsPlan asked = plan_actions(input);
  if (asked.memory.is_null()) object_.child("status").erase("nodeActions");
  else object_.child("status").set("nodeActions", std::move(asked.memory));
  auto& notes = views_[Role::Worker].leaving;
  notes.insert(notes.end(), asked.notes.begin(), asked.notes.end());
  look_again_in(*action_look(object_));
  if (const Json* head = ready_head(snapshot_, cluster_))
    for (auto& tell : asked.steps) {
      const Json* pod = find(snapshot_.pods, tell.node);
      plan_.steps.push_back(NodeStep{kube::key_of(*head), std::move(tell), pod ? kube::uid_of(*pod) : ""});
    }
}

void ClusterPlanner::say_autoscaling() {
  remember("autoscale", size_.memory);
  std::vector<std::string> unknown;
  for (const auto& rules : cluster_.autoscale)
    if (!size_.sizes.contains(rules.set)) unknown.push_back(rules.set);
  if (size_.memory.is_null() && unknown.empty()) {
    if (kube::find_condition(object_, "Autoscaling")) say("Autoscaling", false, "TurnedOff", "the number of workers is what the resource says");
    return;
  }
  std::string message = size_.message;
  if (!unknown.empty()) message += fmt::format("{}no workers of that name that could follow the queue: {}", message.empty() ? "" : "; ", fmt::join(unknown, ", "));
  say("Autoscaling", size_.well && unknown.empty(), size_.well && !unknown.empty() ? "NoSuchSet" : size_.reason, std::move(message));
  look_again_in(snapshot_.view ? kFollow : std::chrono::seconds(kTryAgain));
}

void ClusterPlanner::plan_workers() {
  std::vector<Step> tells;
  std::optional<std::vector<std::string>> jobs;
  const Json* head = ready_head(snapshot_, cluster_);
  for (const auto& view : workers_of_) {
    if (view.set.held) continue;
    ScalePlan scale = plan_scale(scale_input(snapshot_, view, now_));
    const OfSet of{view.set.name, view.set.generation};
    ordinals_[view.worker_set] = std::move(scale.ordinals);
    sets_[view.worker_set].leaving = std::move(scale.notes);
    if (scale.look_again) look_again_in(*scale.look_again);
    if (scale.jobs) {
      if (!jobs) jobs.emplace();
      if (!scale.jobs->empty()) jobs->push_back(std::move(*scale.jobs));
    }
    // What Slurm just said of a worker is worth little after the minutes that many node steps may take: pods are ended first.
    for (const auto& step : scale.steps)
      if (const auto* end = std::get_if<EndPod>(&step)) {
        const Json& pod = snapshot_.pods.at(pod_name(view, Role::Worker, end->ordinal));
        plan_.steps.push_back(DeletePod{kube::key_of(pod), kube::uid_of(pod), end->why, kube::version_of(pod), true, of});
      }
    for (auto& step : scale.steps)
      if (auto* tell = std::get_if<TellSlurm>(&step); tell && head) {
        const Json* pod = find(snapshot_.pods, tell->node);
        tells.push_back(NodeStep{kube::key_of(*head), std::move(*tell), pod ? kube::uid_of(*pod) : "", of});
      }
    if (view.set.name.empty()) object_.child("status").set("scaleDown", std::move(scale.memory));
    else memories_[view.set.name] = std::move(scale.memory);
  }
  std::move(tells.begin(), tells.end(), std::back_inserter(plan_.steps));
  if (jobs) say("JobsCanStart", jobs->empty(), jobs->empty() ? "NoneNamesALeavingWorker" : "NamesALeavingWorker", jobs->empty() ? "no job insists on a worker that is taken away" : fmt::format("{}", fmt::join(*jobs, "; ")));
}

void ClusterPlanner::plan_root() {
  const Json* pod = find(snapshot_.pods, populate_pod_name(cluster_));
  JailPlan jail = plan_jail(cluster_, snapshot_.cluster["status"]["jail"], pod, now_);
  jail_ready_ = jail.ready;
  if (jail.condition) kube::set_condition(object_, *jail.condition, now_);
  if (jail.memory.is_object()) object_.child("status").set("jail", std::move(jail.memory));
  if (jail.updated) kube::set_condition(object_, *jail.updated, now_);
  std::optional<std::vector<std::string>> nodes;
  if (jail.renew) {
    nodes.emplace();
    for (const auto& [name, one] : snapshot_.pods)
      if (of_role(one, cluster_, Role::Worker) || of_role(one, cluster_, Role::Login)) nodes->push_back(name);
  }
  if (jail.make_pod) plan_.steps.push_back(Create{resources::pods, populate_pod(cluster_, options_, nodes)});
  if (!jail.end_pod.empty()) plan_.steps.push_back(DeletePod{kube::key_of(*pod), kube::uid_of(*pod), jail.end_pod, kube::version_of(*pod)});
  if (jail.look_again && (!plan_.look_again || *jail.look_again < *plan_.look_again)) plan_.look_again = jail.look_again;
}

void ClusterPlanner::sum_up_workers() {
  RoleView& all = views_[Role::Worker];
  std::set<std::string> known;
  for (const auto& view : workers_of_) {
    const RoleView& one = sets_[view.worker_set];
    all.wanted += view.set.held ? 0 : view.worker.size;
    all.ready += one.ready;
    if (all.reason.empty()) all.reason = one.reason;
    for (const auto member : {&RoleView::outdated, &RoleView::surplus, &RoleView::trouble, &RoleView::foreign, &RoleView::leaving}) (all.*member).insert((all.*member).end(), (one.*member).begin(), (one.*member).end());
    for (const auto& [name, pod] : snapshot_.pods)
      if (ordinal_of(name, view, Role::Worker) >= 0 && !(view.set.held && view.set.name.empty())) known.insert(name);
  }
  std::vector<std::string> kept;
  for (const auto& [name, pod] : snapshot_.pods)
    if (of_role(pod, cluster_, Role::Worker) && !known.contains(name)) kept.push_back(name);
  if (!kept.empty())
    all.trouble.push_back(fmt::format("{} run on, though neither spec.slurmNodes.worker nor a NodeSet describes them: describe them again, with size 0 if they are to go", fmt::join(kept, ", ")));
  for (const auto& set : cluster_.sets)
    if (!set.problems.empty() && !set.deleting) all.trouble.push_back(fmt::format("NodeSet {}: {}; what runs of it goes on", set.name, set.problems.front()));
  for (const auto& view : workers_of_)
    if (!view.set.name.empty()) plan_set(view);
  // A set of the name of the section's workers has no view of its own.
  if (cluster_.has_workers)
    for (const auto& set : cluster_.sets)
      if (set.name == "worker") {
        SlurmCluster view = cluster_;
        view.set = set;
        view.set.held = true;
        plan_set(view);
      }
}

void ClusterPlanner::plan_set(const SlurmCluster& view) {
  const Json& object = snapshot_.node_sets.at(view.set.name);
  const RoleView& pods = sets_[view.worker_set];
  SetState state{.view = view, .ready = view.set.held ? 0 : pods.ready, .memory = memories_.contains(view.set.name) ? memories_[view.set.name] : object["status"]["scaleDown"], .slurm_answered = snapshot_.view.has_value(), .now = now_};
  for (const auto member : {&RoleView::foreign, &RoleView::trouble, &RoleView::outdated, &RoleView::leaving})
    for (const auto& line : pods.*member) state.notes.push_back(member == &RoleView::foreign ? line + " is a pod of somebody else" : member == &RoleView::outdated ? line + " runs an older template" : line);
  // The section of the SlurmCluster has the workers of that name: nothing is this set's own.
  const bool nothing = view.set.name == "worker" && cluster_.has_workers;
  if (nothing) state.memory = Json(), state.slurm_answered = true;
  for (const auto& [name, pod] : snapshot_.pods)
    if (!nothing && ordinal_of(name, view, Role::Worker) >= 0 && of_role(pod, view, Role::Worker)) state.any_pod = true;
  auto next = plan_node_set(object, state);
  // Before any pod of it is made.
  if (next.finalizers) plan_.steps.insert(plan_.steps.begin(), Update{api::kNodeSets, std::move(next.object)});
  else if (next.object != object) plan_.steps.insert(plan_.steps.begin(), WriteStatus{api::kNodeSets, std::move(next.object)});
}

void ClusterPlanner::plan_pods(Role role, const SlurmCluster& cluster, std::vector<int> ordinals, RoleView& view) {
  const auto& of = role == Role::Controller ? cluster.controller : role == Role::Worker ? cluster.worker : role == Role::Login ? cluster.login : role == Role::Rest ? cluster.rest : cluster.exporter;
  const bool nobodys_work = role == Role::Controller || role == Role::Exporter || role == Role::Rest;  // its end ends no job and no session
  view.wanted = of.size;
  const bool heads = role == Role::Controller && elected(cluster_);
  if (heads && others_go(view)) return;
  if (heads) ordinals = heads_.order();
  const auto count_ready = [&](int ordinal) {
    if (heads && ordinal >= of.size) witness_ready_ = true;
    else ++view.ready;
  };
  bool renewing = false;  // one head at a time
  for (const int i : ordinals) {
    const std::string name = pod_name(cluster, role, i);
    const Json wanted = desired_pod(cluster, role, i, options_);
    const Json* have = find(snapshot_.pods, name);
    if (heads && !have && i > 0 && heads_.first_is_alone()) {
      view.trouble.push_back(fmt::format("{} waits until {} has given up serving alone", name, pod_name(role, 0)));
      continue;
    }
    // A head of another kind than the configuration in force names would serve nobody.
    if (role == Role::Controller && !rollout_.same_heads && (!have || i > 0 || (*have)["metadata"]["annotations"][kTemplateHash] != wanted["metadata"]["annotations"][kTemplateHash])) {
      view.trouble.push_back(name + " is made or renewed once the changed configuration may be given to it: see condition ConfigValid");
      if (have && owned_by(*have, cluster_) && pod_ready(*have)) count_ready(i);
      continue;
    }
    if (const std::string& import = snapshot_.cluster["metadata"]["annotations"][api::kImport].string(); role == Role::Controller && !have && !import.empty()) {
      view.trouble.push_back(fmt::format("{} waits until the volumes are filled by import {}", name, import));
      if (view.reason.empty()) view.reason = "Importing";
      continue;
    }
    if (!have && !jail_ready_) {
      view.trouble.push_back(name + " waits for the jail");
      continue;
    }
    if (!have) {
      make_pod(wanted, view);
      continue;
    }
    if (!owned_by(*have, cluster_)) {
      view.foreign.push_back(name);
      continue;
    }
    if (pod_ready(*have)) count_ready(i);
    else {
      PodTrouble trouble = kube::deleting(*have) ? PodTrouble{"ending", ""} : pod_trouble(*have);
      // It waits for a head that does not understand it, and has no words for that itself.
      if (trouble.reason.empty() && !kube::deleting(*have)) {
        const auto word = snapshot_.munge_words.find(kube::uid_of(*have));
        const auto refused = word == snapshot_.munge_words.end() ? std::nullopt : munge_trouble(word->second);
        const std::string words = refused ? munge_words(word->second) : "";
        if (has_other_key(*have)) trouble = {fmt::format("{}, made with another munge key than the head{}{}: see condition KeysMatch, then delete the pod", trouble.text, words.empty() ? "" : "; ", words), "KeyOrClock"};
        else if (refused) trouble = {fmt::format("{}; {}: {}", trouble.text, words, refused->remedy), refused->reason};
      }
      view.trouble.push_back(fmt::format("{}: {}", name, trouble.text));
      if (view.reason.empty()) view.reason = std::move(trouble.reason);
    }
    if (kube::deleting(*have)) continue;
    const bool stale = jail_ready_ && (*have)["metadata"]["annotations"][kTemplateHash] != wanted["metadata"]["annotations"][kTemplateHash];
    if (pod_over(*have)) plan_.steps.push_back(DeletePod{kube::key_of(*have), kube::uid_of(*have), "it has ended", kube::version_of(*have)});
    // A head restarts without harm to running jobs (silence ends none); workers and login nodes hold people's work. One that never ran does not.
    else if (stale && heads && (renewing || !heads_.may_renew(i))) view.trouble.push_back(name + " is renewed after the others");
    else if (stale && role == Role::Rest && pod_ready(*have) && (renewing || !others_serve(role, i, of.size))) view.trouble.push_back(name + " is renewed after the others");
    else if (stale && (nobodys_work || never_began(*have))) {
      plan_.steps.push_back(DeletePod{kube::key_of(*have), kube::uid_of(*have), "its template has changed", kube::version_of(*have)});
      renewing = true;
    } else if (stale && !((role == Role::Worker || role == Role::Login) && wants_other_mounts(*have, mounts_mark(cluster, role)))) view.outdated.push_back(name);  // what becomes of those, plan_workers and plan_login_mounts say
  }
  for (const auto& [name, pod] : snapshot_.pods) {
    if (!of_role(pod, cluster_, role)) continue;
    const int ordinal = ordinal_of(name, cluster, role);
    if (role == Role::Worker && ordinal < 0) continue;  // of another kind
    if (ordinal >= 0 && (role == Role::Worker || ordinal < (role == Role::Controller ? voters(cluster) : of.size))) continue;  // what becomes of workers, plan_workers says
    if (kube::deleting(pod)) continue;
    if (role == Role::Exporter || role == Role::Rest) plan_.steps.push_back(DeletePod{kube::key_of(pod), kube::uid_of(pod), role == Role::Rest ? "it is beyond the size" : "no exporter is asked for any more", kube::version_of(pod)});
    else if (never_began(pod) || pod_over(pod)) plan_.steps.push_back(DeletePod{kube::key_of(pod), kube::uid_of(pod), "it is beyond the size and never ran", kube::version_of(pod)});
    else view.surplus.push_back(name);
  }
}

bool ClusterPlanner::has_other_key(const Json& pod) const {
  const Json* head = find(snapshot_.pods, pod_name(Role::Controller, 0));
  const std::string &mine = pod["metadata"]["annotations"][kMungeMark].string(), &its = head ? (*head)["metadata"]["annotations"][kMungeMark].string() : mine;
  return !mine.empty() && !its.empty() && mine != its;
}

void ClusterPlanner::plan_login_mounts() {
  LoginRenewal renewal = plan_login_renewal(login_pods(snapshot_, cluster_), snapshot_.cluster["status"]["loginRenewal"], now_);
  auto& told = views_[Role::Login].leaving;
  told.insert(told.end(), renewal.notes.begin(), renewal.notes.end());
  remember("loginRenewal", renewal.memory);
  if (renewal.look_again) look_again_in(*renewal.look_again);
  if (renewal.end.empty()) return;
  const Json& pod = snapshot_.pods.at(renewal.end);
  plan_.steps.push_back(DeletePod{kube::key_of(pod), kube::uid_of(pod), "it is to have other sub-mounts, and nobody is logged in", kube::version_of(pod)});
}

bool ClusterPlanner::others_serve(Role role, int ordinal, int size) const {
  for (int i = 0; i < size; ++i)
    if (const Json* other = find(snapshot_.pods, pod_name(role, i)); i != ordinal && (!other || !pod_ready(*other))) return false;
  return true;
}

void ClusterPlanner::make_pod(Json pod, RoleView& view) {
  if (const Json* secret = find(snapshot_.secrets, munge_secret(cluster_)))
    if (const std::string mark = munge_mark(*secret); !mark.empty()) pod.child("metadata").child("annotations").set(kMungeMark, mark);
  view.trouble.push_back(kube::name_of(pod) + " is being made");
  plan_.steps.push_back(Create{resources::pods, std::move(pod)});
}

bool ClusterPlanner::others_go(RoleView& view) {
  auto fewer = heads_.become_one(options_, jail_ready_ && rollout_.same_heads);
  if (!fewer) return false;
  view.ready += fewer->first_ready ? 1 : 0;
  std::move(fewer->foreign.begin(), fewer->foreign.end(), std::back_inserter(view.foreign));
  if (fewer->make) make_pod(std::move(*fewer->make), view);
  std::move(fewer->end.begin(), fewer->end.end(), std::back_inserter(plan_.steps));
  std::move(fewer->trouble.begin(), fewer->trouble.end(), std::back_inserter(view.trouble));
  return true;
}

void ClusterPlanner::plan_reload() {
  const std::string& hash = rollout_.mounted;  // what the pods mount, which need not be what the resource asks for
  const Json* head = serving_head(snapshot_, cluster_, active_);
  const std::string& applied = snapshot_.cluster["status"]["appliedConfigHash"].string();
  const bool same_daemon = !elected(cluster_) || (active_ && snapshot_.cluster["status"]["appliedConfigTerm"].string() == std::to_string(active_->term));
  if (hash.empty()) return say("ConfigApplied", false, "Pending", "no configuration is there yet");
  if (applied == hash && same_daemon) return say_applied(hash);
  if (rollout_.taken_back.empty()) say("ConfigApplied", false, "Pending", fmt::format("configuration {} is not in force yet", hash));
  else say("ConfigApplied", false, "RolledBack", fmt::format("{}; configuration {} is being put back in force", rollout_.taken_back, hash));
  if (!head || !pod_ready(*head) || (rollout_.write && hash != rollout_.hash) || rollout_.take_back) return;
  // A daemon that was started for another storage of records, or for none, must not read it: its pod is renewed first.
  if (setting_of_pod(*head, "FAIRLEAD_CONF_NEEDS") != rollout_.needs) return;
  Reconfigure step{kube::key_of(*head), hash, elected(cluster_) && active_ ? std::to_string(active_->term) : "", !applied.empty() && applied != hash, rollout_.restart, {}};
  for (int i = 0; elected(cluster_) && i < api::kMaxHeads; ++i)  // those, too, that are on their way out: they may serve once more
    if (const Json* other = find(snapshot_.pods, pod_name(Role::Controller, i)); other && other != head && owned_by(*other, cluster_) && pod_ready(*other) && !kube::deleting(*other) && !is_witness(*other)) step.others.push_back(kube::key_of(*other));
  plan_.steps.push_back(std::move(step));
}

// slurmctld tells each slurmd once. One that could not be reached then, or was not known yet, keeps the earlier files until somebody tells it, and telling all of them again has a price (gpl/reconfigure.cpp).
void ClusterPlanner::give_config(const std::vector<ConfigOf>& unseen, const std::string& hash) {
  const Json* mounted = find(snapshot_.config_maps, cluster_.name + "-slurm-configs");
  if (!mounted) return;
  std::map<std::string, std::string> files;
  for (const auto& [name, content] : (*mounted)["data"].members())
    if (name.ends_with(".conf")) files[name] = content.string();
  std::size_t given = 0;
  for (const ConfigOf& one : unseen) {
    const auto since = snapshot_.other_configs.find(one.uid);
    if (one.container == "slurmd" && given < kGivenAtOnce && since != snapshot_.other_configs.end() && now_ >= since->second + kHearsByItself) {
      plan_.steps.push_back(GiveConfig{one.pod, one.uid, hash, files});
      ++given;
    }
  }
}

void ClusterPlanner::say_applied(const std::string& hash) {
  const auto unseen = unseen_configs(snapshot_, cluster_, hash);
  const std::string note = rollout_.workers_note.empty() ? "" : "; " + rollout_.workers_note;
  if (!rollout_.taken_back.empty()) return say("ConfigApplied", false, "RolledBack", fmt::format("{}; configuration {} is in force again", rollout_.taken_back, hash));
  if (hash != rollout_.hash || rollout_.valid.status != "True") return say("ConfigApplied", false, "KeptEarlier", fmt::format("configuration {} stays in force: see condition ConfigValid", hash));
  if (!unseen.empty()) {
    std::vector<std::string> names;
    for (const ConfigOf& one : unseen)
      if (names.size() < 10) names.push_back(one.pod.name);
    if (unseen.size() > names.size()) names.push_back(fmt::format("{} more", unseen.size() - names.size()));
    look_again_in(kTryAgain);
    give_config(unseen, hash);
    return say("ConfigApplied", false, "NodesDiffer", fmt::format("slurmctld runs with configuration {}; not seen yet on {}", hash, fmt::join(names, ", ")));
  }
  say("ConfigApplied", true, "Applied", fmt::format("slurmctld and every ready node run with configuration {}{}", hash, note));
}

}  // namespace fairlead::slurm
