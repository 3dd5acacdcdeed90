// SPDX-License-Identifier: GPL-3.0-or-later
// Tries a configuration on a slurmctld of its own, with nothing of the one that runs: own port, own empty state, named after this machine alone (docs/design/007).
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fairlead::companion {

// "NAME SIZE\nBYTES", one file after the other. Invalid: anything else, a name with anything but letters, digits, '.', '_' and '-', more than 16 files.
Result<std::map<std::string, std::string>> read_trial_files(std::string_view input);

inline constexpr const char* kTrialKey = "state/token.key";  // below the folder: a key for this trial alone
// The text for the trial: what would reach the daemon that runs, its state or other programs is replaced or left out.
std::string conf_for_trial(const std::string& slurm_conf, const std::string& host, int port, const std::string& folder);

// Of what slurmctld wrote: the lines that say why it ended, without times and without the trial's own paths.
std::string words_of_daemon(std::string_view log, const std::string& folder);

// Values like TYPE/NAME of keys that only slurmd loads: the plug-in's file name, by key.
std::map<std::string, std::string> worker_plugins(const std::string& slurm_conf);

// All of stdin. Exhausted: more than 4 MiB.
Result<std::string> read_input();

// `check-config`, files by stdin. Exit status 0: slurmctld starts with them. 1: it refuses; stderr says why. 3: not known; stderr says why not.
int run_trial();

}  // namespace fairlead::companion
