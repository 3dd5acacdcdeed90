// SPDX-License-Identifier: Apache-2.0
// What of AWS's IAM is needed to manage users, roles, their policies and keys, over Identity objects. Source: docs.aws.amazon.com, IAM API reference 2010-05-08.
#pragma once
#include <string>
#include <string_view>

#include "http/message.h"
#include "hyperpod/front.h"
#include "kube/kube_api.h"

namespace fairlead::hyperpod {

bool is_iam_action(std::string_view action);
// What is inside of <ACTIONResult>. Users: CreateUser, GetUser, ListUsers, DeleteUser; their keys: Create-, List-, Update-, DeleteAccessKey; roles: CreateRole, GetRole, ListRoles, UpdateRole, UpdateAssumeRolePolicy, DeleteRole; policies of both: Put-,
// Get-, List-, DeleteUserPolicy and ...RolePolicy; managed policies: Create-, Get-, List-, DeletePolicy, their versions (Create-, Get-, List-, Set Default-, DeletePolicyVersion), Attach-, Detach-, ListAttached...Policies of users and roles, ListEntitiesForPolicy. Keys lie in namespace `space`. Needs the permission of the same name on the identity's ARN, as in AWS; what has no UserName is about who asks.
Answer<std::string> answer_iam(const std::string& action, const http::Query& form, const Call& call, kube::KubeApi& api, const std::string& space);

}  // namespace fairlead::hyperpod
