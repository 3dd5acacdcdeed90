// SPDX-License-Identifier: Apache-2.0
// What Slurm knows of its nodes and of one check's jobs, as `fairlead-slurm check-look` prints it inside a head.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "slurm/plan/view.h"

namespace fairlead::slurm {

struct CheckJob {
  std::string id, run, state;
  std::vector<std::string> requested, nodes;  // what it insists on (empty: any node), where it is or was
  int exit_code = 0, signal = 0;              // once it has ended
};
struct CheckView {
  std::map<std::string, SlurmNode> nodes;  // without CPUs, and who drained them
  std::vector<CheckJob> jobs;
};

// Invalid: not the whole answer of a Slurm that answered. The caller then knows nothing.
Result<CheckView> read_check_view(std::string_view json);

}  // namespace fairlead::slurm
