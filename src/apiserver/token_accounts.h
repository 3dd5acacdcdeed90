// SPDX-License-Identifier: Apache-2.0
// Tokens of service accounts as values: what a TokenRequest becomes, and whom a token's claims name. Pure; what must be looked up is an argument.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apiserver/auth_types.h"
#include "base/clock.h"
#include "base/result.h"
#include "kube/json.h"

namespace fairlead::apiserver {

struct TokenSite {
  std::string issuer = "https://kubernetes.default.svc.cluster.local";
  std::vector<std::string> audiences = {"https://kubernetes.default.svc.cluster.local"};  // of this API
};

struct NamedUid {
  std::string name, uid;
  friend bool operator==(const NamedUid&, const NamedUid&) = default;
};
// What the claims of a token say.
struct AccountClaims {
  std::string space;
  NamedUid account;
  std::optional<NamedUid> pod, secret, node;
  std::vector<std::string> audiences;
  std::string id;  // jti
};

// What a lookup tells: enough to know whether a token's objects are still those it was made for.
struct Standing {
  std::string uid, deleted;  // deletionTimestamp; empty: lives
};
using FindStanding = std::function<std::optional<Standing>(const kube::Resource& resource, const kube::ObjectKey& key)>;
using FindObject = std::function<std::optional<kube::Json>(const kube::Resource& resource, const kube::ObjectKey& key)>;

struct TokenPlan {
  kube::Json claims;
  kube::Json answer;  // the TokenRequest but for status.token
};
// `caller`: a node gets only tokens bound to pods on it (NodeRestriction). Errors are those of Kubernetes: Invalid (422: too short), 400 (another account's pod), NotFound,
// Conflict (409: another uid), Forbidden. `id` is the new token's jti.
Result<TokenPlan> plan_token(const kube::Json& request, const kube::ObjectKey& account, const User& caller, const FindObject& find, const TokenSite& site, Instant now,
                             const std::string& id);

// Of a verified token. `audiences`: one of them must be the token's; empty: this API's. Unauthorized: expired, not yet valid, another issuer or audience, malformed.
Result<AccountClaims> read_claims(const kube::Json& claims, const TokenSite& site, const std::vector<std::string>& audiences, Instant now);
// Do the account and what the token is bound to still exist, with the same uids? Unauthorized with the reason.
Result<void> check_standing(const AccountClaims& claims, const FindStanding& find, Instant now);
User user_of(const AccountClaims& claims);

}  // namespace fairlead::apiserver
