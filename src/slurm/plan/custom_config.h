// SPDX-License-Identifier: Apache-2.0
// The user's part of slurm.conf: spec.slurmConfig, spec.customSlurmConfig, spec.partitionConfiguration. Checked before any daemon sees it: a key that its release of Slurm does not have ends slurmctld, also one that runs.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "api/slurm_cluster.h"
#include "slurm/plan/config_text.h"

namespace fairlead::slurm {

struct CustomConfig {
  std::vector<ConfigEntry> settings;    // KEY=VALUE, each key once, in slurm.conf's spelling
  std::vector<ConfigEntry> lines;       // NodeSet and PartitionName
  bool own_partitions = false;          // partition `main` is not wanted, or is among the lines
  bool own_default = false;             // one of the lines is the default partition
  std::vector<ConfigProblem> problems;  // none: it may go on to the daemon's own check
  bool depends_on_release = false;      // nobody knows which Slurm the image holds, and a later one than 22.05 may have what this one has not
};
// Of which release the keys and options have to be.
struct ConfigRelease {
  std::string name;  // "24.05"; empty: not known, 22.05 is taken, which Fairlead builds
  bool any = false;  // of any: what is rendered was checked before
};
// That of the image of the heads, as status.upgrade remembers it.
ConfigRelease config_release(const kube::Json& status, const std::string& image);
// O(length of the text). Never fails: what is wrong becomes a problem with its line, key and remedy.
CustomConfig read_custom_config(const api::SlurmCluster& cluster, const ConfigRelease& of = {});

// An option list of ours and of the user's as one: ours stay, defaults give way to the user's of the same name.
std::string merge_options(std::string_view key, std::string_view users);

// Keys whose change between two texts of slurm.conf needs slurmctld to start anew; `workers`: slurmd, too.
struct RestartKeys {
  std::vector<std::string> head, workers;  // workers: also in head
};
RestartKeys restart_keys(std::string_view before, std::string_view after);

// The words of the daemon that refused, with the place in the resource that they speak of where one is found.
std::string explain_refusal(const CustomConfig& config, const std::string& words);
std::string place_of_refusal(const CustomConfig& config, const std::string& words);  // the same, the words as they are

}  // namespace fairlead::slurm
