// SPDX-License-Identifier: Apache-2.0
#include "slurm/control/active_check_controller.h"

#include <fmt/format.h>

#include "api/node_set.h"
#include "kube/object.h"

namespace fairlead::slurm {

using kube::Json;
namespace resources = kube::resources;

Json told_active_check(const Json& check, bool cluster_is_there, Instant now) {
  Json out = check;
  const Json& spec = check["spec"];
  const std::string& cluster = spec["slurmClusterRefName"].string();
  const auto say = [&](const char* reason, std::string message) { kube::set_condition(out, {"Scheduled", "False", reason, std::move(message)}, now); };
  if (spec["suspend"].boolean() && !spec["runAfterCreation"].boolean()) say("Suspended", "spec.suspend is true and nothing is to run after creation");
  else if (!cluster_is_there) say("NoCluster", fmt::format("there is no SlurmCluster {} in this namespace: make it, or name another one in spec.slurmClusterRefName", cluster));
  else if (spec["checkType"].string() == "slurmJob" && spec["slurmJobSpec"]["sbatchScript"].string().empty() && spec["slurmJobSpec"]["sbatchScriptRefName"].string().empty())
    say("NothingToRun", "spec.slurmJobSpec names no script: give sbatchScript or sbatchScriptRefName");
  else say("NotInEffect", fmt::format("checks are not run in this version, on any schedule: run `sbatch` from a timer of your own in cluster {} until then", cluster));
  out.child("status").set("observedGeneration", check["metadata"]["generation"].integer());
  return out;
}

std::vector<kube::Controller::Source> ActiveCheckController::sources() const {
  const auto checks_of_namespace = [this](const kube::Change& change) {
    std::vector<kube::ObjectKey> keys;
    if (!caches_ || (change.before && change.after)) return keys;  // only whether it is there counts
    for (const Json& check : caches_->of(api::kActiveChecks).list(kube::space_of(change.object()))) keys.push_back(kube::key_of(check));
    return keys;
  };
  return {{api::kActiveChecks, space_, kube::key_itself}, {resources::slurm_clusters, space_, checks_of_namespace}};
}

std::optional<kube::Access> ActiveCheckController::access() const { return kube::Access().may({"update"}, api::kActiveChecks, "status", space_); }

Result<kube::Next> ActiveCheckController::reconcile(const kube::ObjectKey& key) {
  const auto check = caches_->of(api::kActiveChecks).get(key);
  if (!check || kube::deleting(*check)) return kube::Next{};
  const bool there = caches_->of(resources::slurm_clusters).get({key.space, (*check)["spec"]["slurmClusterRefName"].string()}).has_value();
  const Json next = told_active_check(*check, there, clock_.now());
  if (next == *check) return kube::Next{};
  auto done = api_.update_status(api::kActiveChecks, next);
  if (!done) return pass(std::move(done.error()), "write status of ActiveCheck " + key.text());
  return kube::Next{};
}

}  // namespace fairlead::slurm
