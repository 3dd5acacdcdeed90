// SPDX-License-Identifier: Apache-2.0
// What CreateCluster and UpdateCluster check and ask IAM before they write: the same for who asks for a stack. For the operations alone.
#pragma once
#include "hyperpod/operations.h"

namespace fairlead::hyperpod {

// The Cluster object as CreateCluster would make it; nothing is written. `input`: has passed the model. Errors: those of CreateCluster.
Answer<Json> cluster_to_make(const Sources& sources, const Call& call, const Json& input);
// That UpdateCluster would take `input` for this Cluster, of which cluster_to_change has told; nothing is written. Errors: those of UpdateCluster.
Answer<void> check_cluster_update(const Sources& sources, const Call& call, Json cluster, const Json& input);
// That the caller may give a cluster back what it had before: iam:PassRole of the roles, and the plans, that `before` names and `input` does not. Both as UpdateCluster takes them. AccessDeniedException alone, beside errors of the API.
Answer<void> check_cluster_return(const Sources& sources, const Call& call, const Json& before, const Json& input);

}  // namespace fairlead::hyperpod
