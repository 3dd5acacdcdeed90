// SPDX-License-Identifier: Apache-2.0
// The words of slurm export and slurm import.
#include <CLI/CLI.hpp>

#include "cli/move.h"

namespace fairlead::cli {

void add_slurm_move(CLI::App& slurm, Context& context) {
  auto options = std::make_shared<MoveOptions>();
  const auto common = [&](CLI::App& to, Result<int> (*work)(Context&, const MoveOptions&)) {
    to.add_option("-n,--namespace", options->space, "of the cluster")->type_name("NAME");
    to.add_option("--passphrase-file", options->passphrase_file, "its first line encrypts the export; - for stdin; without: the terminal is asked")->type_name("FILE");
    to.add_option("--code-file", options->code_file, "the code that the source tells at its --hand-over and that opens the target")->type_name("FILE");
    to.add_flag("--dry-run", options->dry_run, "tell what would be done, change nothing");
    add_globals(to, context);
    to.callback([options, work, &context] { context.action = [options, work, &context] { return work(context, *options); }; });
  };
  CLI::App* out = slurm.add_subcommand("export", "Put a whole cluster into an encrypted file, to move it to another place\nslurmctld ends and is kept from running: --abort brings it back, --hand-over gives the cluster away for ever and tells the code without which the target does not start.");
  out->add_option("cluster", options->cluster, "which cluster, if there are several")->type_name("CLUSTER");
  out->add_option("--to", options->to, "file, or folder for it; without: CLUSTER-ID.fairlead here")->type_name("FILE");
  out->add_flag("--requeue-running", options->requeue, "jobs that run go back to the queue; without it the export is refused while any runs");
  out->add_flag("--abort", options->abort, "end the export: its code is destroyed, then slurmctld runs again");
  out->add_flag("--hand-over", options->hand_over, "give the cluster away for ever; the code goes to --code-file, or to stdout");
  common(*out, run_export);
  set_examples(*out, {{"fairlead slurm export demo --dry-run", "what would travel"}, {"fairlead slurm export demo --to /backup --passphrase-file PHRASE", "1. at the source"}, {"fairlead slurm export demo --hand-over --code-file CODE", "3. at the source, when the target is filled"}, {"fairlead slurm export demo --abort", "instead: back as it was"}});
  CLI::App* in = slurm.add_subcommand("import", "Make a cluster of an export, with its queue, job ids, records and keys\nIt starts when it is given the code that the source tells at its --hand-over, and not before. Killed anywhere, type the same again.");
  in->add_option("file", options->file, "the export")->required()->type_name("FILE");
  common(*in, run_import);
  set_examples(*in, {{"fairlead slurm import demo.fairlead -n new --passphrase-file PHRASE", "2. at the target: everything is put in place, nothing starts"}, {"fairlead slurm import demo.fairlead -n new --code-file CODE", "4. at the target: it starts"}});
}

}  // namespace fairlead::cli
