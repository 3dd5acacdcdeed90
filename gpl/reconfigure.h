// SPDX-License-Identifier: GPL-3.0-or-later
// Puts a configuration that has come to this head in force, and says whether the daemon stood it.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"

namespace fairlead::companion {

inline constexpr const char* kGeneration = "/run/slurm/generation";  // of the files that slurmctld read last

// What `scontrol show config` says of HASH_VAL: does slurmctld run with the file that scontrol read?
bool same_hash(std::string_view show_config);
// Of the first line of slurm.conf, "# Generation HASH"; empty: there is none.
std::string generation_of(std::string_view slurm_conf);

// `await HASH`: until the files in /etc/slurm are of that generation, 90 s at most.
int await_files(const std::string& hash);
// `reconfigure HASH [--always] [--restart]`. Exit status 0: slurmctld answers, and runs with these files; the nodes are told. Where jobs hold nodes slurmctld is started anew in the end, since a reload counts
// them twice. 1: not done: the files are not there, or slurmctld did not answer before.
// 5: it answered before, and has not done so since, or not with these files. 6: another head is to take over, with these files.
int reconfigure(const std::vector<std::string>& arguments);
// A daemon that ends within its first ten seconds counts as one that cannot run (supervise.h): whoever ends it by intent waits until then, 12 s at most.
void wait_until_slurmctld_has_run();
// SIGTERM, so that it saves, and waits for its end. NotFound: there is none. Unavailable: it has not ended within 60 s.
Result<void> end_slurmctld();
// `take-config HASH`, files by stdin (trial.h), on a worker: slurmctld 22.05 tells each slurmd of a configuration once, and one that did not hear it would keep the earlier files for good. Exit status 0: slurmd has them and
// is told to read them, or had them already. 1: not done. 2: what came is not that configuration.
int take_config(const std::string& hash);
// `generation`: of the slurm.conf that this container's tools and daemons use.
int print_generation();

}  // namespace fairlead::companion
