// SPDX-License-Identifier: Apache-2.0
// spec.slurmNodes.accounting and spec.extensions.accounting of a SlurmCluster as a value. What is wrong there stops accounting alone: the cluster goes on (docs/design/008).
#pragma once
#include <chrono>
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
  std::string gather_type;  // JobAcctGatherType, empty: as steps are confined

  std::vector<std::string> problems;  // what must be changed before accounting is made or changed; sentences
  std::vector<std::string> ignored;   // paths whose value has no effect here
};

SlurmAccounting read_slurm_accounting(const kube::Json& spec, const std::string& default_image);

inline constexpr std::int64_t kSmallestDatabase = std::int64_t{512} << 20;  // bytes: an empty one has 150 MiB of files, and a copy of it is loaded to try a backup

}  // namespace fairlead::api
