// SPDX-License-Identifier: Apache-2.0
// REST of a SlurmCluster (docs/design/020): pods rest-0.. with slurmrestd, the Service before them, and tokens, which slurmctld and slurmdbd accept beside munge. Pure.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "slurm/plan/objects.h"

namespace fairlead::slurm {

inline constexpr const char* kTokenKeyFile = "rest_jwt.key";             // in the Secret, as the source operator calls it
inline constexpr const char* kTokenKeyFolder = "/etc/fairlead/token-key";  // where heads and slurmdbd have it mounted, for root alone
inline constexpr const char* kTokenKey = "/run/slurm/rest_jwt.key";      // the companion's copy there, for the user slurm alone

inline bool wants_rest(const api::SlurmCluster& cluster) { return cluster.rest.size > 0; }
std::string token_secret(const api::SlurmCluster& cluster);
std::string rest_service_name(const api::SlurmCluster& cluster);
kube::Json rest_service(const api::SlurmCluster& cluster);  // with an address; only pods that answer stand behind it

// Lines of slurm.conf and of slurmdbd.conf by which tokens count.
std::vector<std::pair<std::string, std::string>> token_config();
bool takes_tokens(const std::string& conf_needs);  // of start_settings (accounting.h)
// Which key the Secret holds; the key cannot be found from it. Empty: none.
std::string token_mark(const kube::Json& secret);
// Whom slurmrestd asks, by address.
std::string rest_asks(const api::SlurmCluster& cluster, const RenderFacts& facts);

}  // namespace fairlead::slurm
