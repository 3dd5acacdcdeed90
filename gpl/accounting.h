// SPDX-License-Identifier: GPL-3.0-or-later
// The accounting containers (docs/design/008): slurmdbd, and what slurmctld needs to start while slurmdbd is away.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace fairlead::companion {

// slurmdbd under supervision; the exit status of the container. Its configuration is FAIRLEAD_SLURMDBD_CONF and the password that is mounted, which is nowhere but in a file in memory that slurm alone may read.
int run_accounting();
// 0: the database is reached through this slurmdbd, or the other one serves and this one stands by.
int check_accounting();

// StoragePass as slurmdbd.conf spells it. Invalid: it holds a quote or a line break, which no line of that file can.
Result<std::string> storage_pass_line(const std::string& password);

// A slurmctld that has never met slurmdbd does not start without it ("we have no TRES from it", Slurm 22.05). Its state file last_tres, as it would have saved it: the eight kinds that every slurmdbd numbers alike, then
// `more` ("gres/gpu") numbered from 1001 as a new database does. Protocol 22.05, which slurmctld 22.05 to 23.11 read.
std::string last_tres_bytes(const std::vector<std::string>& more, std::int64_t now_seconds);
// Does `sacctmgr -n -P list tres format=type,name` tell of every kind of `kinds` ("cpu", "gres/gpu")?
bool kinds_are_known(const std::vector<std::string>& kinds, const std::string& told);
// Where slurm.conf names slurmdbd: what place_first_contact needs. Where none of the folders `states` holds that file, waits up to `wait` for an answer from the database first. Blocks.
struct FirstContact {
  std::string slurm_conf;
  bool known_form = true;  // last_tres of this slurmctld's version is as last_tres_bytes writes it
};
std::optional<FirstContact> look_for_first_contact(const std::string& slurm_conf, const std::vector<std::string>& states, std::chrono::seconds wait);
// Before each start of slurmctld; quick. It saves the file five minutes after its first start at the earliest: one that is killed before, by a machine that fails, must start all the same. So the file is written where it is
// missing, and slurmctld reads it only when the database does not answer. A process is left behind that runs meet_accounting.
void place_first_contact(const FirstContact& contact, const std::string& state);
// slurmctld tells the database of its kinds at its start alone. Waits for the database; if that does not know them, or not this cluster, slurmctld is started anew, once. Then it is made to save what it has from the database.
// The exit status.
int meet_accounting(const std::string& slurm_conf);

// FAIRLEAD_CONF_NEEDS ("KEY=VALUE;KEY=VALUE"): the lines of slurm.conf that this pod was made for and that slurmctld reads at its start alone. False: they have not arrived after 90 s.
bool wait_for_settings(const std::string& slurm_conf, const std::string& needs);

}  // namespace fairlead::companion
