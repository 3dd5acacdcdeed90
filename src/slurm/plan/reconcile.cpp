// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/reconcile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "api/node_set.h"
#include "api/slurm_import.h"
#include "slurm/plan/accounting.h"
#include "slurm/plan/backup.h"
#include "slurm/plan/head_pods.h"
#include "slurm/plan/inputs.h"
#include "slurm/plan/jail.h"
#include "slurm/plan/login_renewal.h"
#include "slurm/plan/login_service.h"
#include "slurm/plan/munge_word.h"
#include "slurm/plan/node_sets.h"
#include "slurm/plan/rest.h"
#include "slurm/plan/size.h"
#include "slurm/plan/surroundings.h"
#include "slurm/plan/trouble.h"
#include "slurm/plan/upgrade_pods.h"

namespace fairlead::slurm {
namespace {

using api::SlurmCluster;
using kube::Json;
namespace resources = kube::resources;

struct RoleView {
  int wanted = 0, ready = 0;
  std::vector<std::string> outdated, surplus, trouble, foreign, leaving;
  std::string reason;  // of the first trouble that is known by its words
};

class Planner {
 public:
  Planner(const Snapshot& snapshot, const ObjectOptions& options, const std::string& default_image, Instant now)
      : snapshot_(snapshot), options_(options), upgrade_(upgrade_of(snapshot, read_as_written(snapshot, default_image), now)), cluster_(read_cluster(snapshot, default_image)), size_(plan_size(size_input(snapshot, cluster_, now))), workers_of_(views_in_force(size_input(snapshot, cluster_, now), cluster_, size_.sizes)), active_(active_head(find(snapshot.slices, active_service(cluster_)))), object_(snapshot.cluster), now_(now) {}

