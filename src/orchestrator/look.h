// SPDX-License-Identifier: Apache-2.0
// What plan/preflight.h judges, as a Kubernetes tells it by its API: on any of them, and with the rights of the AWS face (api::identities::aws_access).
#pragma once
#include "kube/kube_api.h"
#include "orchestrator/plan/preflight.h"

namespace fairlead::orchestrator {

// `space`: the server's namespace. Version and authentication mode are the caller's to add. Never fails: what cannot be read is unknown, and says why. Lists nodes and DaemonSets whole.
Facts look(kube::KubeApi& api, const std::string& space);

}  // namespace fairlead::orchestrator
