// SPDX-License-Identifier: Apache-2.0
// Accounting of a SlurmCluster (docs/design/008): pods accounting-0.. with slurmdbd, pod C-acct-db-0 with MariaDB where it is the cluster's own, what slurm.conf says of them, and condition AccountingAvailable. Pure.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "slurm/plan/objects.h"

namespace fairlead::slurm {

struct Snapshot;

inline constexpr const char* kAccountingRole = "accounting";
inline constexpr const char* kDatabaseRole = "database";
inline constexpr const char* kDatabaseName = "slurm_acct_db";

// Is there anything to run? Accounting that is asked for but cannot be carried out keeps what runs and makes nothing.
inline bool runs_accounting(const api::SlurmCluster& cluster) { return cluster.accounting.enabled && !cluster.accounting.of && cluster.accounting.problems.empty(); }

// Switched off, but others' records go to it: what runs of it stays as it is until they are gone.
inline bool kept_for_guests(const api::SlurmCluster& cluster) { return !cluster.accounting.enabled && !cluster.accounting.sharing.partners.empty(); }

// Secret of our own database, made once: password, ca.crt (the server's own certificate, which its clients trust alone), tls.crt, tls.key. slurmdbd gets the first two.
std::string database_secret(const api::SlurmCluster& cluster);
std::string database_host(const api::SlurmCluster& cluster, const RenderFacts& facts);
std::string database_pod_name(const api::SlurmCluster& cluster);
std::string accounting_pod_name(int ordinal);

std::string accounting_service(const api::SlurmCluster& cluster);  // gives each pod its name, which is unknown while there is no such pod
// Gives the pod an address that is there without it, too. Debian's Slurm asks ten times, a second apart, for a name that is unknown; an address behind which nobody is refuses at once, and the second slurmdbd is asked.
std::string accounting_address(const api::SlurmCluster& cluster, int ordinal);
inline constexpr const char* kPodLabel = "fairlead.dev/slurm-pod";  // of pods of slurmdbd: their name, for these Services
// Pods without the label were made by an earlier release: as long as there is one, slurmdbd is asked by the names of its pods.
void settle_addresses(const Snapshot& snapshot, api::SlurmCluster& cluster);
// Of a host's status: guests may ask by these addresses.
bool has_addresses(const Snapshot& snapshot, const api::SlurmCluster& cluster);
std::string database_service(const api::SlurmCluster& cluster);
std::vector<kube::Json> accounting_services(const api::SlurmCluster& cluster);
std::vector<kube::Json> accounting_claims(const api::SlurmCluster& cluster);  // of the database and of its backups; owned by nobody
kube::Json accounting_pod(const api::SlurmCluster& cluster, int ordinal, const ObjectOptions& options);
kube::Json database_pod(const api::SlurmCluster& cluster, const ObjectOptions& options);

// Settings of slurm.conf: where records go, how they are gathered, what they weigh. `gpus`: of any kind of worker.
std::vector<std::pair<std::string, std::string>> accounting_config(const api::SlurmCluster& cluster, const RenderFacts& facts, const Confinement& confinement, bool gpus);
// Of this slurm.conf the setting that a head's pod is made for: another storage of records or other ways to say who one is, and the pod is renewed. What else slurmctld takes at its start alone, a restart in place brings it. "KEY=VALUE;KEY=VALUE"; empty without accounting and tokens.
std::string start_settings(const std::string& slurm_conf);
// slurmdbd.conf without StoragePass, which the companion adds inside the pod.
std::string render_slurmdbd_conf(const api::SlurmCluster& cluster, int ordinal, const RenderFacts& facts);

// What is to be there, and what may be said of it.
struct AccountingState {
  bool wanted = false, available = false;
  std::string reason, message;                         // of condition AccountingAvailable
  bool tells_backups = false, backup_fresh = false;    // condition BackupFresh
  std::string backup_reason, backup_message;
};
struct AccountingPlan {
  std::vector<kube::Json> create;                       // pods
  std::vector<std::pair<const kube::Json*, std::string>> end;  // pods of the snapshot, and why
  bool needs_secret = false;                            // database_secret is to be made
  AccountingState state;
};
// `common`: configuration, keys and services are there; `claims`: so are the claims.
AccountingPlan plan_accounting(const Snapshot& snapshot, const api::SlurmCluster& cluster, const ObjectOptions& options, bool common, bool claims);

}  // namespace fairlead::slurm
