// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/backup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/clock.h"
#include "slurm/plan/inputs.h"
#include "slurm/plan/pod_parts.h"
#include "slurm/plan/reconcile.h"
#include "slurm/plan/trouble.h"

namespace fairlead::slurm {
namespace {

using api::SlurmCluster;
using kube::Json;

std::string claim_of_sets(const SlurmCluster& cluster) { return cluster.name + "-backup"; }

Json companion_command(std::string argument, std::string more = "") {
  Json out = Json::array({Json("/opt/fairlead/bin/fairlead-slurm"), Json(std::move(argument))});
  if (!more.empty()) out.push(Json(std::move(more)));
  return out;
}

bool of_backup(const Json& pod, const SlurmCluster& cluster) { return owned_by(pod, cluster) && pod["metadata"]["labels"][kRoleLabel].string() == kBackupRole; }

// Claims that pods on several machines must have at once.
std::vector<std::string> unfit(const Snapshot& snapshot, const SlurmCluster& cluster) {
  std::vector<std::string> out;
  const auto look = [&](const api::SlurmVolume& volume, const std::string& made) {
    std::string claim = made;
    if (!volume.source_name.empty()) {
      const auto source = cluster.volume_sources.find(volume.source_name);
      claim = source == cluster.volume_sources.end() ? "" : source->second["persistentVolumeClaim"]["claimName"].string();
    }
    const Json* have = claim.empty() ? nullptr : find(snapshot.claims, claim);
    if (!have) return;
    for (const Json& mode : (*have)["spec"]["accessModes"].items())
      if (mode.string() == "ReadWriteMany") return;
    out.push_back(claim);
  };
  look(cluster.controller.spool, "");
  look(cluster.backup.volume, claim_of_sets(cluster));
  if (cluster.backup.jail) look(cluster.controller.jail, "");
  return out;
}

std::string told_of(const Json& sets) {
  if (sets["sets"].items().empty()) return "there is no set yet";
  const Json& last = sets["sets"].items().back();
  std::string parts;
  for (const Json& part : last["parts"].items()) parts += (parts.empty() ? "" : ", ") + part.string();
  return fmt::format("set {} ({}; {} MiB) was read back; {} are kept", last["name"].string(), parts, last["bytes"].integer() >> 20, sets["sets"].items().size());
}

}  // namespace

std::string backup_pod_name(const SlurmCluster& cluster) { return cluster.name + "-backup-0"; }

std::vector<Json> backup_claims(const SlurmCluster& cluster) {
  std::vector<Json> out;
  if (!keeps_sets(cluster) || !cluster.backup.volume.source_name.empty()) return out;
  Json meta = metadata(cluster, claim_of_sets(cluster), kBackupRole);
  meta.erase("ownerReferences");  // sets outlive the cluster unless the user removes them
  out.push_back(Json::object({{"apiVersion", "v1"}, {"kind", "PersistentVolumeClaim"}, {"metadata", std::move(meta)}, {"spec", cluster.backup.volume.claim_template}}));
  return out;
}

Json sets_volume(const SlurmCluster& cluster) { return chosen_volume(cluster, "sets", cluster.backup.volume, claim_of_sets(cluster)); }

Json backup_pod(const SlurmCluster& cluster, const ObjectOptions& options) {
  const auto& backup = cluster.backup;
  const std::string name = backup_pod_name(cluster);
  std::string parts = "state";
  if (backup.database) parts += ",database";
  if (backup.jail) parts += ",jail";
  Json volumes = Json::array({sets_volume(cluster), chosen_volume(cluster, "spool", cluster.controller.spool, "")});
  std::vector<Json> mounts = {mount("sets", kSetsFolder), mount("spool", "/var/spool/slurmctld")};
  if (!cluster.controller.jail.source_name.empty()) {  // a restore brings files back
    volumes.push(chosen_volume(cluster, "jail", {cluster.controller.jail.source_name, {}}, ""));
    mounts.push_back(mount("jail", api::kJailVolume));
  }
  push_companion_volume(volumes, options);
  Json settings = Json::array({env("FAIRLEAD_SLURM_CLUSTER", cluster.name), env("FAIRLEAD_SET_SECONDS", std::to_string(backup.interval.count())), env("FAIRLEAD_SET_KEEP", std::to_string(backup.keep)), env("FAIRLEAD_SET_PARTS", parts)});
  if (!backup.schedule.empty()) settings.push(env("FAIRLEAD_SET_SCHEDULE", backup.schedule));
  Json main = Json::object({{"name", "backup"},
                            {"image", cluster.controller.main.image},
                            {"command", companion_command("keep-sets")},
                            {"env", std::move(settings)},
                            {"resources", Json::object()},
                            {"volumeMounts", with_companion(options, std::move(mounts))},
                            {"readinessProbe", Json::object({{"exec", Json::object({{"command", companion_command("check", "sets")}})}, {"periodSeconds", 10}, {"failureThreshold", 3}, {"timeoutSeconds", 8}})}});
  Json spec = Json::object({{"hostname", name},
                            {"restartPolicy", "Always"},
                            {"terminationGracePeriodSeconds", 5},
                            {"enableServiceLinks", false},
                            {"automountServiceAccountToken", false},
                            {"containers", Json::array({dressed(std::move(main), {})})},
                            {"volumes", std::move(volumes)}});
  if (cluster.controller.pull_secrets.is_array()) spec.set("imagePullSecrets", cluster.controller.pull_secrets);
  choose_nodes(cluster, cluster.controller.node_filter, spec);
  return pod_of(cluster, name, kBackupRole, std::move(spec));
}

std::optional<kube::ObjectKey> wants_sets(const Snapshot& snapshot, const std::string& default_image) {
  const SlurmCluster cluster = read_cluster(snapshot, default_image);
  if (!keeps_sets(cluster)) return std::nullopt;
  const Json* pod = find(snapshot.pods, backup_pod_name(cluster));
  if (!pod || !of_backup(*pod, cluster) || kube::deleting(*pod) || (*pod)["status"]["phase"].string() != "Running") return std::nullopt;
  return kube::key_of(*pod);
}

BackupPlan plan_backup(const Snapshot& snapshot, const SlurmCluster& cluster, const ObjectOptions& options, bool ready) {
  BackupPlan out;
  for (const auto& [name, pod] : snapshot.pods)
    if (of_backup(pod, cluster) && !kube::deleting(pod) && (!cluster.backup.enabled || name != backup_pod_name(cluster))) out.end.emplace_back(&pod, "no sets are asked for any more");
  if (!cluster.backup.enabled) return out;
  out.tells = true;
  const auto say = [&](const char* reason, std::string message) {
    out.reason = reason;
    out.message = std::move(message);
  };
  // What is there goes on as it is.
  if (!cluster.backup.problems.empty()) return say("Invalid", fmt::format("{}", fmt::join(cluster.backup.problems, "; "))), out;
  if (const auto claims = unfit(snapshot, cluster); !claims.empty())
    return say("ClaimUnfit", fmt::format("the pod that makes sets needs claims that are ReadWriteMany: {} are not; make them so, or take spec.extensions.backup away", fmt::join(claims, ", "))), out;
  const Json* pod = find(snapshot.pods, backup_pod_name(cluster));
  if (!pod) {
    if (ready) out.create.push_back(backup_pod(cluster, options));
    return say("NotYet", ready ? "the pod that makes sets is being made" : "the claims of the sets are being made, or the cluster is"), out;
  }
  if (!of_backup(*pod, cluster)) return say("PodOfSomebodyElse", fmt::format("a pod {} belongs to somebody else; remove or rename it", backup_pod_name(cluster))), out;
  if (!kube::deleting(*pod)) {
    const Json wanted = backup_pod(cluster, options);
    if (pod_over(*pod)) out.end.emplace_back(pod, "it has ended");
    // It may be restoring: its work goes on in the next one, from where it is.
    else if ((*pod)["metadata"]["annotations"][kTemplateHash] != wanted["metadata"]["annotations"][kTemplateHash]) out.end.emplace_back(pod, "its template has changed");
  }
  out.fresh = pod_ready(*pod);
  std::string failing;
  if (snapshot.sets) {
    const Json& sets = *snapshot.sets;
    out.fresh = sets["fresh"].boolean();
    if (!sets["error"].string().empty()) failing = fmt::format("since {} none can be made: {}", sets["failingSince"].string(), sets["error"].string());
    out.status = Json::object({{"sets", static_cast<std::int64_t>(sets["sets"].items().size())}});
    if (!sets["sets"].items().empty()) {
      const Json& last = sets["sets"].items().back();
      out.status.set("newest", last["name"]).set("time", last["time"]).set("bytes", last["bytes"]).set("nextJobId", last["nextJobId"]);
    }
    if (!failing.empty()) out.status.set("error", sets["error"]).set("failingSince", sets["failingSince"]);
    if (const Json& moving = sets["export"]; moving.is_object()) {
      const bool gone = moving["step"].string() == "moved" || moving["step"].string() == "moving";
      return say(gone ? "Moved" : "Exporting", gone ? fmt::format("this cluster was moved to another place (export {}): slurmctld never runs here again", moving["id"].string())
                                                    : fmt::format("this cluster is being exported since {} (step {}): slurmctld is kept from running", moving["began"].string(), moving["step"].string())),
             out.fresh = false, out;
    }
    if (const Json& moving = sets["import"]; moving.is_object() && moving["step"].string() != "open")
      return say("Importing", moving["step"].string() == "filled" ? fmt::format("the volumes are filled by import {}, which waits for its code (fairlead slurm import ... --code-file)", moving["id"].string()) : fmt::format("the volumes are being filled by import {}", moving["id"].string())), out.fresh = false, out;
    if (sets["restore"].is_object()) return say("Restoring", fmt::format("set {} is being restored since {}: step {}", sets["restore"]["set"].string(), sets["restore"]["began"].string(), sets["restore"]["step"].string())), out.fresh = false, out;
    if (out.fresh) return say(failing.empty() ? "Fresh" : "Failing", told_of(sets) + (failing.empty() ? "" : "; " + failing)), out;
    return say(failing.empty() ? "NotYet" : "Failing", fmt::format("{}, and none {}{}", told_of(sets), cluster.backup.freshness(), failing.empty() ? "" : "; " + failing)), out;
  }
  if (out.fresh) return say("Fresh", fmt::format("the newest set was read back and is {}", cluster.backup.freshness())), out;
  const std::string trouble = kube::deleting(*pod) ? "ending" : pod_trouble(*pod).text;
  return say("NotYet", fmt::format("no set {} has been made; pod {}: {}", cluster.backup.freshness(), kube::name_of(*pod), trouble)), out;
}

}  // namespace fairlead::slurm
