// SPDX-License-Identifier: Apache-2.0
// The way of a changed slurm.conf: checked without the daemon, tried on the daemon, given to the nodes, or taken back (docs/design/007-config-changes.md). What is in force stays until the next is known to be good.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "slurm/plan/objects.h"

namespace fairlead::slurm {

inline constexpr const char* kGoodConfigs = "-slurm-configs-good";  // the ConfigMap with the last rendering that was in force everywhere, behind the cluster's name

// What the trial on a real daemon gave (`fairlead-slurm check-config`).
enum class Verdict { Good, Refused, Unknown };
struct Trial {
  std::string hash;
  Verdict verdict = Verdict::Unknown;
  std::string words;  // of the daemon that refused, or why it could not be asked
};

struct RolloutInput {
  const api::SlurmCluster& cluster;
  const RenderFacts& facts;
  const kube::Json* mounted = nullptr;  // ConfigMap C-slurm-configs, which the pods mount
  const kube::Json* good = nullptr;     // ConfigMap C-slurm-configs-good
  const kube::Json& status;             // of the cluster: configCheck, configRollout, appliedConfigHash
  bool head_ready = false;
  std::optional<Trial> trial;           // of this round
  Instant now;
};

struct Rollout {
  std::string hash;         // of what the resource asks for
  std::string mounted;      // of what the pods mount; empty: nothing yet
  bool write = false;       // the rendering may be given to the pods, or they have it
  bool take_back = false;   // the pods are to get the last good one again
  bool try_it = false;      // a trial is wanted, of `files`
  bool same_heads = true;   // what the pods mount, or shall mount now, names the same controller as the resource
  std::string needs;        // start_settings of what the pods mount, or shall mount now
  std::map<std::string, std::string> files;
  kube::Condition valid;    // ConfigValid
  std::string taken_back;   // why what the resource asks for was taken back; empty: it was not
  bool restart = false;     // slurmctld has to start anew for what the pods mount
  std::string workers_note; // keys that count on a worker from its next start
  kube::Json check, pending;  // status.configCheck, status.configRollout: null where there is nothing to remember
};
Rollout plan_rollout(const RolloutInput& in);

// status.configCheck for a configuration with which the daemon that served went down.
kube::Json gone_down(const std::string& hash, const std::string& image, const std::string& words);

}  // namespace fairlead::slurm
