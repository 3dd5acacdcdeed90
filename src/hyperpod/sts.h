// SPDX-License-Identifier: Apache-2.0
// Security Token Service: who am I, and roles for a while. Source: docs.aws.amazon.com, STS API reference 2011-06-15.
#pragma once
#include <string>
#include <string_view>

#include "http/message.h"
#include "hyperpod/front.h"
#include "hyperpod/web_identity.h"

namespace fairlead::hyperpod {

bool is_sts_action(std::string_view action);
// What is inside of <ACTIONResult>. GetCallerIdentity needs no permission, as in AWS. AssumeRole: the role's trust policy has to allow the caller, and the caller's policies too where the trust names only the account.
Answer<std::string> answer_sts(const std::string& action, const http::Query& form, const Call& call, const Directory& directory, const SessionSeal& seal);

// Temporary credentials of a role: key, secret and the token that holds them.
struct RoleSession {
  Session session;
  std::string token;
};
// A session of `role`, made. PackedPolicyTooLarge: what is sealed in it gets too long.
Answer<RoleSession> open_session(const Identity& role, Session session, const SessionSeal& seal);

// AssumeRoleWithWebIdentity, which is signed by nobody: `token` is what `review` has said of WebIdentityToken, and the role's trust policy has to allow that provider and account.
inline constexpr std::string_view web_identity_action = "AssumeRoleWithWebIdentity";
struct WebSession {
  std::string xml;             // inside of <AssumeRoleWithWebIdentityResult>
  std::string arn, user_id;    // who it is from now on, for the audit
};
Answer<WebSession> assume_with_web_identity(const http::Query& form, const ReviewToken& review, const Directory& directory, const SessionSeal& seal, const std::string& source, Instant now);

}  // namespace fairlead::hyperpod
