// SPDX-License-Identifier: Apache-2.0
// ClusterRoles for people: what `view` and `edit` of a namespace may do with Fairlead's kinds, and what members of a team may do (docs/design/039-members-and-inquiries.md).
#pragma once
#include <vector>

#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::api {

inline constexpr const char *team_member_role = "fairlead-team-member", *team_viewer_role = "fairlead-team-viewer";

// fairlead-view and fairlead-edit, which are added to Kubernetes' own `view` and `edit`; the two of teams. With name and labels, without other metadata.
std::vector<kube::Json> user_roles();

namespace rbac {
extern const kube::Resource cluster_roles, role_bindings, cluster_role_bindings;
}

}  // namespace fairlead::api
