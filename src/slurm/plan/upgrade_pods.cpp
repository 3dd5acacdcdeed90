// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/upgrade_pods.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/node_set.h"
#include "base/encoding.h"
#include "slurm/plan/accounting.h"
#include "slurm/plan/custom_config.h"
#include "slurm/plan/inputs.h"
#include "slurm/plan/pod_parts.h"
#include "slurm/plan/trouble.h"

namespace fairlead::slurm {
namespace {

using api::SlurmCluster;
using kube::Json;

constexpr auto kAskAgain = std::chrono::seconds(30);
constexpr const char* kHeads = "slurmctld";
constexpr const char* kLogin = "login";
constexpr const char* kExporter = "exporter";
constexpr const char* kRest = "rest";

// No other kind has such a name, whatever the set's is.
std::string kind_of_set(const std::string& set) { return "workers of " + set; }

std::string image_of(const Json& pod, std::string_view container) {
  for (const Json& one : pod["spec"]["containers"].items())
    if (one["name"].string() == container) return one["image"].string();
  return "";
}

bool of_versions(const Json& pod, const SlurmCluster& cluster) { return owned_by(pod, cluster) && pod["metadata"]["labels"][kRoleLabel].string() == kVersionRole; }

const Json& ended(const Json& pod) {
  static const Json kNone;
  const auto& statuses = pod["status"]["containerStatuses"].items();
  return statuses.empty() ? kNone : statuses[0]["state"]["terminated"];
}

// What the pod said, or why it says nothing. Empty: it is at work.
std::string answer_of(const Json& pod) {
  if (const std::string said(trim(ended(pod)["message"].string())); pod_over(pod)) return !said.empty() ? last_words(said) : pod_trouble(pod).text;
  for (const Json& status : pod["status"]["containerStatuses"].items())
    if (const std::string& why = status["state"]["waiting"]["reason"].string(); why.find("Err") != std::string::npos || why.find("BackOff") != std::string::npos || why.find("Invalid") != std::string::npos) return pod_trouble(pod).text;
  return "";
}

Backup backup_of(const Snapshot& snapshot, const SlurmCluster& cluster) {
  const bool of_database = cluster.accounting.enabled && cluster.accounting.builtin && cluster.accounting.backups.enabled;
  if (!of_database && !cluster.backup.enabled) return Backup::None;
  return kube::condition_is_true(snapshot.cluster, "BackupFresh") ? Backup::Fresh : Backup::Stale;
}

}  // namespace

namespace {

// What a cluster's own operator has put in force, else what its resource names.
std::string image_in_force(const Json& cluster, const std::string& kind, const std::string& named) { return cluster["status"]["upgrade"]["images"][kind].string_or(named); }

std::vector<UpgradePeer> peers_of(const Snapshot& snapshot, const SlurmCluster& cluster) {
  std::vector<UpgradePeer> out;
  const std::string any = cluster.controller.main.image;  // where their resources name none
  if (cluster.accounting.enabled && cluster.accounting.of) {
    if (snapshot.neighbours.host.is_null()) return out;
    const SlurmCluster host = api::read_slurm_cluster(snapshot.neighbours.host, any);
    out.push_back({Part::Records, "slurmdbd of " + cluster.accounting.of->text(), image_in_force(snapshot.neighbours.host, kRecordsKind, host.accounting.dbd.image), kube::condition_is_true(snapshot.neighbours.host, "AccountingAvailable")});
    return out;
  }
  for (const Json& object : snapshot.neighbours.guests) {
    const SlurmCluster guest = api::read_slurm_cluster(object, any);
    if (const api::ClusterRef ref{guest.space, guest.name}; shares_with(cluster, ref)) out.push_back({Part::Heads, "cluster " + ref.text(), image_in_force(object, kHeads, guest.controller.main.image), true});
  }
  return out;
}

}  // namespace

UpgradePlan upgrade_of(const Snapshot& snapshot, const SlurmCluster& cluster, Instant now) {
  UpgradeInput in{.kinds = {}, .peers = peers_of(snapshot, cluster), .memory = snapshot.cluster["status"]["upgrade"], .answers = {}, .backup = backup_of(snapshot, cluster), .without_backup = false, .now = now};
  const auto annotations = kube::annotations_of(snapshot.cluster);
  if (const auto found = annotations.find(kWithoutBackup); found != annotations.end()) in.without_backup = found->second == "true";
  const std::string of_heads = image_in_force(snapshot.cluster, kHeads, cluster.controller.main.image);
  in.heads_wanted = read_custom_config(cluster, config_release(snapshot.cluster["status"], of_heads)).depends_on_release;
  const auto add = [&](Part part, std::string name, const std::string& wanted, std::string_view container, const auto& is_one) -> UpgradeKind& {
    UpgradeKind kind{part, std::move(name), wanted, {}};
    for (const auto& [pod_name, pod] : snapshot.pods)
      if (is_one(pod) && !never_began(pod))
        if (std::string image = image_of(pod, container); !image.empty()) kind.pods.push_back({pod_name, std::move(image), pod_ready(pod)});
    return in.kinds.emplace_back(std::move(kind));
  };
  if (runs_accounting(cluster))
    add(Part::Records, kRecordsKind, cluster.accounting.dbd.image, "slurmdbd", [&](const Json& pod) { return owned_by(pod, cluster) && pod["metadata"]["labels"][kRoleLabel].string() == kAccountingRole; });
  add(Part::Heads, kHeads, cluster.controller.main.image, "slurmctld", [&](const Json& pod) { return of_role(pod, cluster, Role::Controller); });
  for (const SlurmCluster& view : api::worker_views(cluster)) {
    UpgradeKind& kind = add(Part::Workers, kind_of_set(view.worker_set), view.worker.main.image, "slurmd", [&](const Json& pod) { return of_role(pod, view, Role::Worker) && ordinal_of(kube::name_of(pod), view, Role::Worker) >= 0; });
    // Nobody says what they are to be: they stay what they are.
    if (view.set.held) {
      if (kind.pods.empty()) in.kinds.pop_back();
      else kind.wanted = kind.pods.front().image;
    }
  }
  add(Part::Login, kLogin, cluster.login.main.image, "sshd", [&](const Json& pod) { return of_role(pod, cluster, Role::Login); });
  if (cluster.exporter.size > 0) add(Part::Exporter, kExporter, cluster.exporter.main.image, "exporter", [&](const Json& pod) { return of_role(pod, cluster, Role::Exporter); });
  if (cluster.rest.size > 0) add(Part::Rest, kRest, cluster.rest.main.image, "rest", [&](const Json& pod) { return of_role(pod, cluster, Role::Rest); });
  for (const auto& [name, pod] : snapshot.pods)
    if (of_versions(pod, cluster))
      if (std::string said = answer_of(pod); !said.empty()) in.answers[image_of(pod, kVersionRole)] = std::move(said);
  for (const UpgradeKind& kind : in.kinds) {
    const auto of_another = [&](const std::string& image) {
      const auto found = snapshot.pods.find(version_pod_name(cluster, image));
      if (found != snapshot.pods.end() && !of_versions(found->second, cluster))
        in.answers[image] = fmt::format("pod {} is to ask it, and a pod of that name is not of this cluster: remove that one", found->first);
    };
    of_another(kind.wanted);
    for (const UpgradePod& pod : kind.pods) of_another(pod.image);
  }
  return plan_upgrade(in);
}

void use_images(SlurmCluster& cluster, const std::map<std::string, std::string>& images) {
  const auto use = [&](const std::string& kind, api::SlurmContainer& main, api::SlurmContainer& munge) {
    const auto found = images.find(kind);
    if (found == images.end()) return;
    if (munge.image == main.image) munge.image = found->second;  // the default is the image of the daemon
    main.image = found->second;
  };
  use(kRecordsKind, cluster.accounting.dbd, cluster.accounting.munge);
  use(kHeads, cluster.controller.main, cluster.controller.munge);
  use(kind_of_set("worker"), cluster.worker.main, cluster.worker.munge);
  for (auto& set : cluster.sets) use(kind_of_set(set.name), set.role.main, set.role.munge);
  use(kLogin, cluster.login.main, cluster.login.munge);
  use(kExporter, cluster.exporter.main, cluster.exporter.munge);
  use(kRest, cluster.rest.main, cluster.rest.munge);
}

std::string version_pod_name(const SlurmCluster& cluster, const std::string& image) { return fmt::format("{}-version-{}", cluster.name, hex(sha256(image)).substr(0, 10)); }

Json version_pod(const SlurmCluster& cluster, const std::string& image) {
  const auto object = [](std::initializer_list<std::pair<std::string, Json>> members) { return Json::object(members); };
  static constexpr const char* kAsk =
      "PATH=\"$PATH:/usr/local/sbin:/usr/sbin:/sbin\"\n"
      "for program in slurmctld slurmdbd slurmd sinfo slurmrestd; do\n"
      "  if command -v \"$program\" > /dev/null 2>&1; then exec \"$program\" -V > /dev/termination-log 2>&1; fi\n"
      "done\n"
      "echo 'there is no Slurm in it' > /dev/termination-log\n"
      "exit 1\n";
  Json spec = object({{"restartPolicy", "Never"},
                      {"terminationGracePeriodSeconds", 1},
                      {"activeDeadlineSeconds", 600},
                      {"enableServiceLinks", false},
                      {"automountServiceAccountToken", false},
                      {"containers", Json::array({object({{"name", kVersionRole}, {"image", image}, {"command", Json::array({Json("/bin/sh"), Json("-c"), Json(kAsk)})}})})}});
  choose_nodes(cluster, cluster.controller.node_filter, spec);
  if (cluster.controller.pull_secrets.is_array()) spec.set("imagePullSecrets", cluster.controller.pull_secrets);
  return object({{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", metadata(cluster, version_pod_name(cluster, image), kVersionRole)}, {"spec", std::move(spec)}});
}

std::vector<VersionPodEnd> version_pods_to_end(const Snapshot& snapshot, const SlurmCluster& cluster, const std::vector<std::string>& asked, Instant now) {
  std::vector<VersionPodEnd> out;
  for (const auto& [name, pod] : snapshot.pods) {
    if (!of_versions(pod, cluster) || kube::deleting(pod)) continue;
    if (std::find(asked.begin(), asked.end(), image_of(pod, kVersionRole)) == asked.end()) out.push_back({&pod, "the version in its image is known, or not wanted any more"});
    else if (const auto at = parse_time(ended(pod)["finishedAt"].string()); pod_over(pod) && (!at || *at > now || now - *at >= kAskAgain)) out.push_back({&pod, "it did not tell the version in its image and is asked again"});
  }
  return out;
}

}  // namespace fairlead::slurm
