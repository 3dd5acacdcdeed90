// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/result.h"
#include "kube/json.h"
#include "kube/type_table.h"

namespace fairlead::kube {

// RFC 7386.
Json merge_patch(Json target, const Json& patch);
// RFC 6902, all six operations. Invalid: malformed or a path that is not there; Conflict: a failed "test".
Result<Json> json_patch(Json target, const Json& patch);
// Kubernetes' strategic merge by the merge keys of `type` (list of maps by key, primitive lists as sets, atomic otherwise) with $patch: replace|delete|merge,
// $setElementOrder/x, $deleteFromPrimitiveList/x, $retainKeys. Fields that the table does not know merge as RFC 7386.
Result<Json> strategic_merge(Json target, const Json& patch, const TypeTable& table, const Type* type);

}  // namespace fairlead::kube
