// SPDX-License-Identifier: Apache-2.0
// What `slurm export` and `slurm import` share (docs/slurm-move.md).
#pragma once
#include <string>
#include <vector>

#include "cli/set_keeper.h"

namespace fairlead::cli {

struct MoveOptions {
  std::string cluster, space, to, file, passphrase_file, code_file;
  bool dry_run = false, abort = false, hand_over = false, requeue = false;
};

// The first line of a file, or of stdin ("-"). Secrets come so, or from the terminal: never as arguments.
Result<std::string> secret_line(const std::string& path);
// `fresh`: asked twice where a person types it, and refused where it is short.
Result<std::string> passphrase_of(const MoveOptions& options, bool fresh);

// What the pod says to these words. Conflict: its refusal.
Result<std::string> said(Session& session, const SetKeeper& keeper, const std::vector<std::string>& words, std::chrono::milliseconds limit, const std::string& input = "");
Result<kube::Json> state_of(Session& session, const SetKeeper& keeper, const std::vector<std::string>& words);
// "export" or "import" of its list; null: none.
Result<kube::Json> under_way(Session& session, const SetKeeper& keeper, const char* what);

std::string titles_of(const kube::Json& objects);  // "secret/demo-munge, slurmcluster/demo"

Result<int> run_export(Context& context, const MoveOptions& options);
Result<int> run_import(Context& context, const MoveOptions& options);

}  // namespace fairlead::cli
