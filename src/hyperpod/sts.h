// SPDX-License-Identifier: Apache-2.0
// Security Token Service: who am I, and roles for a while. Source: docs.aws.amazon.com, STS API reference 2011-06-15.
#pragma once
#include <string>
#include <string_view>

#include "http/message.h"
#include "hyperpod/front.h"

namespace fairlead::hyperpod {

bool is_sts_action(std::string_view action);
// What is inside of <ACTIONResult>. GetCallerIdentity needs no permission, as in AWS. AssumeRole: the role's trust policy has to allow the caller, and the caller's policies too where the trust names only the account.
Answer<std::string> answer_sts(const std::string& action, const http::Query& form, const Call& call, const Directory& directory, const SessionSeal& seal);

}  // namespace fairlead::hyperpod
