// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/reconcile_planner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "slurm/plan/accounting.h"
#include "slurm/plan/backup.h"
#include "slurm/plan/inputs.h"
#include "slurm/plan/login_service.h"
#include "slurm/plan/rest.h"
#include "slurm/plan/surroundings.h"

namespace fairlead::slurm {

using api::SlurmCluster;
using kube::Json;
namespace resources = kube::resources;

bool ClusterPlanner::account(bool common, bool claims) {
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

void ClusterPlanner::back_up(bool ready) {
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

void ClusterPlanner::plan_rest() {
  if (wants_rest(cluster_) && (!takes_tokens(rollout_.needs) || !find(snapshot_.services, rest_service_name(cluster_)))) return;
  plan_pods(Role::Rest, cluster_, first(cluster_.rest.size), views_[Role::Rest]);
}

bool ClusterPlanner::all_there(const std::vector<Json>& wanted, const std::map<std::string, Json>& have) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const Json& one) { return have.contains(kube::name_of(one)); });
}

bool ClusterPlanner::stands_aside(const std::string& service) const {
  return service == accounting_service(cluster_) || service == accounting_address(cluster_, 0) || service == accounting_address(cluster_, 1) || service == database_service(cluster_) || service == exporter_service(cluster_) || service == rest_service_name(cluster_);
}

bool ClusterPlanner::plan_common() {
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

void ClusterPlanner::plan_login_access() {
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

Json ClusterPlanner::login_metadata(const Json& service) {
  Json out = service["metadata"];
  out.child("labels").set(kRoleLabel, "login");
  return out;
}

void ClusterPlanner::keep_good_configs() {
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

bool ClusterPlanner::plan_policies() {
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

bool ClusterPlanner::same_ports(const Json& a, const Json& b) {
  if (a.items().size() != b.items().size()) return false;
  for (std::size_t i = 0; i < a.items().size(); ++i)
    if (a.items()[i]["port"] != b.items()[i]["port"] || a.items()[i]["name"] != b.items()[i]["name"]) return false;
  return true;
}

bool ClusterPlanner::plan_claims() {
  bool complete = true;
  std::vector<Json> claims = desired_claims(cluster_, Role::Controller, first(cluster_.controller.size));
  const auto add = [&](std::vector<Json> more) { claims.insert(claims.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end())); };
  for (const auto& view : workers_of_)
    if (!view.set.held) add(desired_claims(view, Role::Worker, ordinals_[view.worker_set]));
  add(desired_claims(cluster_, Role::Login, first(cluster_.login.size)));
  for (const auto& more : {accounting_claims(cluster_), backup_claims(cluster_), desired_claims(cluster_, Role::Exporter, first(cluster_.exporter.size))})
    for (const Json& wanted : more)
      if (!find(snapshot_.claims, kube::name_of(wanted))) aside_.push_back(Create{resources::claims, wanted});
  for (const Json& wanted : claims) {
    const Json* have = find(snapshot_.claims, kube::name_of(wanted));
    if (!have) {
      complete = false;
      plan_.steps.push_back(Create{resources::claims, wanted});
    } else if (auto larger = grown_claim(*have, wanted)) {
      growth_.push_back(Update{resources::claims, std::move(*larger)});
    }
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

bool ClusterPlanner::shared(const std::string& source) const {
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

void ClusterPlanner::plan_versions() {
  object_.child("status").set("upgrade", upgrade_.memory);
  if (upgrade_.condition) kube::set_condition(object_, *upgrade_.condition, now_);
  for (const std::string& image : upgrade_.ask)
    if (!find(snapshot_.pods, version_pod_name(cluster_, image))) aside_.push_back(Create{resources::pods, version_pod(cluster_, image)});
  for (const auto& [pod, why] : version_pods_to_end(snapshot_, cluster_, upgrade_.ask, now_)) plan_.steps.push_back(DeletePod{kube::key_of(*pod), kube::uid_of(*pod), why, kube::version_of(*pod)});
  if (!upgrade_.ask.empty()) look_again_in(kTryAgain);
}

}  // namespace fairlead::slurm
