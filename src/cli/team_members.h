// SPDX-License-Identifier: Apache-2.0
// Members of a team as people write them, and as subjects of a RoleBinding. Pure.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::cli {

// "ada" and "user:ada": a user; "group:NAME"; "serviceaccount:NAMESPACE/NAME". Invalid: nothing of these.
Result<kube::Json> read_subject(const std::string& text);
std::string text_of_subject(const kube::Json& subject);  // as read_subject() takes it

// With these added or taken away; others stay, in their order. `tell`: each of them, and whether that changed anything. False: nothing changed.
bool change_members(kube::Json& binding, const std::vector<kube::Json>& who, bool add, const std::function<void(const kube::Json& subject, bool news)>& tell);

}  // namespace fairlead::cli
