// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/trust.h"

#include <fmt/format.h>

namespace fairlead::hyperpod {

std::string provider_arn(const Site& site, std::string_view issuer) {
  if (issuer.starts_with("https://")) issuer.remove_prefix(8);
  while (issuer.ends_with('/')) issuer.remove_suffix(1);
  return fmt::format("arn:aws:iam::{}:oidc-provider/{}", site.account, issuer);
}

std::string why_not_trusted(const Identity& role, const iam::Caller& caller, std::string_view action, iam::Keys keys, const Site& site, Instant now) {
  if (role.type != api::identities::Type::Role) return "it is no role";
  if (role.disabled) return "the role is disabled";
  if (!role.problem.empty()) return "its Identity has to be mended first: " + role.problem;
  if (!role.trust) return "it has no trust policy";
  iam::Call call{.caller = caller, .action = std::string(action), .resource = role.arn, .resource_account = site.account, .keys = std::move(keys)};
  call.keys.set("aws:CurrentTime", {print_time(now)});
  call.keys.set("aws:EpochTime", {std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count())});
  call.keys.set("aws:SecureTransport", {"true"});
  iam::fill_keys(call);
  const iam::Decision decision = iam::decide(call, {.identity = nullptr, .boundary = nullptr, .session = nullptr, .resource = role.trust.get(), .resource_must_allow = true});
  return decision.allowed() ? "" : decision.reason;
}

std::string why_not_trusted(const Identity& role, std::string_view service, std::string_view action, iam::Keys keys, const Site& site, Instant now) {
  keys.set("aws:SourceAccount", {site.account});
  return why_not_trusted(role, iam::Caller{.type = iam::Caller::Type::Service, .arn = std::string(service), .role_arn = {}, .role_guessed = false, .account = {}}, action, std::move(keys), site, now);
}

}  // namespace fairlead::hyperpod
