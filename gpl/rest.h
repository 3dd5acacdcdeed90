// SPDX-License-Identifier: GPL-3.0-or-later
// Tokens (auth/jwt) and slurmrestd, which serves who brings one.
#pragma once
#include <string>

#include "base/result.h"

namespace fairlead::companion {

inline constexpr const char* kTokenKey = "/run/slurm/rest_jwt.key";

// Heads and slurmdbd: the mounted key, where this pod has one, as a file that the user slurm alone reads. Invalid: it is shorter than 32 bytes, which could be found by trying.
Result<void> place_token_key();

// Runs slurmrestd as nobody, at the pod's own addresses. Returns the container's exit status.
int run_rest();
// Does it answer? An exit status for a probe.
int check_rest();

// The IPv4 addresses of "10.0.0.1,fd00::1" with a port, as slurmrestd is given them: Slurm 22.05 speaks IPv4.
std::string listen_addresses(const std::string& pod_ips, const std::string& port);

// "/usr/lib/slurm/openapi_v0_0_38.so" is openapi/v0.0.38.
std::string plugin_of(const std::string& path);

}  // namespace fairlead::companion
