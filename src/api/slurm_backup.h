// SPDX-License-Identifier: Apache-2.0
// spec.extensions.backup of a SlurmCluster as a value: sets of state, database and shared root (docs/design/017). What is wrong there stops backups alone.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "api/slurm_container.h"
#include "kube/json.h"

namespace fairlead::api {

struct SlurmCluster;

struct SlurmBackup {
  bool enabled = false;
  std::chrono::seconds interval = std::chrono::hours(24);
  std::string schedule;               // as crontab(5) says it, in UTC; empty: by the interval
  int keep = 7;
  bool database = true, jail = true;  // beside the state, where the cluster has them
  SlurmVolume volume;                 // of the sets; one claim where nothing is said
  std::vector<std::string> problems;  // sentences

  // Until when the newest set counts as fresh: "younger than 7200 s", "since the time before last of 0 3 * * *".
  std::string freshness() const;
};

// After the rest of the cluster is read: what a set can hold depends on it.
SlurmBackup read_slurm_backup(const kube::Json& spec, const SlurmCluster& cluster);

}  // namespace fairlead::api
