// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/cluster_plan.h"

#include <set>

#include "fleet/plan/cluster_planner.h"

namespace fairlead::fleet {

using api::Instance;
using api::InstanceGroup;
using kube::Json;
namespace resources = kube::resources;
using Verb = ClusterStep::Verb;

const char* name(Verb verb) {
  switch (verb) {
    case Verb::Create: return "create";
    case Verb::Update: return "update";
    case Verb::UpdateStatus: return "tell";
    case Verb::Delete: return "delete";
    case Verb::Evict: return "evict";
  }
  return "?";
}

std::optional<Instant> silent_since(const Json& node) {
  const Json* ready = kube::find_condition(node, "Ready");
  if (ready == nullptr || (*ready)["status"].string() == "True") return std::nullopt;
  const auto since = parse_time((*ready)["lastTransitionTime"].string());
  return since ? std::optional<Instant>(*since) : std::nullopt;
}

// The one that is due on a machine that has not run yet; nothing: none is, or it has failed.
static std::optional<ScriptStage> due_script(const api::LifecycleScripts& scripts, const Json& status) {
  for (const ScriptStage stage : kStages) {
    const std::string& phase = status["lifecycle"][field_of(stage)]["phase"].string();
    if (phase == "Failed") return std::nullopt;
    if (phase.empty() && !file_of(scripts, stage).empty()) return stage;
  }
  return std::nullopt;
}

std::map<std::string, api::LifecycleScripts> needed_sources(const api::Cluster& cluster, const std::vector<Json>& instances, const std::vector<Json>& pods) {
  std::map<std::string, api::LifecycleScripts> out;
  std::set<std::string> at_work;
  if (cluster.deleting) return out;
  for (const Json& pod : pods)
    if (is_script(pod)) at_work.insert(kube::name_of(pod));
  for (const Json& object : instances) {
    const Instance one = api::read_instance(object);
    const InstanceGroup* group = one.cluster_uid == cluster.uid ? cluster.group(one.group) : nullptr;
    if (group == nullptr || one.ran || one.deleting || one.node.empty()) continue;
    const api::LifecycleScripts& scripts = one.scripts ? *one.scripts : group->scripts;
    if (const auto stage = due_script(scripts, object["status"]); stage && !at_work.contains(script_pod_name(one.id, *stage))) out.emplace(scripts.source(), scripts);
  }
  return out;
}

std::vector<std::string> needed_alarms(const Json& cluster, const api::SoftwareUpdate& asked) {
  const Json& told = cluster["status"]["softwareUpdate"];
  return told["id"].string() == asked.id && told["phase"].string() == "InProgress" ? asked.alarms : std::vector<std::string>();
}

bool holds_machine(const Json& pod, api::Orchestrator orchestrator) {
  const std::string& phase = pod["status"]["phase"].string();
  // One that is being deleted needs its machine to the end: without it the object stays until somebody finds out, and its name is taken so long.
  if (!kube::deleting(pod) && (phase == "Succeeded" || phase == "Failed")) return false;
  if (is_script(pod)) return true;
  if (orchestrator == api::Orchestrator::Slurm) return !pod["metadata"]["labels"][api::kSlurmRoleLabel].is_null();
  const Json* owner = kube::controller_of(pod);
  return (owner == nullptr || (*owner)["kind"].string() != "DaemonSet") && !pod["metadata"]["annotations"].has("kubernetes.io/config.mirror");
}

namespace planner {

Planner::Planner(const ClusterSnapshot& snapshot, Instant now, const ClusterPlanOptions& options) : in_(snapshot), now_(now), options_(options), object_(snapshot.cluster), status_(object_["status"].is_object() ? object_["status"] : Json::object()) {
  const Json& failed = status_["failed"];
  taken_back_ = failed.is_object() && failed["generation"].integer() == object_["metadata"]["generation"].integer();
  served_ = status_["served"].boolean();
  undone_ = taken_back_ && !status_["good"]["spec"].is_object() && !served_;
  cluster_ = api::read_cluster(object_);
  slurm_ = cluster_.orchestrator == api::Orchestrator::Slurm;
  for (const Json& one : in_.instances) {
    Instance value = api::read_instance(one);
    if (!value.node.empty()) promised_.insert(value.node);
    if (value.cluster_uid != cluster_.uid) continue;
    mine_.push_back({.value = std::move(value), .object = &one, .leaves = false, .phase = {}, .message = {}, .status = one["status"].is_object() ? one["status"] : Json::object()});
  }
  std::sort(mine_.begin(), mine_.end(), [](const One& a, const One& b) { return std::tie(a.value.group, a.value.number, a.value.attempt) < std::tie(b.value.group, b.value.number, b.value.attempt); });
  for (const Json& pod : in_.pods)
    if (!pod["spec"]["nodeName"].string().empty()) pods_on_[pod["spec"]["nodeName"].string()].push_back(&pod);
  // Who goes altogether waits so long for what does not answer.
  const auto since = parse_time(cluster_.deleting ? object_["metadata"]["deletionTimestamp"].string() : undone_ ? status_["failed"]["at"].string() : "");
  overdue_ = since && now_ >= *since + options_.silent;
  if (since && !overdue_) look_again(*since + options_.silent - now_);
}

ClusterPlan Planner::run() {
  if (cluster_.deleting) {
    if (!cluster_.finalizer) return {};
    all_leave();
    tell("Deleting", "");
    if (take_down() && settle_instances()) finish();
    return done();
  }
  if (!cluster_.finalizer) {
    Json with = object_;
    kube::add_finalizer(with, api::kClusterFinalizer);
    add(Verb::Update, api::kClusters, std::move(with), "it is ours to take down");
    return std::move(out_);
  }
  if (undone_) {
    all_leave();
    // Its namespace stays: what was told is in it.
    const bool gone = take_down() && settle_instances() && claims_gone();
    tell(gone ? "Failed" : "RollingBack", status_["failed"]["message"].string());
    if (Json* groups = status_.find("instanceGroups"); groups != nullptr)
      for (Json& group : groups->items()) {
        group.set("current", 0).set("status", gone ? "Failed" : "Deleting");
        group.erase("message");
      }
    status_.set("summary", "0/0");
    return done();
  }
  const std::string wrong = objection();
  tell_validity(wrong);
  if (!wrong.empty()) {
    tell(served_ ? "InService" : "Failed", wrong);
    return done();
  }
  limit_by_plans();
  count_numbers();
  make_instances();
  mark_leaving();
  roll_out();
  count_sizes();
  choose_machines();
  settle_instances();
  if (slurm_) shape_slurm();
  else if (in_.space.is_null()) add(Verb::Create, resources::namespaces, namespace_of(cluster_, object_), "what is made for the cluster is in it");
  judge();
  // Last: whatever may refuse it holds up nothing else.
  if (std::optional<Json> spec = cluster_.continuous ? without_given_up() : std::nullopt) {
    Json with = object_;
    with.set("spec", std::move(*spec));
    add(Verb::Update, api::kClusters, std::move(with), "a group has not come to its minInstanceCount in time");
  }
  return done();
}

std::string Planner::objection() const {
  if (!cluster_.problems.empty()) return cluster_.problems.size() == 1 ? cluster_.problems.front() : fmt::format("{} (and {} more)", cluster_.problems.front(), cluster_.problems.size() - 1);
  if (status_["mode"].string() == "Continuous" && !cluster_.continuous) return "nodeProvisioningMode: a cluster that is Continuous stays so";
  if (taken_back_ && !status_["good"].is_object()) return fmt::format("{}; the cluster stays as it is: change it again", status_["failed"]["message"].string());
  // Where a partition goes, its jobs end: a group keeps its own.
  for (const InstanceGroup& group : cluster_.groups)
    if (const Json* set = find_named(in_.node_sets, group.set); set != nullptr && !group.partitions.empty())
      if (const std::string& has = (*set)["metadata"]["annotations"][kPartitionNote].string(); !has.empty() && has != group.partitions.front() && !kube::deleting(*set))
        return fmt::format("group {}: its partition does not change (it is {}); make another group", group.name, has);
  if (in_.space.is_object() && !is_namespace_of(in_.space, cluster_)) return fmt::format("namespace {} is there and belongs to something else: delete it, or give the cluster another name", cluster_.space);
  return "";
}

ClusterPlan Planner::done() {
  std::set<std::string> changed;
  for (const ClusterStep& step : out_.steps)
    if (step.resource == api::kInstances && step.verb != Verb::Create) changed.insert(kube::name_of(step.object));
  for (One& one : mine_) {
    if (gone_) break;
    one.status.set("phase", one.phase.empty() ? one.value.phase.empty() ? "Pending" : one.value.phase : one.phase);
    if (one.message.empty()) one.status.erase("message");
    else one.status.set("message", one.message);
    // By it one occurrence is told from the next.
    if (one.status["phase"] != (*one.object)["status"]["phase"]) one.status.set("phaseSince", print_time(now_));
    if (one.status == (*one.object)["status"]) continue;
    changes_.push_back({one.object, &one.status});
    // First of all: what is done with a machine follows from what is written here.
    Json told = *one.object;
    told.set("status", one.status);
    if (!changed.contains(one.value.id)) told_.push_back({.verb = Verb::UpdateStatus, .resource = api::kInstances, .object = std::move(told), .if_empty = {}, .if_gone = {}, .if_live = {}, .live_node = {}, .unrun = {}, .if_not_of = one.gives_up, .if_silent = {}, .tells_of = {}, .why = "what is known of it"});
  }
  out_.steps.insert(out_.steps.begin(), std::make_move_iterator(told_.begin()), std::make_move_iterator(told_.end()));
  if (status_["phase"] != object_["status"]["phase"]) status_.set("phaseSince", print_time(now_));
  tell_events();
  if (!gone_ && status_ != object_["status"]) out_.status = status_;
  return std::move(out_);
}

void Planner::tell_events() {
  if (gone_ || cluster_.deleting || !in_.space.is_object() || kube::deleting(in_.space) || !is_namespace_of(in_.space, cluster_)) return;
  // There was no place for the first ones.
  Json from = object_;
  if (in_.events.empty() && !served_) from.erase("status");
  std::vector<ClusterStep> steps;
  for (Json& event : cluster_events(from, status_, changes_, now_)) {
    event.child("metadata").set("namespace", cluster_.space).set("ownerReferences", Json::array({kube::owner_reference(object_)}));
    ClusterStep step{.verb = Verb::Create, .resource = api::kClusterEvents, .object = std::move(event), .if_empty = {}, .if_gone = {}, .if_live = {}, .live_node = {}, .unrun = {}, .if_not_of = {}, .if_silent = {}, .tells_of = {}, .why = "it happened"};
    step.tells_of = step.object["spec"]["instanceId"].string();
    steps.push_back(std::move(step));
  }
  constexpr std::size_t at_a_time = 100;
  for (const Json* event : events_to_forget(in_.events, now_)) {
    if (out_.steps.size() >= at_a_time) {
      look_again(std::chrono::seconds(1));
      break;
    }
    add(Verb::Delete, api::kClusterEvents, *event, "there are newer ones");
  }
  out_.steps.insert(out_.steps.begin(), std::make_move_iterator(steps.begin()), std::make_move_iterator(steps.end()));
}

}  // namespace planner

Json stages_of(const Json& status) { return Json::array({status["reboot"]["stage"], status["software"]["stage"], status["healthCheck"]["stage"]}); }

ClusterPlan plan_cluster(const ClusterSnapshot& snapshot, Instant now, const ClusterPlanOptions& options) { return planner::Planner(snapshot, now, options).run(); }

}  // namespace fairlead::fleet
