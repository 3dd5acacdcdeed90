// SPDX-License-Identifier: GPL-3.0-or-later
// What a container of a Slurm cluster needs before its daemon starts. Each function may be repeated.
#pragma once
#include <map>
#include <string>

#include "base/result.h"

namespace fairlead::companion {

// Users known on every node: /mnt/jail/etc/{passwd,group,shadow} read through libnss-extrausers, /home in the shared root, adduser that writes there.
Result<void> prepare_users();
// An owned folder. NotFound: no such user in the image.
Result<void> owned_dir(const std::string& path, const std::string& user, unsigned mode);
// Character devices /dev/fairlead-gpu0..n-1 that stand for GPUs where none exist.
Result<void> prepare_mock_gpus(int count);
// A file of the user slurm, there whole or not at all.
Result<void> write_for_slurm(const std::string& path, const std::string& bytes, unsigned mode);
Result<void> replace_link(const std::string& target, const std::string& path);

std::map<std::string, std::string> own_environment();

// The environment of a slurmctld that acknowledges nothing before it is saved (durable/durable.cpp): ours, with the library written out and preloaded. It belongs to the version of this program, so it is written
// each time. FAIRLEAD_DURABLE=off in our environment leaves it out: stock Slurm, which loses up to 5 s of confirmed jobs when it dies.
Result<std::map<std::string, std::string>> durable_environment();
// Whoever is started with it sends without Nagle's delay (durable/nodelay.cpp), as durable_environment() has it, too. Where the library cannot be written out the log says so, and nothing changes.
void send_at_once(std::map<std::string, std::string>& environment);

}  // namespace fairlead::companion
