// SPDX-License-Identifier: Apache-2.0
// What people ask of a worker's machine through Slurm: `scontrol update nodename=worker-3 state=fail reason="Action:Reboot"` (or Replace), HyperPod's words. Told in status.nodeActions, for whoever has the machine; lifted in Slurm once it is done (docs/design/053). Pure.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/object.h"
#include "slurm/plan/scale.h"

namespace fairlead::slurm {

enum class NodeAction { None, Reboot, Replace };
struct ActionWord {
  NodeAction action = NodeAction::None;
  bool exact = false;  // HyperPod passes over anything else without a word; here a near miss counts, and is told
};
// Of a node's reason. "Action:Reboot", "action: reboot", "Action-Replace."; not "Action:Rebooted by Ada".
ActionWord action_of_reason(std::string_view reason);

struct ActionsInput {
  std::map<std::string, const kube::Json*> pods;   // workers, by name, which is that of their Slurm node; borrowed
  std::map<std::string, const kube::Json*> nodes;  // that have them, by name; borrowed
  kube::Json memory;                               // status.nodeActions as it is stored; null at first
  std::optional<SlurmView> view;                   // none: what was asked for stays so
};
struct ActionsPlan {
  // NAME -> {action, id (of this request: as long as the node is out of service for this reason, whatever time Slurm tells of it), uid of the pod, node (uid) and boot of its machine at that moment, since, by, reason, exact}; null: none.
  kube::Json memory;
  std::vector<TellSlurm> steps;
  std::vector<std::string> notes;  // for condition WorkersAvailable
};
// A state that was asked for so is lifted when the worker is ready on a machine that has booted since (Reboot), or on another (either).
ActionsPlan plan_actions(const ActionsInput& input);

}  // namespace fairlead::slurm
