// SPDX-License-Identifier: Apache-2.0
// Tokens of this site's service accounts, as pods show them in exchange for credentials. Whether one holds, the API that issued it says (TokenReview): keys, expiry, and that account and pod are still there. docs/design/061-credentials.md.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "hyperpod/aws_error.h"
#include "kube/kube_api.h"

namespace fairlead::hyperpod {

inline constexpr std::size_t most_account_token_bytes = 20'000;  // as STS has it

// What a JWT says of itself, unverified: enough to turn away at once what cannot be good.
struct TokenClaims {
  std::string issuer, subject;           // "https://HOST/PATH", "system:serviceaccount:SPACE:NAME"
  std::vector<std::string> audiences;
  Instant expires{};
  bool has_audience(std::string_view one) const;
};
std::optional<TokenClaims> read_token_claims(std::string_view token);

// Whose token it is, proven.
struct AccountToken {
  std::string space, account;
  std::string pod, pod_uid;              // to which it is bound; empty: to none
  std::string issuer, audience;
  std::string subject() const { return "system:serviceaccount:" + space + ":" + account; }
};
// Errors in STS's words. InvalidIdentityToken: none of this site's, not for `audience`, of no service account. ExpiredTokenException. IDPCommunicationError (SDKs try again): the API cannot be asked.
// `audience` is one for which the API itself takes no tokens.
using ReviewToken = std::function<Answer<AccountToken>(std::string_view token, const std::string& audience)>;
Answer<AccountToken> review_account_token(kube::KubeApi& api, std::string_view token, const std::string& audience, Instant now);

}  // namespace fairlead::hyperpod
