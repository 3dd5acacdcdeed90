// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/reconcile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "slurm/plan/accounting.h"
#include "slurm/plan/backup.h"
#include "slurm/plan/inputs.h"
#include "slurm/plan/munge_word.h"
#include "slurm/plan/reconcile_planner.h"
#include "slurm/plan/rest.h"
#include "slurm/plan/surroundings.h"

namespace fairlead::slurm {

using api::SlurmCluster;
using kube::Json;
namespace resources = kube::resources;

ClusterPlanner::ClusterPlanner(const Snapshot& snapshot, const ObjectOptions& options, const std::string& default_image, Instant now)
    : snapshot_(snapshot), options_(options), upgrade_(upgrade_of(snapshot, read_as_written(snapshot, default_image), now)), cluster_(read_cluster(snapshot, default_image)), size_(plan_size(size_input(snapshot, cluster_, now))), workers_of_(views_in_force(size_input(snapshot, cluster_, now), cluster_, size_.sizes)), active_(active_head(find(snapshot.slices, active_service(cluster_)))), object_(snapshot.cluster), now_(now) {}

Plan ClusterPlanner::run() {
  if (cluster_.deleting) return leave();
  say("FieldsIgnored", !cluster_.ignored.empty(), cluster_.ignored.empty() ? "AllInEffect" : "NotInThisVersion",
      cluster_.ignored.empty() ? "every given field has its effect" : fmt::format("without effect in this version: {}", fmt::join(cluster_.ignored, ", ")));
  if (cluster_.paused) return finish("Reconciling", "paused by spec.pause: nothing is changed");
  if (!cluster_.problems.empty()) {
    say("SpecValid", false, "Invalid", fmt::format("{}{}", fmt::join(cluster_.problems, "; "), was_available() ? " (what runs goes on as it is)" : ""));
    return finish("Not available", cluster_.problems.front());
  }
  say("SpecValid", true, "Valid", "the resource can be carried out");
  const Confinement confinement = confinement_of(cluster_);
  say("StepsConfined", confinement.cgroups, confinement.reason, confinement.message);

  if (const auto chart = chart_condition(snapshot_.cluster, FAIRLEAD_VERSION)) kube::set_condition(object_, *chart, now_);
  if (const auto clocks = clocks_condition(snapshot_.view, now_)) kube::set_condition(object_, *clocks, now_);
  if (const auto state = state_condition(snapshot_.view)) kube::set_condition(object_, *state, now_);
  rollout_ = rollout_of(snapshot_, cluster_, options_, now_);
  options_.conf_needs = rollout_.needs;
  if (const Json* tokens = find(snapshot_.secrets, token_secret(cluster_))) options_.token_mark = token_mark(*tokens);
  kube::set_condition(object_, rollout_.valid, now_);
  remember("configCheck", rollout_.check);
  remember("configRollout", rollout_.pending);
  if (rollout_.valid.status == "Unknown" || !rollout_.pending.is_null()) plan_.look_again = kTryAgain;
  if (rollout_.mounted.empty() && !rollout_.write) plan_.waiting_for.push_back(rollout_.valid.message);
  say_autoscaling();
  plan_versions();
  const bool common = plan_common();
  plan_lost();
  plan_actions_asked();
  plan_workers();
  const bool claims = plan_claims();
  if (common && claims) {
    plan_root();
    plan_pods(Role::Controller, cluster_, first(cluster_.controller.size), views_[Role::Controller]);
    for (const auto& view : workers_of_)
      if (!view.set.held) plan_pods(Role::Worker, view, ordinals_[view.worker_set], sets_[view.worker_set]);
    plan_pods(Role::Login, cluster_, first(cluster_.login.size), views_[Role::Login]);
    plan_login_mounts();
    plan_reload();
    // Last: what the API refuses of it ends a round.
    if (cluster_.exporter.size == 0 || find(snapshot_.services, exporter_service(cluster_))) plan_pods(Role::Exporter, cluster_, first(cluster_.exporter.size), views_[Role::Exporter]);
    plan_rest();
  }
  plan_login_access();
  sum_up_workers();
  const bool accounting = account(common && jail_ready_, claims && all_there(accounting_services(cluster_), snapshot_.services) && all_there(accounting_claims(cluster_), snapshot_.claims));
  back_up(common && claims && all_there(backup_claims(cluster_), snapshot_.claims));
  const auto& head = views_[Role::Controller];
  const auto& workers = views_[Role::Worker];
  const auto& login = views_[Role::Login];
  say_role("ControllersAvailable", head);
  say_heads(head);
  say_role("WorkersAvailable", workers);
  say_role("LoginAvailable", login);
  say_exporter();
  say_rest();
  const bool all = accounting && head.ready >= head.wanted && workers.ready >= workers.wanted && login.ready >= login.wanted && head.wanted > 0;
  object_.child("status").set("readyControllers", head.ready).set("workers", workers.wanted).set("readyWorkers", workers.ready).set("readyLogin", login.ready);
  if (all) return finish("Available", "");
  return finish(head.wanted > 0 && head.ready == 0 && was_available() ? "Not available" : "Reconciling", "");
}

Plan ClusterPlanner::leave() {
  if (!kube::has_finalizer(snapshot_.cluster, kSharingFinalizer)) return {};
  const bool by_kubernetes = kube::has_finalizer(snapshot_.cluster, "foregroundDeletion");
  const auto config = all_there(accounting_services(cluster_), snapshot_.services), claims = all_there(accounting_claims(cluster_), snapshot_.claims);
  if (!by_kubernetes && cluster_.problems.empty() && !cluster_.paused) {
    for (const Json& wanted : accounting_services(cluster_))
      if (!find(snapshot_.services, kube::name_of(wanted))) aside_.push_back(Create{resources::services, wanted});
    account(config, config && claims);
  }
  say_sharing();
  plan_.status = object_["status"];
  std::move(aside_.begin(), aside_.end(), std::back_inserter(plan_.steps));
  return std::move(plan_);
}

void ClusterPlanner::say_sharing() {
  const SharingState sharing = tell_sharing(snapshot_, cluster_);
  if (sharing.tells) say("AccountingShared", sharing.used, sharing.reason, sharing.message);
  else unsay("AccountingShared");
}

std::vector<const Json*> ClusterPlanner::own_pods() const {
  std::vector<const Json*> out;
  for (const auto& [name, pod] : snapshot_.pods)
    if (owned_by(pod, cluster_)) out.push_back(&pod);
  return out;
}

std::vector<int> ClusterPlanner::first(int size) {
  std::vector<int> out;
  for (int i = 0; i < size; ++i) out.push_back(i);
  return out;
}

void ClusterPlanner::remember(const char* name, const Json& value) {
  if (value.is_null()) object_.child("status").erase(name);
  else object_.child("status").set(name, value);
}

void ClusterPlanner::look_again_in(std::chrono::nanoseconds time) {
  if (!plan_.look_again || time < *plan_.look_again) plan_.look_again = time;
}

void ClusterPlanner::say(const char* type, bool yes, std::string reason, std::string message) {
  kube::set_condition(object_, {type, yes ? "True" : "False", std::move(reason), std::move(message)}, now_);
}

void ClusterPlanner::say_role(const char* type, const RoleView& view) {
  std::vector<std::string> notes;
  if (!view.foreign.empty()) notes.push_back(fmt::format("pods of this name belong to somebody else: {}", fmt::join(view.foreign, ", ")));
  if (!view.trouble.empty()) notes.push_back(fmt::format("{}", fmt::join(view.trouble, "; ")));
  if (!view.outdated.empty())
    notes.push_back(fmt::format("{} run an older template; delete the pod when it is idle to renew it", fmt::join(view.outdated, ", ")));
  if (!view.surplus.empty())
    notes.push_back(fmt::format("{} are beyond the size and kept, since ending them could end what people do there; delete the pods", fmt::join(view.surplus, ", ")));
  if (!view.leaving.empty()) notes.push_back(fmt::format("{}", fmt::join(view.leaving, "; ")));
  const std::string count = fmt::format("{} of {} ready", view.ready, view.wanted);
  say(type, view.ready >= view.wanted, view.ready >= view.wanted ? "Ready" : view.reason.empty() ? "NotReady" : view.reason, notes.empty() ? count : fmt::format("{}; {}", count, fmt::join(notes, "; ")));
}

void ClusterPlanner::unsay(const char* type) {
  if (!kube::find_condition(object_, type)) return;
  Json others = Json::array();
  for (const Json& one : object_["status"]["conditions"].items())
    if (one["type"].string() != type) others.push(one);
  object_.child("status").set("conditions", std::move(others));
}

void ClusterPlanner::say_exporter() {
  if (cluster_.exporter.size > 0) say_role("ExporterAvailable", views_[Role::Exporter]);
  else unsay("ExporterAvailable");
}

void ClusterPlanner::say_rest() {
  const RoleView& view = views_[Role::Rest];
  if (!wants_rest(cluster_)) return unsay("RestAvailable");
  if (view.wanted == 0) return say("RestAvailable", false, "Waiting", "slurmrestd is started once its key and Service are there and slurmctld is given a configuration with tokens: see conditions CommonAvailable and ConfigValid");
  if (view.ready > 0 && view.ready < view.wanted) return say("RestAvailable", true, "Degraded", fmt::format("{} of {} slurmrestd: {}", view.ready, view.wanted, fmt::join(view.trouble, "; ")));
  say_role("RestAvailable", view);
}

void ClusterPlanner::say_heads(const RoleView& view) {
  if (elected(cluster_)) kube::set_condition(object_, heads_.condition({view.wanted, view.ready, witness_ready_, view.trouble}), now_);
}

Plan ClusterPlanner::finish(const char* phase, const std::string& waiting) {
  object_.child("status").set("phase", phase);
  object_.child("status").set("observedGeneration", cluster_.generation);
  if (!waiting.empty()) plan_.waiting_for.push_back(waiting);
  plan_.status = object_["status"];
  std::move(aside_.begin(), aside_.end(), std::back_inserter(plan_.steps));
  std::move(growth_.begin(), growth_.end(), std::back_inserter(plan_.steps));
  return std::move(plan_);
}

std::optional<kube::Condition> chart_condition(const Json& cluster, const std::string& operator_version) {
  const auto annotations = kube::annotations_of(cluster);
  const auto chart = annotations.find(kChart);
  if (chart == annotations.end()) return std::nullopt;
  // The version begins after the last dash that a digit follows ("slurm-cluster-0.1.0-rc.1" is 0.1.0-rc.1).
  std::size_t at = chart->second.find_first_of("0123456789");
  while (at != std::string::npos && (at == 0 || chart->second[at - 1] != '-')) at = chart->second.find_first_of("0123456789", at + 1);
  const std::string version = at == std::string::npos ? "" : chart->second.substr(at);
  const auto major_minor = [](const std::string& text) { return text.substr(0, text.find('.', text.find('.') + 1)); };
  if (!version.empty() && major_minor(version) == major_minor(operator_version))
    return kube::Condition{"ChartSupported", "True", "SameVersion", fmt::format("chart {} fits operator {}", version, operator_version)};
  return kube::Condition{"ChartSupported", "False", "ChartVersionMismatch",
                         fmt::format("the release was made by chart {}, the operator is {}: helm upgrade RELEASE fairlead/slurm-cluster --version {}", version.empty() ? chart->second : version, operator_version, operator_version)};
}

std::string describe(const Step& step) {
  return std::visit(
      [](const auto& s) -> std::string {
        using S = std::decay_t<decltype(s)>;
        if constexpr (std::is_same_v<S, Create>) return fmt::format("create {} {}", s.resource.plural, kube::name_of(s.object));
        if constexpr (std::is_same_v<S, Update>) return fmt::format("update {} {}", s.resource.plural, kube::name_of(s.object));
        if constexpr (std::is_same_v<S, WriteStatus>) return fmt::format("write status of {} {}", s.resource.plural, kube::name_of(s.object));
        if constexpr (std::is_same_v<S, Remove>) return fmt::format("delete {} {}: {}", s.resource.plural, s.key.name, s.why);
        if constexpr (std::is_same_v<S, DeletePod>) return fmt::format("delete pod {}: {}", s.key.name, s.why);
        if constexpr (std::is_same_v<S, MakeKeys>) return s.copy_of ? fmt::format("copy keys {} from {}", s.secret, s.copy_of->text()) : fmt::format("make keys {}", s.secret);
        if constexpr (std::is_same_v<S, Reconfigure>) return fmt::format("{} {} to {}", s.restart ? "restart" : "reconfigure", s.head.name, s.hash);
        if constexpr (std::is_same_v<S, GiveConfig>) return fmt::format("give {} configuration {}", s.worker.name, s.hash);
        if constexpr (std::is_same_v<S, NodeStep>) return fmt::format("{} {}{}{}", text(s.tell.verb), s.tell.node, s.tell.arguments.empty() ? "" : ": ", fmt::join(s.tell.arguments, " "));
      },
      step);
}

Plan plan_reconcile(const Snapshot& snapshot, const ObjectOptions& options, const std::string& default_image, Instant now) {
  // By itself, and before anything else: guests join a cluster that is held.
  if (auto hold = plan_hold(snapshot, default_image)) return {.steps = {Update{kube::resources::slurm_clusters, std::move(*hold)}}, .status = snapshot.cluster["status"]};
  const ObjectOptions own = with_gres(snapshot, read_cluster(snapshot, default_image), options);
  Plan plan = ClusterPlanner(snapshot, own, default_image, now).run();
  if (wants_munge_words(snapshot, default_image, now) && (!plan.look_again || kAskMungeAgain < *plan.look_again)) plan.look_again = kAskMungeAgain;
  // The dead first: what the API refuses of the rest ends a round, and their jobs must not wait for it.
  std::stable_partition(plan.steps.begin(), plan.steps.end(), [](const Step& step) {
    const auto* node = std::get_if<NodeStep>(&step);
    return node && node->tell.verb == NodeVerb::Died;
  });
  return plan;
}

}  // namespace fairlead::slurm
