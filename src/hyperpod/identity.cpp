// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/identity.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"
#include "hyperpod/access_policies.h"

namespace fairlead::hyperpod {

using kube::Json;

namespace {

std::shared_ptr<const iam::Bundle> bundle(std::vector<std::pair<std::string, const Json*>> documents, iam::PolicyKind kind, std::string& problem, std::vector<iam::Document> read = {}) {
  for (const auto& [name, field] : documents) {
    auto policy = iam::read_policy(document_text(*field), kind);
    if (!policy) {
      if (problem.empty()) problem = fmt::format("{}: {}", name, policy.error().message);
      continue;
    }
    read.push_back({name, std::move(*policy)});
  }
  return std::make_shared<const iam::Bundle>(std::move(read), kind);
}

}  // namespace

std::string identity_arn(const Json& object, const Site& site) {
  const Json& spec = object["spec"];
  return fmt::format("arn:aws:iam::{}:{}{}{}", site.account, spec["type"].string() == "User" ? "user" : "role", spec["path"].string_or("/"), spec["name"].string());
}

std::string managed_policy_arn(const Json& object, const Site& site) { return fmt::format("arn:aws:iam::{}:policy{}{}", site.account, object["spec"]["path"].string_or("/"), object["spec"]["name"].string()); }

ManagedPolicy read_managed_policy(const Json& object, const Site& site) {
  const Json& spec = object["spec"];
  ManagedPolicy out{.object = kube::name_of(object), .uid = kube::uid_of(object), .name = spec["name"].string(), .path = spec["path"].string_or("/"), .arn = managed_policy_arn(object, site), .policy = {}, .problem = {}};
  if (!api::identities::is_policy_name(out.name)) out.problem = "spec.name: up to 128 of A-Z, a-z, 0-9 and +=,.@_- are expected";
  else if (const std::string expected = api::identities::policy_object_name(out.name); expected != out.object) out.problem = fmt::format("policy {} has to be in the object {}, not in {}", out.name, expected, out.object);
  else if (!out.path.starts_with('/') || !out.path.ends_with('/')) out.problem = "spec.path: it begins and ends with /";
  if (!out.problem.empty()) return out;
  auto policy = iam::read_policy(document_text(spec["document"]), iam::PolicyKind::Identity);
  if (policy) out.policy = std::make_shared<const iam::Policy>(std::move(*policy));
  else out.problem = policy.error().message;
  return out;
}

std::string document_text(const Json& field) { return field.is_string() ? field.string() : kube::print_json(field); }

Identity read_identity(const Json& object, const Site& site, const FindPolicy& find) {
  const Json& spec = object["spec"];
  Identity out{.object = kube::name_of(object), .uid = kube::uid_of(object), .name = spec["name"].string(), .path = spec["path"].string_or("/")};
  const auto type = api::identities::read_type(spec["type"].string());
  if (!type || !api::identities::is_name(out.name)) {
    out.problem = "spec.type or spec.name: a User or a Role with a name of up to 64 of A-Z, a-z, 0-9 and +=,.@_- is expected";
    return out;
  }
  out.type = *type;
  const bool user = out.type == api::identities::Type::User;
  // Two objects must not be the same user: only the one that is named after it is.
  if (const std::string expected = api::identities::object_name(out.type, out.name); expected != out.object) out.problem = fmt::format("{} {} has to be in the object {}, not in {}", text(out.type), out.name, expected, out.object);
  if (!out.path.starts_with('/') || !out.path.ends_with('/')) out.problem = "spec.path: it begins and ends with /";
  out.arn = identity_arn(object, site);
  std::string letters = hex(sha256(kube::uid_of(object))).substr(0, 17);
  std::transform(letters.begin(), letters.end(), letters.begin(), [](char c) { return static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c); });
  out.id = (user ? "AIDA" : "AROA") + letters;
  out.disabled = spec["disabled"].boolean();
  if (const Json& entry = spec["accessEntry"]; entry.is_object()) {
    out.access_entry.emplace(Identity::AccessEntry{entry["username"].string(), {}, groups_of_policies(entry["policies"])});
    for (const Json& group : entry["groups"].items()) out.access_entry->groups.push_back(group.string());
  }
  for (const Json& tag : spec["tags"].items()) out.tags.emplace_back(tag["key"].string(), tag["value"].string());
  out.longest_session = std::chrono::seconds(std::clamp<std::int64_t>(spec["maxSessionSeconds"].integer(3600), 900, 43200));
  std::vector<std::pair<std::string, const Json*>> documents;
  for (const Json& one : spec["policies"].items()) documents.emplace_back("policy " + one["name"].string(), &one["document"]);
  std::vector<iam::Document> attached;
  for (const Json& one : spec["attachedPolicies"].items()) {
    const std::string& arn = one.string();
    if (api::identities::is_aws_policy(arn)) {  // it allows nothing here
      out.aws_policies.push_back(arn.substr(arn.rfind('/') + 1));
      continue;
    }
    const auto policy = find ? find(arn) : nullptr;
    if (policy == nullptr || policy->policy == nullptr) {
      if (out.problem.empty()) out.problem = policy == nullptr ? fmt::format("spec.attachedPolicies: {} is not there", arn) : fmt::format("spec.attachedPolicies: {}: {}", arn, policy->problem);
      continue;
    }
    attached.push_back({"attached policy " + arn, *policy->policy});
  }
  out.policies = bundle(std::move(documents), iam::PolicyKind::Identity, out.problem, std::move(attached));
  if (!spec["permissionsBoundary"].is_null()) out.boundary = bundle({{"permissionsBoundary", &spec["permissionsBoundary"]}}, iam::PolicyKind::Identity, out.problem);
  if (!spec["trustPolicy"].is_null()) {
    if (user) out.problem = "spec.trustPolicy: a User is not assumed, only a Role is";
    else out.trust = bundle({{"trustPolicy", &spec["trustPolicy"]}}, iam::PolicyKind::Resource, out.problem);
  }
  return out;
}

std::optional<std::string> role_object(std::string_view arn, const Site& site) {
  if (!arn.starts_with(fmt::format("arn:aws:iam::{}:role/", site.account))) return std::nullopt;
  const std::string_view name = arn.substr(arn.rfind('/') + 1);
  return api::identities::is_name(name) ? std::optional(api::identities::object_name(api::identities::Type::Role, name)) : std::nullopt;
}

std::string session_arn(const Identity& role, const std::string& session, const Site& site) { return fmt::format("arn:aws:sts::{}:assumed-role/{}/{}", site.account, role.name, session); }

}  // namespace fairlead::hyperpod