  Plan run() {
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

 private:
  // Everything carries an ownerReference: garbage collection takes it, once nobody holds the cluster. Until then slurmdbd and its database are kept as for a cluster that stays: others' records come there. Where the deletion is
  // one in the foreground, Kubernetes ends every pod, also one that is made now.
  Plan leave() {
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
  void say_sharing() {
    const SharingState sharing = tell_sharing(snapshot_, cluster_);
    if (sharing.tells) say("AccountingShared", sharing.used, sharing.reason, sharing.message);
    else unsay("AccountingShared");
  }

  std::vector<const Json*> own_pods() const {
    std::vector<const Json*> out;
    for (const auto& [name, pod] : snapshot_.pods)
      if (owned_by(pod, cluster_)) out.push_back(&pod);
    return out;
  }
  static std::vector<int> first(int size) {
    std::vector<int> out;
    for (int i = 0; i < size; ++i) out.push_back(i);
    return out;
  }
  static constexpr auto kTryAgain = std::chrono::seconds(10), kLookAtSets = std::chrono::seconds(30);

  void remember(const char* name, const Json& value) {
    if (value.is_null()) object_.child("status").erase(name);
    else object_.child("status").set(name, value);
  }
  void look_again_in(std::chrono::nanoseconds time) {
    if (!plan_.look_again || time < *plan_.look_again) plan_.look_again = time;
  }

  bool was_available() const { return kube::condition_is_true(snapshot_.cluster, "ControllersAvailable"); }

  void say(const char* type, bool yes, std::string reason, std::string message) {
    kube::set_condition(object_, {type, yes ? "True" : "False", std::move(reason), std::move(message)}, now_);
  }

  void say_role(const char* type, const RoleView& view) {
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

  // True where everything that is asked for serves.
  bool account(bool common, bool claims) {
    const AccountingPlan accounting = plan_accounting(snapshot_, cluster_, options_, common, claims);
    if (accounting.needs_secret) aside_.push_back(MakeKeys{Keys::Database, database_secret(cluster_)});
    for (const auto& [pod, why] : accounting.end) plan_.steps.push_back(DeletePod{kube::key_of(*pod), kube::uid_of(*pod), why, kube::version_of(*pod)});
    for (const Json& pod : accounting.create) aside_.push_back(Create{resources::pods, pod});
    if (!sharing_unclear(cluster_)) remember("sharedAccounting", sharing_memory(cluster_));
    if (const auto guests = guests_memory(snapshot_, cluster_)) remember("accountingGuests", *guests);
    remember("accountingAddresses", has_addresses(snapshot_, cluster_) ? Json(true) : Json());
    say_sharing();
    if (cluster_.accounting.of && cluster_.accounting.sharing.reason == "Waiting") look_again_in(kTryAgain);
    const AccountingState& state = accounting.state;
    if (kept_for_guests(cluster_)) {
      say("AccountingAvailable", true, "KeptForOthers", "accounting is switched off for this cluster; its pods stay as they are while others keep their records here: see condition AccountingShared");
      return true;
    }
    if (!state.wanted) {
      for (const char* type : {"AccountingAvailable", "BackupFresh"})
        if (kube::find_condition(object_, type)) say(type, false, "TurnedOff", "accounting is switched off; claims of its database stay until they are deleted");
      return true;
    }
    say("AccountingAvailable", state.available, state.reason, state.message);
    if (state.tells_backups) say("BackupFresh", state.backup_fresh, state.backup_reason, state.backup_message);
    return state.available;
  }

  // Sets of the whole cluster. It is available without them; where there are any, BackupFresh speaks of them.
  void back_up(bool ready) {
    const BackupPlan backup = plan_backup(snapshot_, cluster_, options_, ready);
    for (const auto& [pod, why] : backup.end) plan_.steps.push_back(DeletePod{kube::key_of(*pod), kube::uid_of(*pod), why, kube::version_of(*pod)});
    for (const Json& pod : backup.create) aside_.push_back(Create{resources::pods, pod});
    if (backup.tells) {
      say("BackupFresh", backup.fresh, backup.reason, backup.message);
      look_again_in(kLookAtSets);
      if (!backup.status.is_null()) remember("backup", backup.status);
    } else {
      remember("backup", Json());
      if (!cluster_.accounting.enabled && kube::find_condition(object_, "BackupFresh")) say("BackupFresh", false, "TurnedOff", "no sets are made; those that were made stay until they are deleted");
    }
  }

  void unsay(const char* type) {
    if (!kube::find_condition(object_, type)) return;
    Json others = Json::array();
    for (const Json& one : object_["status"]["conditions"].items())
      if (one["type"].string() != type) others.push(one);
    object_.child("status").set("conditions", std::move(others));
  }
  // The cluster is available without it.
  void say_exporter() {
    if (cluster_.exporter.size > 0) say_role("ExporterAvailable", views_[Role::Exporter]);
    else unsay("ExporterAvailable");
  }

  // slurmrestd without tokens would refuse everybody, so it waits for a configuration with them.
  void plan_rest() {
    if (wants_rest(cluster_) && (!takes_tokens(rollout_.needs) || !find(snapshot_.services, rest_service_name(cluster_)))) return;
    plan_pods(Role::Rest, cluster_, first(cluster_.rest.size), views_[Role::Rest]);
  }
  void say_rest() {
    const RoleView& view = views_[Role::Rest];
    if (!wants_rest(cluster_)) return unsay("RestAvailable");
    if (view.wanted == 0) return say("RestAvailable", false, "Waiting", "slurmrestd is started once its key and Service are there and slurmctld is given a configuration with tokens: see conditions CommonAvailable and ConfigValid");
    if (view.ready > 0 && view.ready < view.wanted) return say("RestAvailable", true, "Degraded", fmt::format("{} of {} slurmrestd: {}", view.ready, view.wanted, fmt::join(view.trouble, "; ")));
    say_role("RestAvailable", view);
  }

  void say_heads(const RoleView& view) {
    if (elected(cluster_)) kube::set_condition(object_, heads_.condition({view.wanted, view.ready, witness_ready_, view.trouble}), now_);
  }

  Plan finish(const char* phase, const std::string& waiting) {
    object_.child("status").set("phase", phase);
    object_.child("status").set("observedGeneration", cluster_.generation);
    if (!waiting.empty()) plan_.waiting_for.push_back(waiting);
    plan_.status = object_["status"];
    std::move(aside_.begin(), aside_.end(), std::back_inserter(plan_.steps));
    return std::move(plan_);
  }

  static bool all_there(const std::vector<Json>& wanted, const std::map<std::string, Json>& have) {
    return std::all_of(wanted.begin(), wanted.end(), [&](const Json& one) { return have.contains(kube::name_of(one)); });
  }
  // Accounting and the exporter stand aside: what the API refuses of them (a quota, a class) holds nothing else up.
  bool stands_aside(const std::string& service) const {
    return service == accounting_service(cluster_) || service == accounting_address(cluster_, 0) || service == accounting_address(cluster_, 1) || service == database_service(cluster_) || service == exporter_service(cluster_) || service == rest_service_name(cluster_);
  }

  // Keys, configuration and services. True when pods may be made.
  bool plan_common() {
    bool complete = true;
    std::vector<std::string> missing;  // what the user names and has not made
    const auto need_keys = [&](const std::string& secret, Keys keys, bool users_own) {
      if (find(snapshot_.secrets, secret)) return;
      complete = false;
      if (users_own) missing.push_back(fmt::format("Secret {} (named in spec.secrets.sshdKeysName) is not there: make it, or leave the field empty and keys are made", secret));
      else plan_.steps.push_back(MakeKeys{keys, secret});
    };
    const std::vector<const Json*> pods = own_pods();
    const Json* munge = find(snapshot_.secrets, munge_secret(cluster_));
    bool awaits_key = false;  // of the cluster whose slurmdbd it is to use
    if (munge || pods.empty()) {
      awaits_key = !munge && cluster_.accounting.enabled && cluster_.accounting.of;
      if (awaits_key) {
        complete = false;
        if (cluster_.accounting.sharing.key_ready) plan_.steps.push_back(MakeKeys{Keys::Munge, munge_secret(cluster_), *cluster_.accounting.of});
        else missing.push_back(fmt::format("{}; this cluster begins with the other's munge key, so nothing of it is started before", fmt::join(cluster_.accounting.problems, "; ")));
      } else need_keys(munge_secret(cluster_), Keys::Munge, false);
      if (munge) kube::set_condition(object_, keys_condition(munge_secret(cluster_), munge, pods), now_);
    } else {
      complete = false;
      const auto condition = keys_condition(munge_secret(cluster_), nullptr, pods);
      kube::set_condition(object_, condition, now_);
      plan_.waiting_for.push_back(condition.message);
    }
    if (elected(cluster_)) need_keys(quorum_secret(cluster_), Keys::Quorum, false);
    need_keys(sshd_keys_secret(cluster_), Keys::HostKeys, !cluster_.sshd_keys_secret.empty());
    need_keys(client_key_secret(cluster_), Keys::ClientKey, false);
    if (wants_rest(cluster_)) {
      need_keys(token_secret(cluster_), Keys::Tokens, false);
      // Put there by somebody: slurmctld would not start without.
      if (const Json* tokens = find(snapshot_.secrets, token_secret(cluster_)); tokens && token_mark(*tokens).empty()) {
        complete = false;
        missing.push_back(fmt::format("Secret {} holds no {}: add it, or delete the Secret and a key is made", token_secret(cluster_), kTokenKeyFile));
      }
    }
    if (!cluster_.sshd_config_map.empty() && !find(snapshot_.config_maps, cluster_.sshd_config_map)) {
      complete = false;
      missing.push_back(fmt::format("ConfigMap {} (named in spec.slurmNodes.login.sshdConfigMapRefName) is not there: make it with key sshd_config, or leave the field empty", cluster_.sshd_config_map));
    }
    for (const auto& line : missing) plan_.waiting_for.push_back(line);
    keep_good_configs();
    for (const Json& desired : desired_config_maps(cluster_, options_)) {
      const Json* have = find(snapshot_.config_maps, kube::name_of(desired));
      Json wanted = desired;
      // Where slurmdbd is, the other cluster says.
      if (awaits_key && !have && kube::name_of(desired) == cluster_.name + "-slurm-configs") continue;
      if (kube::name_of(desired) == cluster_.name + "-slurm-configs" && !rollout_.write) {
        if (!have) complete = false;
        const Json* good = find(snapshot_.config_maps, cluster_.name + kGoodConfigs);
        if (!have || !rollout_.take_back || !good) continue;
        wanted.set("data", (*good)["data"]);
        wanted.child("metadata").child("annotations").set(kConfigHash, (*good)["metadata"]["annotations"][kConfigHash]);
      }
      if (!have) {
        complete = false;
        plan_.steps.push_back(Create{resources::config_maps, wanted});
      } else if ((*have)["data"] != wanted["data"]) {
        Json next = *have;
        next.set("data", wanted["data"]);
        if (wanted["metadata"].has("annotations"))
          for (const auto& [key, value] : wanted["metadata"]["annotations"].members()) next.child("metadata").child("annotations").set(key, value);
        plan_.steps.push_back(Update{resources::config_maps, std::move(next)});
      }
    }
    for (const Json& wanted : desired_services(cluster_)) {
      const Json* have = find(snapshot_.services, kube::name_of(wanted));
      if (!have && stands_aside(kube::name_of(wanted))) {
        aside_.push_back(Create{resources::services, wanted});
      } else if (!have) {
        complete = false;
        plan_.steps.push_back(Create{resources::services, wanted});
      } else if (!same_ports((*have)["spec"]["ports"], wanted["spec"]["ports"])) {
        Json next = *have;
        next.child("spec").set("ports", wanted["spec"]["ports"]);
        plan_.steps.push_back(Update{resources::services, std::move(next)});
      }
    }
    if (const Json* old = find(snapshot_.services, exporter_service(cluster_)); old && cluster_.exporter.size == 0 && owned_by(*old, cluster_) && !kube::deleting(*old))
      plan_.steps.push_back(Remove{resources::services, kube::key_of(*old), kube::uid_of(*old), "no exporter is asked for any more", kube::version_of(*old)});
    if (const Json* old = find(snapshot_.services, rest_service_name(cluster_)); old && !wants_rest(cluster_) && owned_by(*old, cluster_) && !kube::deleting(*old))
      plan_.steps.push_back(Remove{resources::services, kube::key_of(*old), kube::uid_of(*old), "no REST is asked for any more", kube::version_of(*old)});
    if (!plan_policies()) complete = false;
    // What was asked for in this round is there in the next; starting pods at once would only make them wait for mounts.
    if (!missing.empty()) say("CommonAvailable", false, "ObjectMissing", fmt::format("{}", fmt::join(missing, "; ")));
    else say("CommonAvailable", complete, complete ? "Ready" : "Making", complete ? "keys, configuration and services are in place" : "keys, configuration and services are being made");
    return complete;
  }

  // Last: a kind of Service that the cluster refuses holds up nothing else.
  void plan_login_access() {
    static const Json kNone;
    const std::string name = cluster_.name + "-login-svc";
    const Json* have = find(snapshot_.services, name);
    if (cluster_.login_service.type.empty()) {
      if (have && owned_by(*have, cluster_) && (*have)["spec"]["clusterIP"].string() != "None" && !kube::deleting(*have))
        plan_.steps.push_back(Remove{resources::services, kube::key_of(*have), kube::uid_of(*have), "no way in from outside is asked for any more", kube::version_of(*have)});
      return;
    }
    if (have && !owned_by(*have, cluster_)) return say("LoginReachable", false, "ServiceOfSomebodyElse", fmt::format("a Service {} belongs to somebody else; remove or rename it", name));
    const Json headless = desired_services(cluster_).front();  // for the labels and the owner
    const auto plan = plan_login_service(have ? *have : kNone, *desired_login_service(cluster_, login_metadata(headless)));
    using What = LoginServicePlan::What;
    if (plan.what == What::Make) plan_.steps.push_back(Create{resources::services, plan.object});
    if (plan.what == What::Change) plan_.steps.push_back(Update{resources::services, plan.object});
    if (plan.what == What::Renew && !kube::deleting(*have))
      plan_.steps.push_back(Remove{resources::services, kube::key_of(*have), kube::uid_of(*have), "it is made anew with an address of its own", kube::version_of(*have)});
    if (auto condition = login_condition(cluster_, have ? *have : kNone)) kube::set_condition(object_, *condition, now_);
  }
  static Json login_metadata(const Json& service) {
    Json out = service["metadata"];
    out.child("labels").set(kRoleLabel, "login");
    return out;
  }

  // What stood the test on every node is kept before anything else takes its place.
  void keep_good_configs() {
    const Json* mounted = find(snapshot_.config_maps, cluster_.name + "-slurm-configs");
    if (!mounted || rollout_.mounted.empty() || !rollout_.taken_back.empty() || snapshot_.cluster["status"]["appliedConfigHash"].string() != rollout_.mounted) return;
    const std::string name = cluster_.name + kGoodConfigs;
    const Json* have = find(snapshot_.config_maps, name);
    if (have && (*have)["data"] == (*mounted)["data"]) return;
    Json next = have ? *have : Json::object({{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", Json::object({{"name", name}, {"namespace", cluster_.space}, {"labels", (*mounted)["metadata"]["labels"]}, {"ownerReferences", Json::array({cluster_.owner})}})}});
    next.set("data", (*mounted)["data"]);
    next.child("metadata").child("annotations").set(kConfigHash, rollout_.mounted);
    if (have) plan_.steps.push_back(Update{resources::config_maps, std::move(next)});
    else plan_.steps.push_back(Create{resources::config_maps, std::move(next)});
  }

  // Pods come after the policies around them, so that none of them is ever open.
  bool plan_policies() {
    bool complete = true;
    std::vector<std::string> foreign;
    std::set<std::string> wanted_names;
    // With a mistake in it nobody knows which ways the pods of accounting need; those that run keep theirs.
    const auto unclear = [&](const std::string& name) {
      if (sharing_unclear(cluster_)) return true;
      return ((cluster_.accounting.enabled && !cluster_.accounting.problems.empty()) || kept_for_guests(cluster_)) && (name.ends_with("-accounting") || name.ends_with("-database"));
    };
    for (const Json& wanted : desired_policies(cluster_, options_)) {
      wanted_names.insert(kube::name_of(wanted));
      const Json* have = find(snapshot_.policies, kube::name_of(wanted));
      if (!have) {
        complete = false;
        plan_.steps.push_back(Create{kNetworkPolicies, wanted});
      } else if (!owned_by(*have, cluster_)) {
        foreign.push_back(kube::name_of(wanted));
      } else if ((*have)["spec"] != wanted["spec"] && !unclear(kube::name_of(wanted))) {
        Json next = *have;
        next.set("spec", wanted["spec"]);
        plan_.steps.push_back(Update{kNetworkPolicies, std::move(next)});
      }
    }
    for (const auto& [name, have] : snapshot_.policies)
      if (owned_by(have, cluster_) && !wanted_names.contains(name) && !kube::deleting(have) && !unclear(name))
        plan_.steps.push_back(Remove{kNetworkPolicies, kube::key_of(have), kube::uid_of(have), "the cluster does without it", kube::version_of(have)});
    if (!cluster_.isolated)
      say("NetworkIsolated", false, "TurnedOff", fmt::format("every address may speak to the cluster's pods: annotation {} is Off", api::kNetworkIsolation));
    else if (!foreign.empty())
      say("NetworkIsolated", false, "PolicyOfSomebodyElse", fmt::format("NetworkPolicies of these names belong to somebody else; remove or rename them: {}", fmt::join(foreign, ", ")));
    else
      say("NetworkIsolated", complete, complete ? "Closed" : "Making", complete ? "closed but for the ways that `fairlead ports` prints" : "network policies are being made");
    return complete;
  }

  static bool same_ports(const Json& a, const Json& b) {
    if (a.items().size() != b.items().size()) return false;
    for (std::size_t i = 0; i < a.items().size(); ++i)
      if (a.items()[i]["port"] != b.items()[i]["port"] || a.items()[i]["name"] != b.items()[i]["name"]) return false;
    return true;
  }

  bool plan_claims() {
    bool complete = true;
    std::vector<Json> claims = desired_claims(cluster_, Role::Controller, first(cluster_.controller.size));
    const auto add = [&](std::vector<Json> more) { claims.insert(claims.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end())); };
    for (const auto& view : workers_of_)
      if (!view.set.held) add(desired_claims(view, Role::Worker, ordinals_[view.worker_set]));
    add(desired_claims(cluster_, Role::Login, first(cluster_.login.size)));
    for (const auto& more : {accounting_claims(cluster_), backup_claims(cluster_), desired_claims(cluster_, Role::Exporter, first(cluster_.exporter.size))})
      for (const Json& wanted : more)
        if (!find(snapshot_.claims, kube::name_of(wanted))) aside_.push_back(Create{resources::claims, wanted});
    for (const Json& wanted : claims)
      if (!find(snapshot_.claims, kube::name_of(wanted))) {
        complete = false;
        plan_.steps.push_back(Create{resources::claims, wanted});
      }
    // Claims that the user names must be there and, when several pods share them, be writable by many: said before any pod exists.
    std::vector<std::string> trouble;
    for (const auto& [name, source] : cluster_.volume_sources) {
      const std::string& claim = source["persistentVolumeClaim"]["claimName"].string();
      if (claim.empty()) continue;
      const Json* have = find(snapshot_.claims, claim);
      if (!have) {
        trouble.push_back(fmt::format("claim {} is not there; create it", claim));
        continue;
      }
      bool many = false;
      for (const Json& mode : (*have)["spec"]["accessModes"].items()) many = many || mode.string() == "ReadWriteMany";
      if (!many && shared(name)) trouble.push_back(fmt::format("claim {} is shared by several pods but is not ReadWriteMany; make it with accessModes: [ReadWriteMany]", claim));
    }
    say("VolumesReady", trouble.empty(), trouble.empty() ? "Ready" : "ClaimUnfit", trouble.empty() ? "every claim is there and fit" : fmt::format("{}", fmt::join(trouble, "; ")));
    for (auto& line : trouble) plan_.waiting_for.push_back(std::move(line));
    // Told, but no reason to hold anything back: some classes make a volume only when a pod has its machine.
    if (trouble.empty())
      if (const auto unbound = unbound_claims(snapshot_.claims, claims_waited_for(own_pods())); !unbound.empty()) say("VolumesReady", false, "ClaimPending", fmt::format("{}", fmt::join(unbound, "; ")));
    return complete && plan_.waiting_for.empty();
  }

  bool shared(const std::string& source) const {
    int pods = 0;
    const auto count = [&](const api::SlurmRole& role) {
      const bool uses = role.jail.source_name == source || role.spool.source_name == source ||
                        std::any_of(role.sub_mounts.begin(), role.sub_mounts.end(), [&](const auto& sub) { return sub.source_name == source; });
      if (uses) pods += role.size;
    };
    count(cluster_.controller);
    count(cluster_.login);
    count(cluster_.exporter);
    count(cluster_.rest);
    for (const auto& view : workers_of_) count(view.worker);
    return pods > 1;
  }

  // From one version of Slurm to another: cluster_ has the images in force already.
  void plan_versions() {
    object_.child("status").set("upgrade", upgrade_.memory);
    if (upgrade_.condition) kube::set_condition(object_, *upgrade_.condition, now_);
    for (const std::string& image : upgrade_.ask)
      if (!find(snapshot_.pods, version_pod_name(cluster_, image))) aside_.push_back(Create{resources::pods, version_pod(cluster_, image)});
    for (const auto& [pod, why] : version_pods_to_end(snapshot_, cluster_, upgrade_.ask, now_)) plan_.steps.push_back(DeletePod{kube::key_of(*pod), kube::uid_of(*pod), why, kube::version_of(*pod)});
    if (!upgrade_.ask.empty()) look_again_in(kTryAgain);
  }

  // Workers that are proven to be dead.
  void plan_lost() {
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

  void say_autoscaling() {
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
  static constexpr std::chrono::seconds kFollow{5};

  // Which workers are to be there, and what is done with the others: kind by kind.
  void plan_workers() {
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

  // Nothing that lives in the jail is made or renewed before it is whole; what runs goes on.
  void plan_root() {
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

  // One condition for all workers; each NodeSet has its own beside.
  void sum_up_workers() {
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

  void plan_set(const SlurmCluster& view) {
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

  void plan_pods(Role role, const SlurmCluster& cluster, std::vector<int> ordinals, RoleView& view) {
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

  bool has_other_key(const Json& pod) const {
    const Json* head = find(snapshot_.pods, pod_name(Role::Controller, 0));
    const std::string &mine = pod["metadata"]["annotations"][kMungeMark].string(), &its = head ? (*head)["metadata"]["annotations"][kMungeMark].string() : mine;
    return !mine.empty() && !its.empty() && mine != its;
  }

  void plan_login_mounts() {
    LoginRenewal renewal = plan_login_renewal(login_pods(snapshot_, cluster_), snapshot_.cluster["status"]["loginRenewal"], now_);
    auto& told = views_[Role::Login].leaving;
    told.insert(told.end(), renewal.notes.begin(), renewal.notes.end());
    remember("loginRenewal", renewal.memory);
    if (renewal.look_again) look_again_in(*renewal.look_again);
    if (renewal.end.empty()) return;
    const Json& pod = snapshot_.pods.at(renewal.end);
    plan_.steps.push_back(DeletePod{kube::key_of(pod), kube::uid_of(pod), "it is to have other sub-mounts, and nobody is logged in", kube::version_of(pod)});
  }

  bool others_serve(Role role, int ordinal, int size) const {
    for (int i = 0; i < size; ++i)
      if (const Json* other = find(snapshot_.pods, pod_name(role, i)); i != ordinal && (!other || !pod_ready(*other))) return false;
    return true;
  }

  void make_pod(Json pod, RoleView& view) {
    if (const Json* secret = find(snapshot_.secrets, munge_secret(cluster_)))
      if (const std::string mark = munge_mark(*secret); !mark.empty()) pod.child("metadata").child("annotations").set(kMungeMark, mark);
    view.trouble.push_back(kube::name_of(pod) + " is being made");
    plan_.steps.push_back(Create{resources::pods, std::move(pod)});
  }

  // True: several heads become one, and nothing else is done with heads.
  bool others_go(RoleView& view) {
    auto fewer = heads_.become_one(options_, jail_ready_ && rollout_.same_heads);
    if (!fewer) return false;
    view.ready += fewer->first_ready ? 1 : 0;
    std::move(fewer->foreign.begin(), fewer->foreign.end(), std::back_inserter(view.foreign));
    if (fewer->make) make_pod(std::move(*fewer->make), view);
    std::move(fewer->end.begin(), fewer->end.end(), std::back_inserter(plan_.steps));
    std::move(fewer->trouble.begin(), fewer->trouble.end(), std::back_inserter(view.trouble));
    return true;
  }

  void plan_reload() {
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

  // slurmctld runs with it. Does every node?
  void say_applied(const std::string& hash) {
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
      return say("ConfigApplied", false, "NodesDiffer", fmt::format("slurmctld runs with configuration {}; not seen yet on {}", hash, fmt::join(names, ", ")));
    }
    say("ConfigApplied", true, "Applied", fmt::format("slurmctld and every ready node run with configuration {}{}", hash, note));
  }

  const Snapshot& snapshot_;
  ObjectOptions options_;  // with what this round's configuration needs
  const UpgradePlan upgrade_;
  const SlurmCluster cluster_;
  const SizePlan size_;  // of kinds of workers that follow the queue
  const std::vector<SlurmCluster> workers_of_;  // one view for each kind of workers
  const std::optional<ActiveHead> active_;  // of several
  const HeadPods heads_{snapshot_, cluster_, active_};
  Json object_;  // a copy whose status is built up
  const Instant now_;
  std::map<Role, RoleView> views_;
  std::map<std::string, RoleView> sets_;              // of workers, by the name of their set
  std::map<std::string, std::vector<int>> ordinals_;  // that are to be there
  std::map<std::string, Json> memories_;              // status.scaleDown of NodeSets
  bool jail_ready_ = true;
  bool witness_ready_ = false;  // of two heads
  Rollout rollout_;
  Plan plan_;
  std::vector<Step> aside_;  // taken last
};

}  // namespace

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
        if constexpr (std::is_same_v<S, NodeStep>) return fmt::format("{} {}{}{}", text(s.tell.verb), s.tell.node, s.tell.arguments.empty() ? "" : ": ", fmt::join(s.tell.arguments, " "));
      },
      step);
}

Plan plan_reconcile(const Snapshot& snapshot, const ObjectOptions& options, const std::string& default_image, Instant now) {
  // By itself, and before anything else: guests join a cluster that is held.
  if (auto hold = plan_hold(snapshot, default_image)) return {.steps = {Update{kube::resources::slurm_clusters, std::move(*hold)}}, .status = snapshot.cluster["status"]};
  const ObjectOptions own = with_gres(snapshot, read_cluster(snapshot, default_image), options);
  Plan plan = Planner(snapshot, own, default_image, now).run();
  if (wants_munge_words(snapshot, default_image, now) && (!plan.look_again || kAskMungeAgain < *plan.look_again)) plan.look_again = kAskMungeAgain;
  // The dead first: what the API refuses of the rest ends a round, and their jobs must not wait for it.
  std::stable_partition(plan.steps.begin(), plan.steps.end(), [](const Step& step) {
    const auto* node = std::get_if<NodeStep>(&step);
    return node && node->tell.verb == NodeVerb::Died;
  });
  return plan;
}

}  // namespace fairlead::slurm
