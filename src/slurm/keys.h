// SPDX-License-Identifier: Apache-2.0
// Keys that a cluster needs once. Made from the kernel's randomness by OpenSSL; formats are those that munged and sshd read.
#pragma once
#include <map>
#include <string>

#include "base/result.h"
#include "slurm/plan/reconcile.h"

namespace fairlead::slurm {

// Munge: munge.key (1024 random bytes). HostKeys: ssh_host_{rsa,ecdsa,ed25519}_key and .pub. ClientKey: ssh_ed25519 and .pub. Tokens: rest_jwt.key (64 random bytes). Database: password, tls.key, tls.crt and the same as ca.crt. Values are raw bytes.
Result<std::map<std::string, std::string>> make_keys(Keys keys, const std::string& comment);

}  // namespace fairlead::slurm
