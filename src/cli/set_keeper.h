// SPDX-License-Identifier: Apache-2.0
// The pod that keeps the sets of a Slurm cluster (docs/design/017), which carries restores, exports and imports out.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "cli/command.h"

namespace fairlead::cli {

struct SetKeeper {
  std::string space, cluster, pod;
};
// An empty name: of the only cluster. Unavailable: the pod does not run yet, and why.
Result<SetKeeper> find_set_keeper(Session& session, const std::string& space, const std::string& cluster);
// Its companion program with these words.
Result<kube::ExecResult> ask_set_keeper(Session& session, const SetKeeper& keeper, std::vector<std::string> words, std::chrono::milliseconds limit, const std::string& input = "");
// slurmdbd remembers associations of before; jobs that the database takes for running and the state does not know are closed. Waits until Slurm answers.
Result<void> settle_restored(Context& context, Session& session, const SetKeeper& keeper);

// export and import, below the command slurm.
void add_slurm_move(CLI::App& slurm, Context& context);

}  // namespace fairlead::cli
