// SPDX-License-Identifier: Apache-2.0
// Sets of a whole cluster (docs/design/017): pod C-backup-0, which makes them, its claim, and condition BackupFresh. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "slurm/plan/objects.h"

namespace fairlead::slurm {

struct Snapshot;

inline constexpr const char* kBackupRole = "backup";
inline constexpr const char* kSetsFolder = "/var/backups/cluster";

inline bool keeps_sets(const api::SlurmCluster& cluster) { return cluster.backup.enabled && cluster.backup.problems.empty(); }
std::string backup_pod_name(const api::SlurmCluster& cluster);
std::vector<kube::Json> backup_claims(const api::SlurmCluster& cluster);  // of the sets; owned by nobody
kube::Json sets_volume(const api::SlurmCluster& cluster);                 // for pods that see them
kube::Json backup_pod(const api::SlurmCluster& cluster, const ObjectOptions& options);

// The pod to ask what sets there are: `fairlead-slurm sets`. None: it does not run.
std::optional<kube::ObjectKey> wants_sets(const Snapshot& snapshot, const std::string& default_image);

struct BackupPlan {
  std::vector<kube::Json> create;
  std::vector<std::pair<const kube::Json*, std::string>> end;  // pods of the snapshot, and why
  bool tells = false, fresh = false;                           // condition BackupFresh, in place of that of the database alone
  std::string reason, message;
  kube::Json status;                                           // status.backup: the newest set, how many there are, what failed; null: not known
};
// `ready`: keys, configuration and claims are there.
BackupPlan plan_backup(const Snapshot& snapshot, const api::SlurmCluster& cluster, const ObjectOptions& options, bool ready);

}  // namespace fairlead::slurm
