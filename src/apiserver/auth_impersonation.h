// SPDX-License-Identifier: Apache-2.0
// Acting as somebody else (kubectl --as, --as-group, --as-uid): from the request's headers to whom it wants to be and what it must be allowed for that. Pure.
#pragma once
#include <optional>
#include <vector>

#include "apiserver/auth_types.h"
#include "base/result.h"
#include "http/message.h"

namespace fairlead::apiserver {

struct Impersonation {
  std::vector<Attributes> needed;  // each must be allowed to the one who asks
  User user;                       // who the request then comes from
};
// Empty: the request speaks for itself. Invalid: groups, uid or extra without a user.
Result<std::optional<Impersonation>> parse_impersonation(const http::Headers& headers);

}  // namespace fairlead::apiserver
