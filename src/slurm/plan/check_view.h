// SPDX-License-Identifier: Apache-2.0
// What Slurm knows of its nodes and of one check's jobs, as `fairlead-slurm check-look` prints it inside a head.
#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "slurm/plan/view.h"

namespace fairlead::slurm {

struct CheckJob {
  std::string id, run, state;
  std::vector<std::string> requested, nodes;  // what it insists on (empty: any node), where it is or was
  int exit_code = 0, signal = 0;              // once it has ended
  std::string uid{}, why{};                   // of a Kubernetes Job; why it has no result, for people
};
struct CheckView {
  std::map<std::string, SlurmNode> nodes;  // without CPUs, and who drained them
  std::vector<CheckJob> jobs;
  std::set<std::string> empty;                // of the nodes that were asked for: drained, and nothing of anybody's is on them
  std::map<std::string, std::string> trials;  // node -> the reservation under which a check is tried on it (docs/design/022)
  bool knows_trials = false;                  // the companion does
};

// Invalid: not the whole answer of a Slurm that answered. The caller then knows nothing.
Result<CheckView> read_check_view(std::string_view json);

}  // namespace fairlead::slurm
