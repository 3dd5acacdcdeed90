// SPDX-License-Identifier: GPL-3.0-or-later
// slurm.conf for the commands that people type on login nodes and workers (docs/design/028-addresses-of-workers.md). sattach, sbcast and sstat speak to slurmd themselves, and find only nodes that slurm.conf names; our workers
// register themselves, so slurmctld's names none. Here all that there may be are named, by what DNS knows them as.
#pragma once
#include <string>

namespace fairlead::companion {

// The text with a line for the workers of each set (NodeSet=NAME Feature=NAME), up to MaxNodeCount of each and 4096 in all. Without a name of the cluster's own DNS in SlurmctldHost, workers are looked up by their bare names.
std::string client_conf(const std::string& slurm_conf);

// Files of `from` have come to `to`, slurm.conf as client_conf(); those that are not there any more are gone. `generation`, which says that all others are there, comes last. False: something could not be written, and the log says what.
bool follow_conf(const std::string& from, const std::string& to);

// Starts a process that keeps doing so, and ends with this one.
void keep_client_conf(const std::string& from, const std::string& to);

}  // namespace fairlead::companion
