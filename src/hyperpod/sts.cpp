// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/sts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "api/pod_identity.h"
#include "base/encoding.h"
#include "hyperpod/entity.h"
#include "hyperpod/query_protocol.h"
#include "hyperpod/text.h"
#include "hyperpod/trust.h"

namespace fairlead::hyperpod {
namespace {

constexpr std::chrono::hours longest_chained{1};   // a role assumed by a role
constexpr std::size_t most_policy_characters = 2048;  // of a session, as in AWS

bool is_session_name(std::string_view name) {  // [\w+=,.@-]{2,64}
  return name.size() >= 2 && api::identities::is_name(name);
}

std::string caller_identity(const Call& call) { return xml_element("UserId", call.who.user_id) + xml_element("Account", call.site.account) + xml_element("Arn", call.who.arn); }

// What both ways to assume a role ask for.
struct Wanted {
  std::string arn, name, policy;
  std::chrono::seconds life{3600};
};

Answer<Wanted> read_wanted(const http::Query& form) {
  Wanted out{.arn = std::string(http::find(form, "RoleArn")), .name = std::string(http::find(form, "RoleSessionName")), .policy = std::string(http::find(form, "Policy"))};
  const std::string duration(http::find(form, "DurationSeconds"));
  if (out.arn.size() < 20 || out.arn.size() > 2048) return invalid(fmt::format("1 validation error detected: Value '{}' at 'roleArn' failed to satisfy constraint: Member must have length between 20 and 2048", out.arn.substr(0, 256)));
  if (!is_session_name(out.name)) return invalid(fmt::format("1 validation error detected: Value '{}' at 'roleSessionName' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\w+=,.@-]{{2,64}}", out.name.substr(0, 256)));
  if (!duration.empty()) {
    std::int64_t seconds = 0;
    const auto read = std::from_chars(duration.data(), duration.data() + duration.size(), seconds);
    if (read.ec != std::errc() || read.ptr != duration.data() + duration.size()) return invalid(fmt::format("DurationSeconds '{}' is no number", duration.substr(0, 64)));
    if (seconds < 900 || seconds > 43200) return invalid(fmt::format("1 validation error detected: Value '{}' at 'durationSeconds' failed to satisfy constraint: Member must have value between 900 and 43200", seconds));
    out.life = std::chrono::seconds(seconds);
  }
  for (const auto& [key, value] : form)  // what would take away rights must not be passed over
    if (key.starts_with("PolicyArns") || key.starts_with("Tags.") || key.starts_with("TransitiveTagKeys") || key == "SerialNumber" || key == "TokenCode" || key == "SourceIdentity" || key.starts_with("ProvidedContexts"))
      return invalid(fmt::format("{} is not served here: Policy, DurationSeconds and ExternalId are", key.substr(0, 64)));
  return out;
}

// The session that was asked for, within what the role allows.
Answer<RoleSession> make_session(const Wanted& wanted, const Identity& role, Session session, const SessionSeal& seal) {
  if (wanted.life > role.longest_session) return invalid(fmt::format("The requested DurationSeconds exceeds the MaxSessionDuration set for this role ({} s).", role.longest_session.count()));
  session.name = wanted.name;
  session.expires = std::chrono::floor<std::chrono::seconds>(session.issued) + wanted.life;
  if (!wanted.policy.empty()) {
    if (code_points(wanted.policy) > most_policy_characters) return refuse("PackedPolicyTooLarge", fmt::format("Policy has more than {} characters", most_policy_characters));
    if (auto read = iam::read_policy(wanted.policy, iam::PolicyKind::Identity); !read) return refuse("MalformedPolicyDocument", read.error().message);
    session.policies.push_back(wanted.policy);
  }
  return open_session(role, std::move(session), seal);
}

std::string session_xml(const RoleSession& made, const Identity& role, const Site& site) {
  const Session& session = made.session;
  return "<Credentials>" + xml_element("AccessKeyId", session.key_id) + xml_element("SecretAccessKey", session.secret) + xml_element("SessionToken", made.token) + xml_element("Expiration", print_time(session.expires)) + "</Credentials><AssumedRoleUser>" +
         xml_element("AssumedRoleId", role.id + ":" + session.name) + xml_element("Arn", session_arn(role, session.name, site)) + "</AssumedRoleUser>";
}

Answer<std::string> assume_role(const http::Query& form, const Call& call, const Directory& directory, const SessionSeal& seal) {
  const auto wanted = read_wanted(form);
  if (!wanted) return std::unexpected(wanted.error());
  const std::string& arn = wanted->arn;
  const auto object = role_object(arn, call.site);
  const auto role = object ? directory.identity(*object) : nullptr;
  iam::Keys keys = role ? tag_keys({}, Tags(role->tags.begin(), role->tags.end())) : iam::Keys();
  if (const auto external = http::find(form, "ExternalId"); !external.empty()) keys.set("sts:ExternalId", {std::string(external)});
  keys.set("sts:RoleSessionName", {wanted->name});
  const auto denied = [&](const std::string& why) { return refuse("AccessDeniedException", fmt::format("User: {} is not authorized to perform: sts:AssumeRole on resource: {}{}", call.who.arn, arn, why)); };
  // A role that is not there is told like one that may not be assumed.
  if (!role || role->arn != arn || !role->trust) return denied("");
  const iam::Call asked = call.question("sts:AssumeRole", arn, std::move(keys));
  const iam::Decision decision = iam::decide(asked, {.identity = call.who.identity->policies.get(), .boundary = call.who.identity->boundary.get(), .session = call.who.session_policies.get(), .resource = role->trust.get(), .resource_must_allow = true});
  if (!decision.allowed()) return denied("");
  if (role->disabled || !role->problem.empty()) return denied(role->disabled ? ": the role is disabled" : ": its Identity has to be mended first: " + role->problem);
  if (call.who.session && wanted->life > longest_chained && wanted->life <= role->longest_session) return invalid("The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by role chaining");
  Session session{.role = {}, .role_id = {}, .name = {}, .key_id = {}, .secret = {}, .policies = {}, .issued = call.now, .expires = {}};
  const auto made = make_session(*wanted, *role, std::move(session), seal);
  if (!made) return std::unexpected(made.error());
  return session_xml(*made, *role, call.site);
}

}  // namespace

Answer<RoleSession> open_session(const Identity& role, Session session, const SessionSeal& seal) {
  session.role = role.object, session.role_id = role.id;
  make_session_key(session);
  auto token = seal.close(session);
  if (!token) return refuse("PackedPolicyTooLarge", token.error().message);
  return RoleSession{std::move(session), std::move(*token)};
}

Answer<WebSession> assume_with_web_identity(const http::Query& form, const ReviewToken& review, const Directory& directory, const SessionSeal& seal, const std::string& source, Instant now) {
  const Site& site = directory.site();
  if (const auto version = http::find(form, "Version"); !version.empty() && version != "2011-06-15") return refuse("UnknownOperationException", fmt::format("Could not find operation {} for version {}", web_identity_action, version.substr(0, 64)));
  const auto wanted = read_wanted(form);
  if (!wanted) return std::unexpected(wanted.error());
  if (!http::find(form, "ProviderId").empty()) return invalid("ProviderId is for OAuth 2.0 access tokens, which are not served here: leave it out");
  const std::string_view token = http::find(form, "WebIdentityToken");
  if (token.size() < 4 || token.size() > most_account_token_bytes) return invalid("1 validation error detected: Value at 'webIdentityToken' failed to satisfy constraint: Member must have length between 4 and 20000");
  const auto who = review(token, api::pod_identity::web_audience);
  if (!who) return std::unexpected(who.error());
  const auto object = role_object(wanted->arn, site);
  const auto role = object ? directory.identity(*object) : nullptr;
  // A role that is not there is told like one that does not trust: who holds a token of some pod learns nothing of roles.
  const auto denied = [&] {
    return refuse("AccessDeniedException", fmt::format("Not authorized to perform sts:AssumeRoleWithWebIdentity: {} with {} needs a trust policy of its role that names {} as Federated and allows sts:AssumeRoleWithWebIdentity to this :sub and :aud", cut(wanted->arn, 256), who->subject(), provider_arn(site, who->issuer)));
  };
  if (!role || role->arn != wanted->arn) return denied();
  const std::string provider = provider_arn(site, who->issuer);
  const std::string issuer = provider.substr(provider.find('/') + 1);
  iam::Keys keys;
  keys.set(issuer + ":sub", {who->subject()});
  keys.set(issuer + ":aud", {who->audience});
  keys.set("sts:RoleSessionName", {wanted->name});
  if (!source.empty()) keys.set("aws:SourceIp", {source});
  if (!why_not_trusted(*role, iam::Caller{.type = iam::Caller::Type::Federated, .arn = provider, .role_arn = {}, .role_guessed = false, .account = {}}, "sts:AssumeRoleWithWebIdentity", std::move(keys), site, now).empty()) return denied();
  Session session{.role = {}, .role_id = {}, .name = {}, .key_id = {}, .secret = {}, .policies = {}, .issued = now, .expires = {}, .provider = provider};
  const auto made = make_session(*wanted, *role, std::move(session), seal);
  if (!made) return std::unexpected(made.error());
  return WebSession{.xml = session_xml(*made, *role, site) + xml_element("SubjectFromWebIdentityToken", who->subject()) + xml_element("Audience", who->audience) + xml_element("Provider", provider), .arn = session_arn(*role, made->session.name, site), .user_id = who->issuer + ":" + who->audience + ":" + who->subject()};
}

bool is_sts_action(std::string_view action) { return action == "GetCallerIdentity" || action == "AssumeRole" || action == web_identity_action; }

Answer<std::string> answer_sts(const std::string& action, const http::Query& form, const Call& call, const Directory& directory, const SessionSeal& seal) {
  if (const auto version = http::find(form, "Version"); !version.empty() && version != "2011-06-15") return refuse("UnknownOperationException", fmt::format("Could not find operation {} for version {}", action.substr(0, 128), version.substr(0, 64)));
  if (action == "GetCallerIdentity") return caller_identity(call);
  if (action == "AssumeRole") return assume_role(form, call, directory, seal);
  return refuse("UnknownOperationException", fmt::format("Could not find operation {}; GetCallerIdentity, AssumeRole and (unsigned) AssumeRoleWithWebIdentity are served here", action.empty() ? "(no Action)" : action.substr(0, 128)));
}

}  // namespace fairlead::hyperpod
