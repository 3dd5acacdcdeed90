// SPDX-License-Identifier: GPL-3.0-or-later
// Checks of nodes as Slurm jobs, for the operator (docs/design/014). A check's jobs are recognised by their name, fairlead-check-UID-RUN, and by their owner: they belong to user nobody, which nobody can be but through root.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fairlead::companion {

struct CheckJob {
  std::string id, run, state;
  std::vector<std::string> requested, nodes;  // what it insists on, where it is or was
  int exit_code = 0, signal = 0;              // of its script, once it has ended
};
// Output of `squeue -h -a -t all -u nobody -O kCheckFormat`: those of the check. Invalid: a line was not understood.
inline constexpr const char* kCheckFormat = "jobid:|,state:|,exit_code:|,reqnodes:|,nodelist:|,name:|";
Result<std::vector<CheckJob>> read_check_jobs(std::string_view text, std::string_view uid);
inline constexpr std::string_view kCheckMark = "fairlead: check ";  // in the reason of every drain and comment of a check, behind a prefix that the user chose

// Is this what a check of ours wrote? Then another one may take its place.
bool comment_is_ours(std::string_view comment);
// The comment in a line of `scontrol -o show node`; empty: none.
std::string comment_of(std::string_view line);

// check-look UID [NODE...]: nodes, the check's jobs, which of the named nodes are drained and have nothing on them, and the trials (check_trial.h), as JSON. check-run UID RUN MINUTES [--reservation NAME] NODE...: the script from stdin as one job on each node ("-": anywhere), where there is none yet; JSON {"jobs":[{"node","id" or "error"}]}.
// check-cancel UID ID. check-drain NODE MOST REASON: unless MOST nodes are out of service for checks already. check-comment NODE TEXT: unless somebody else's comment is there.
bool is_check_command(std::string_view command);
// Exit status as of run_node_command (nodes.h).
int run_check_command(const std::vector<std::string>& arguments);

}  // namespace fairlead::companion
