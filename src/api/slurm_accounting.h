// SPDX-License-Identifier: Apache-2.0
// spec.slurmNodes.accounting and spec.extensions.accounting of a SlurmCluster as a value. What is wrong there stops accounting alone: the cluster goes on (docs/design/008).
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/slurm_container.h"
#include "kube/json.h"

namespace fairlead::api {

struct SlurmDatabase {  // somebody else's
  std::string host, user, password_secret, password_key;
  std::string ca_secret, ca_key;  // empty: the connection is not encrypted, which mode Disabled asks for
  int port = 3306;
};
struct SlurmBackups {  // of the built-in database
  bool enabled = true;
  std::chrono::seconds interval = std::chrono::hours(24);
  int keep = 7;
  SlurmVolume volume;  // a claim like the database's own where nothing is said
};

// A SlurmCluster of another namespace.
struct ClusterRef {
  std::string space, name;
  std::string text() const { return space + "/" + name; }
  friend auto operator<=>(const ClusterRef&, const ClusterRef&) = default;
};
// Another cluster that keeps its records at the same slurmdbd: ours, or its own where `serves`.
struct SlurmPartner {
  ClusterRef cluster;
  int slurmctld_port = 6817, slurmdbd_port = 6819;
  bool serves = false;
};
// What became of `of` and `shared_with`; not of the resource, see slurm/plan/sharing.h.
struct SlurmSharing {
  bool joined = false;               // records go to the other's slurmdbd
  bool key_ready = false;            // its munge key may be copied, where there is none yet
  int port = 6819, replicas = 1;     // of the other's slurmdbd
  bool addressed = false;            // each of its pods has an address of its own
  std::string reason, message;       // what is wrong, for a condition; empty: nothing
  std::vector<SlurmPartner> partners;
};

struct SlurmAccounting {
  bool enabled = false;
  int replicas = 1;  // of slurmdbd: 1 or 2
  std::string node_filter;
  SlurmContainer dbd, munge;
  bool builtin = true;
  SlurmContainer db;       // built in
  SlurmVolume data;        // neither: an emptyDir, for trying out
  SlurmDatabase external;  // otherwise
  SlurmBackups backups;
  // Lines for slurm.conf and slurmdbd.conf by the keys of Slurm; each value is one word that needs no quotes.
  std::vector<std::pair<std::string, std::string>> slurm_conf, slurmdbd_conf;
  std::optional<ClusterRef> of;          // whose slurmdbd takes the records; none: this cluster has its own
  std::vector<ClusterRef> shared_with;   // who may use this cluster's slurmdbd: those that do (status.accountingGuests), then in the order of the resource
  SlurmSharing sharing;
  // Do all pods of slurmdbd that are there, does the first, answer at addresses of their own? Not of the resource, see slurm/plan/accounting.h.
  bool addressed = true, first_addressed = true;
  std::string gather_type;  // JobAcctGatherType, empty: as steps are confined

  std::vector<std::string> problems;  // what must be changed before accounting is made or changed; sentences
  std::vector<std::string> ignored;   // paths whose value has no effect here
};

SlurmAccounting read_slurm_accounting(const kube::Json& spec, const std::string& default_image, const std::string& own_space);

inline constexpr std::size_t kMostGuests = 100;  // each has its rules in the policies of the others
inline constexpr std::int64_t kSmallestDatabase = std::int64_t{512} << 20;  // bytes: an empty one has 150 MiB of files, and a copy of it is loaded to try a backup

}  // namespace fairlead::api
