// SPDX-License-Identifier: GPL-3.0-or-later
// Does slurmctld answer? A child process asks it again and again by slurm_ping() and writes a byte for each answer: Slurm's library may wait, or end its process, and must do neither in the companion.
#pragma once
#include <optional>
#include <string>

#include "base/process.h"
#include "base/quorum.h"

namespace fairlead::companion {

// What is known of a daemon that has not answered for a while.
struct Silence {
  quorum::Time since_answer{};      // or since its start, if it never answered
  bool answered_ever = false;
  bool stopped = false;             // by a signal (state T of proc(5))
  bool runnable = false;            // a thread of it waits for a processor or a disk
  quorum::Time processor{};         // it used since then
  int times_killed = 0;             // for being silent, lately
};
// Hung, rather than busy: then it is to be killed. Busy ones get ten times as long, twice that after each time that we were wrong to wait no longer; one that is starting half a minute at least.
bool is_hung(const Silence& silence);

// A copy of slurm.conf that names this machine as the controller's, for the probe alone.
std::string own_address_conf(const std::string& slurm_conf);
bool is_key(std::string_view line, std::string_view key);  // a line KEY=... of slurm.conf
std::string controller_name(const std::string& slurm_conf);  // HOST of the first SlurmctldHost=HOST(ADDRESS); empty: none

// The child: never returns but with an error.
int run_probe();
Result<std::pair<Child, Fd>> start_probe(const std::string& slurm_conf_path);

struct ProcessLook {
  bool stopped = false, runnable = false;
  quorum::Time processor{};  // in its life
};
std::optional<ProcessLook> look_at_process(pid_t pid);  // nothing: it is gone

}  // namespace fairlead::companion
