// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/web_identity.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/pod_identity.h"
#include "base/encoding.h"
#include "hyperpod/text.h"

namespace fairlead::hyperpod {

using kube::Json;

namespace {

std::optional<std::string> decode(std::string_view text) {  // base64url without padding
  if (text.find_first_of("+/=") != text.npos) return std::nullopt;
  std::string plain(text);
  for (char& c : plain) c = c == '-' ? '+' : c == '_' ? '/' : c;
  plain.append((4 - plain.size() % 4) % 4, '=');
  auto bytes = parse_base64(plain);
  return bytes ? std::optional(std::move(*bytes)) : std::nullopt;
}

std::string first_extra(const Json& user, const char* key) {
  const auto& values = user["extra"][key].items();
  return values.size() == 1 ? values.front().string() : std::string();
}

}  // namespace

bool TokenClaims::has_audience(std::string_view one) const { return std::find(audiences.begin(), audiences.end(), one) != audiences.end(); }

std::optional<TokenClaims> read_token_claims(std::string_view token) {
  if (token.size() > most_account_token_bytes || std::count(token.begin(), token.end(), '.') != 2) return std::nullopt;
  const auto first = token.find('.'), second = token.rfind('.');
  const auto payload = decode(token.substr(first + 1, second - first - 1));
  const auto json = payload ? kube::parse_json(*payload, {.depth_limit = 16}) : Result<Json>(fail(Code::Invalid, ""));
  if (!json || !json->is_object()) return std::nullopt;
  TokenClaims out{.issuer = (*json)["iss"].string(), .subject = (*json)["sub"].string(), .audiences = {}};
  const Json& audience = (*json)["aud"];
  if (audience.is_string()) out.audiences.push_back(audience.string());
  for (const Json& one : audience.items()) out.audiences.push_back(one.string());
  const std::int64_t seconds = (*json)["exp"].integer(0);
  // Within what an Instant holds.
  if (seconds <= 0 || seconds > 9'000'000'000) return std::nullopt;
  out.expires = Instant(std::chrono::seconds(seconds));
  if (out.issuer.empty() || out.subject.empty()) return std::nullopt;
  return out;
}

Answer<AccountToken> review_account_token(kube::KubeApi& api, std::string_view token, const std::string& audience, Instant now) {
  const auto claims = read_token_claims(token);
  if (!claims) return refuse("InvalidIdentityToken", "The token is not a JSON web token of a service account.");
  if (!claims->has_audience(audience)) return refuse("InvalidIdentityToken", fmt::format("Incorrect token audience: it is for {}, and {} is expected", cut(fmt::format("{}", fmt::join(claims->audiences, ", ")), 200), audience));
  if (now >= claims->expires) return refuse("ExpiredTokenException", "Token expired: the pod's mount has a newer one, if its node could renew it");
  const auto review = api.create(api::pod_identity::token_reviews, Json::object({{"apiVersion", "authentication.k8s.io/v1"}, {"kind", "TokenReview"}, {"spec", Json::object({{"token", std::string(token)}, {"audiences", Json::array({Json(audience)})}})}}));
  if (!review) return refuse("IDPCommunicationError", fmt::format("this site's Kubernetes cannot be asked whose token it is ({}); try again", review.error().code == Code::Forbidden ? "this server lacks the right to create tokenreviews" : "no answer"));
  const Json& status = (*review)["status"];
  const auto& matched = status["audiences"].items();
  // Who knows no audiences tells none: such a token could be meant for anybody.
  if (!status["authenticated"].boolean() || std::none_of(matched.begin(), matched.end(), [&](const Json& one) { return one.string() == audience; }))
    return refuse("InvalidIdentityToken", "The token is not (or no longer) one that this site's Kubernetes has issued: its service account or pod is gone, or its signature is another's.");
  const Json& user = status["user"];
  const std::string& name = user["username"].string();
  constexpr std::string_view prefix = "system:serviceaccount:";
  const auto parts = split(name, ':');
  if (!name.starts_with(prefix) || parts.size() != 4 || parts[2].empty() || parts[3].empty() || claims->subject != name) return refuse("InvalidIdentityToken", "The token is of no service account.");
  return AccountToken{.space = parts[2], .account = parts[3], .pod = first_extra(user, "authentication.kubernetes.io/pod-name"), .pod_uid = first_extra(user, "authentication.kubernetes.io/pod-uid"), .issuer = claims->issuer, .audience = audience};
}

}  // namespace fairlead::hyperpod
