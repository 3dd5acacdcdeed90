// SPDX-License-Identifier: Apache-2.0
// SchedulerConfig and ComputeQuota: the policy and the quotas of teams, with the fields of the HyperPod API (docs/task-governance.md). Cluster-wide. Inquiry: a question to task governance (docs/design/039-members-and-inquiries.md).
#pragma once
#include <vector>

#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::api {

std::vector<kube::Json> team_crds();

namespace teams {
inline constexpr const char* made_label = "fairlead.dev/teams";  // "true" on all that follows from policy and quotas
extern const kube::Resource configs, quotas, inquiries;  // fairlead.dev/v1alpha1; inquiries have a namespace
}

}  // namespace fairlead::api
