// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/sts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/encoding.h"
#include "hyperpod/query_protocol.h"

namespace fairlead::hyperpod {
namespace {

constexpr std::chrono::hours longest_chained{1};   // a role assumed by a role
constexpr std::size_t most_policy_characters = 2048;  // of a session, as in AWS

bool is_session_name(std::string_view name) {  // [\w+=,.@-]{2,64}
  return name.size() >= 2 && api::identities::is_name(name);
}

std::string caller_identity(const Call& call) { return xml_element("UserId", call.who.user_id) + xml_element("Account", call.site.account) + xml_element("Arn", call.who.arn); }

// "arn:aws:iam::111122223333:role/path/NAME": the object that would hold it.
std::optional<std::string> role_object(std::string_view arn, const Site& site) {
  const std::string begin = fmt::format("arn:aws:iam::{}:role/", site.account);
  if (!arn.starts_with(begin)) return std::nullopt;
  const std::string_view name = arn.substr(arn.rfind('/') + 1);
  return api::identities::is_name(name) ? std::optional(api::identities::object_name(api::identities::Type::Role, name)) : std::nullopt;
}

Answer<std::string> assume_role(const http::Query& form, const Call& call, const Directory& directory, const SessionSeal& seal) {
  const std::string arn(http::find(form, "RoleArn")), name(http::find(form, "RoleSessionName")), policy(http::find(form, "Policy")), duration(http::find(form, "DurationSeconds"));
  if (arn.size() < 20 || arn.size() > 2048) return invalid(fmt::format("1 validation error detected: Value '{}' at 'roleArn' failed to satisfy constraint: Member must have length between 20 and 2048", arn.substr(0, 256)));
  if (!is_session_name(name)) return invalid(fmt::format("1 validation error detected: Value '{}' at 'roleSessionName' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\w+=,.@-]{{2,64}}", name.substr(0, 256)));
  std::int64_t seconds = 3600;
  if (!duration.empty()) {
    const auto read = std::from_chars(duration.data(), duration.data() + duration.size(), seconds);
    if (read.ec != std::errc() || read.ptr != duration.data() + duration.size()) return invalid(fmt::format("DurationSeconds '{}' is no number", duration.substr(0, 64)));
    if (seconds < 900 || seconds > 43200) return invalid(fmt::format("1 validation error detected: Value '{}' at 'durationSeconds' failed to satisfy constraint: Member must have value between 900 and 43200", seconds));
  }
  for (const auto& [key, value] : form)  // what would take away rights must not be passed over
    if (key.starts_with("PolicyArns") || key.starts_with("Tags.") || key.starts_with("TransitiveTagKeys") || key == "SerialNumber" || key == "TokenCode" || key == "SourceIdentity" || key.starts_with("ProvidedContexts"))
      return invalid(fmt::format("{} is not served here: Policy, DurationSeconds and ExternalId are", key.substr(0, 64)));

  const auto object = role_object(arn, call.site);
  const auto role = object ? directory.identity(*object) : nullptr;
  iam::Keys keys;
  if (const auto external = http::find(form, "ExternalId"); !external.empty()) keys.set("sts:ExternalId", {std::string(external)});
  keys.set("sts:RoleSessionName", {name});
  const auto denied = [&](const std::string& why) { return refuse("AccessDeniedException", fmt::format("User: {} is not authorized to perform: sts:AssumeRole on resource: {}{}", call.who.arn, arn, why)); };
  // A role that is not there is told like one that may not be assumed.
  if (!role || role->arn != arn || !role->trust) return denied("");
  const iam::Call asked = call.question("sts:AssumeRole", arn, std::move(keys));
  const iam::Decision decision = iam::decide(asked, {.identity = call.who.identity->policies.get(), .boundary = call.who.identity->boundary.get(), .session = call.who.session_policies.get(), .resource = role->trust.get(), .resource_must_allow = true});
  if (!decision.allowed()) return denied("");
  if (role->disabled || !role->problem.empty()) return denied(role->disabled ? ": the role is disabled" : ": its Identity has to be mended first: " + role->problem);
  if (std::chrono::seconds(seconds) > role->longest_session) return invalid(fmt::format("The requested DurationSeconds exceeds the MaxSessionDuration set for this role ({} s).", role->longest_session.count()));
  if (call.who.session && std::chrono::seconds(seconds) > longest_chained) return invalid("The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by role chaining");

  Session session{.role = role->object, .role_id = role->id, .name = name, .key_id = {}, .secret = {}, .policies = {}, .issued = call.now, .expires = std::chrono::floor<std::chrono::seconds>(call.now) + std::chrono::seconds(seconds)};
  if (!policy.empty()) {
    if (code_points(policy) > most_policy_characters) return refuse("PackedPolicyTooLarge", fmt::format("Policy has more than {} characters", most_policy_characters));
    if (auto read = iam::read_policy(policy, iam::PolicyKind::Identity); !read) return refuse("MalformedPolicyDocument", read.error().message);
    session.policies.push_back(policy);
  }
  make_session_key(session);
  auto token = seal.close(session);
  if (!token) return refuse("PackedPolicyTooLarge", token.error().message);
  return "<Credentials>" + xml_element("AccessKeyId", session.key_id) + xml_element("SecretAccessKey", session.secret) + xml_element("SessionToken", *token) + xml_element("Expiration", print_time(session.expires)) + "</Credentials><AssumedRoleUser>" +
         xml_element("AssumedRoleId", role->id + ":" + name) + xml_element("Arn", session_arn(*role, name, call.site)) + "</AssumedRoleUser>";
}

}  // namespace

bool is_sts_action(std::string_view action) { return action == "GetCallerIdentity" || action == "AssumeRole"; }

Answer<std::string> answer_sts(const std::string& action, const http::Query& form, const Call& call, const Directory& directory, const SessionSeal& seal) {
  if (const auto version = http::find(form, "Version"); !version.empty() && version != "2011-06-15") return refuse("UnknownOperationException", fmt::format("Could not find operation {} for version {}", action.substr(0, 128), version.substr(0, 64)));
  if (action == "GetCallerIdentity") return caller_identity(call);
  if (action == "AssumeRole") return assume_role(form, call, directory, seal);
  return refuse("UnknownOperationException", fmt::format("Could not find operation {}; GetCallerIdentity and AssumeRole are served here", action.empty() ? "(no Action)" : action.substr(0, 128)));
}

}  // namespace fairlead::hyperpod
