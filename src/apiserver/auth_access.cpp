// SPDX-License-Identifier: Apache-2.0
#include "apiserver/auth_access.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "apiserver/auth_impersonation.h"
#include "apiserver/kinds/resources.h"
#include "apiserver/rbac_kinds.h"
#include "apiserver/registry_bytes.h"
#include "apiserver/registry_names.h"
#include "base/encoding.h"
#include "base/log.h"
#include "base/rng.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr std::size_t verified_limit = 4096;

// The credentials of "Authorization: Bearer x"; empty: another scheme or none.
std::string_view bearer_of(const http::Headers& headers) {
  const std::string_view header = http::find(headers, "Authorization");
  constexpr std::string_view scheme = "bearer ";
  if (header.size() <= scheme.size()) return {};
  for (std::size_t i = 0; i < scheme.size(); ++i) {
    if ((header[i] | 0x20) != scheme[i]) return {};
  }
  return trim(header.substr(scheme.size()));
}

std::string quoted(const std::vector<std::string>& list) {
  std::string out = "[";
  for (const std::string& one : list) out.append(out.size() > 1 ? " " : "").append("\"").append(one).append("\"");
  return out + "]";
}

// What an aggregated role may come to hold: everything.
Rules everything() { return {{.verbs = {"*"}, .groups = {"*"}, .resources = {"*"}}, {.verbs = {"*"}, .urls = {"*"}}}; }

Json resource_rule(const Rule& rule) {
  Json out = Json::object();
  const auto list = [&](const char* name, const std::vector<std::string>& from) {
    if (!from.empty()) out.set(name, Json::array(std::vector<Json>(from.begin(), from.end())));
  };
  list("verbs", rule.verbs);
  if (!rule.urls.empty()) {
    list("nonResourceURLs", rule.urls);
    return out;
  }
  list("apiGroups", rule.groups), list("resources", rule.resources), list("resourceNames", rule.names);
  return out;
}

}  // namespace

Access::Access(Registry& registry, const Clock& clock, AccessOptions options) : registry_(registry), clock_(clock), options_(std::move(options)) {
  namespace r = rbac_resources;
  for (const kube::Resource* resource : {&r::cluster_roles, &r::roles, &r::cluster_role_bindings, &r::role_bindings}) {
    follow(*resource, [this, resource](kube::EventType type, const Object& object) { on_role(*resource, type, object); });
  }
  follow(kube::resources::pods, [this](kube::EventType type, const Object& object) { on_pod(type, object); });
}

Access::~Access() { subscriptions_.clear(); }

void Access::follow(const kube::Resource& resource, std::function<void(kube::EventType, const Object&)> sink) {
  const auto kind = registry_.kinds()->find(resource.group, resource.version, resource.plural);
  INVARIANT(kind);
  auto watching = registry_.watch(*kind, "", {.lines = false}, [sink = std::move(sink)](const RegistryEvent& event) {
    if (event.type != kube::EventType::Bookmark) sink(event.type, event.object);
  });
  INVARIANT(watching.has_value());  // a watch from now on cannot be refused
  subscriptions_.push_back(std::move(*watching));
}

void Access::on_role(const kube::Resource& resource, kube::EventType type, const Object& object) {
  const auto parsed = kube::parse_json(*object.bytes);
  INVARIANT(parsed.has_value());  // the registry wrote it
  const kube::ObjectKey key = kube::key_of(*parsed);
  const bool gone = type == kube::EventType::Deleted;
  const std::unique_lock lock(roles_mutex_);
  if (resource.kind.ends_with("Binding")) {
    if (gone) roles_.drop_binding(key.space, key.name);
    else roles_.set_binding(parse_binding(*parsed));
    return;
  }
  if (gone) roles_.drop_role(key.space, key.name);
  else roles_.set_role(key.space, key.name, parse_rules((*parsed)["rules"]));
}

void Access::on_pod(kube::EventType type, const Object& object) {
  // Most events of a pod are about its status, and a new one is rarely bound. Only single fields are read.
  if (!mentions(*object.bytes, "\"nodeName\":\"")) return;
  Peek peek(*object.bytes);
  const auto text = [&](const char* path) { return peek.field(path).value_or(""); };
  const std::string node = text("spec.nodeName");
  if (node.empty()) return;
  const kube::ObjectKey key{text("metadata.namespace"), text("metadata.name")};
  if (type == kube::EventType::Deleted) {
    const std::unique_lock lock(pods_mutex_);
    pods_.drop(key);
    return;
  }
  const std::string uid = text("metadata.uid");
  {
    const std::shared_lock lock(pods_mutex_);
    if (pods_.knows(key, uid)) return;
  }
  const std::unique_lock lock(pods_mutex_);
  pods_.put(key, node, uid);
}

std::optional<Json> Access::find(const kube::Resource& resource, const kube::ObjectKey& key) const {
  const auto kind = registry_.kinds()->find(resource.group, resource.version, resource.plural);
  if (!kind) return std::nullopt;
  const auto object = registry_.get(*kind, key);
  if (!object) return std::nullopt;
  auto parsed = kube::parse_json(*object->bytes);
  if (!parsed) return std::nullopt;
  return std::move(*parsed);
}

std::optional<Standing> Access::standing(const kube::Resource& resource, const kube::ObjectKey& key) const {
  const auto kind = registry_.kinds()->find(resource.group, resource.version, resource.plural);
  if (!kind) return std::nullopt;
  const auto object = registry_.get(*kind, key);
  if (!object) return std::nullopt;
  Peek peek(*object->bytes);
  const auto text = [&](const char* path) { return peek.field(path).value_or(""); };
  return Standing{text("metadata.uid"), text("metadata.deletionTimestamp")};
}

bool Access::pod_is_on(const std::string& space, const std::string& pod, const std::string& node) const {
  const auto kind = registry_.kinds()->find("", "v1", "pods");
  const auto object = registry_.get(*kind, {space, pod});
  // A pod that is gone: its agent may learn so (404) instead of being told that it must not ask.
  if (!object) return object.error().code == Code::NotFound;
  return Peek(*object->bytes).field("spec.nodeName").value_or("") == node;
}

bool Access::pod_there_uses(const std::string& node, const std::string& resource, const std::string& space, const std::string& name) const {
  if (resource == workloads::volumes.plural) {
    const auto volume = find(workloads::volumes, {"", name});
    const Json& claim = volume ? (*volume)["spec"]["claimRef"] : Json();
    return volume && claim.is_object() && pod_there_uses(node, kube::resources::claims.plural, claim["namespace"].string(), claim["name"].string());
  }
  const auto there = [&] {
    const std::shared_lock lock(pods_mutex_);
    return pods_.on(node, space);
  }();
  return std::any_of(there.begin(), there.end(), [&](const kube::ObjectKey& key) {
    const auto pod = find(kube::resources::pods, key);
    return pod && pod_uses(*pod, resource, name);
  });
}

Result<std::shared_ptr<const Json>> Access::verified_claims(std::string_view token, const std::string& hash) const {
  {
    const std::scoped_lock lock(claims_mutex_);
    if (const auto found = claims_.find(hash); found != claims_.end()) return found->second;
  }
  auto claims = options_.keys->verify(token);
  if (!claims) return std::unexpected(std::move(claims.error()));
  const auto kept = std::make_shared<const Json>(std::move(*claims));
  const std::scoped_lock lock(claims_mutex_);
  if (claims_.size() >= verified_limit) claims_.clear();
  claims_[hash] = kept;
  return kept;
}

Result<User> Access::authenticate_token(std::string_view token, std::vector<std::string>& audiences) const {
  const std::string hash = sha256(token);
  const TokenUser* known = nullptr;
  for (const TokenUser& one : options_.tokens) {  // all of them, each in constant time: the time says nothing about which one came close
    if (equal_in_constant_time(one.token_sha256, hash)) known = &one;
  }
  if (known != nullptr) {
    User user{.name = known->name, .groups = known->groups};
    if (!user.in(authenticated_group)) user.groups.emplace_back(authenticated_group);
    audiences.clear();
    return user;
  }
  const auto json = options_.keys ? verified_claims(token, hash) : Result<std::shared_ptr<const kube::Json>>(fail(Code::Unauthorized, "invalid bearer token"));
  if (!json) {
    if (!options_.foreign) return std::unexpected(json.error());
    auto user = options_.foreign(token);
    if (!user) return fail(Code::Unauthorized, json.error().message + "; " + user.error().message);
    // Whoever vouches for others makes no administrator, no node and no service account of this site.
    if (user->name.starts_with("system:") || std::any_of(user->groups.begin(), user->groups.end(), [](const std::string& group) { return group.starts_with("system:"); })) return fail(Code::Unauthorized, "a foreign token has names of the system");
    // Such a token is for this API and for nobody else's ears.
    if (!audiences.empty()) {
      std::erase_if(audiences, [&](const std::string& one) { return std::find(options_.site.audiences.begin(), options_.site.audiences.end(), one) == options_.site.audiences.end(); });
      if (audiences.empty()) return fail(Code::Unauthorized, "the token is for this API alone");
    }
    user->groups.emplace_back(authenticated_group);
    return user;
  }
  auto claims = read_claims(**json, options_.site, audiences, clock_.now());
  if (!claims) return std::unexpected(std::move(claims.error()));
  const auto stands = check_standing(*claims, [this](const kube::Resource& resource, const kube::ObjectKey& key) { return standing(resource, key); }, clock_.now());
  if (!stands) return std::unexpected(stands.error());
  audiences = claims->audiences;
  return user_of(*claims);
}

Result<Caller> Access::authenticate(const http::Request& request) const {
  Caller caller;
  if (!request.peer.common_name.empty()) {
    auto user = std::make_shared<User>(User{.name = request.peer.common_name, .groups = request.peer.organizations});
    if (!user->in(authenticated_group)) user->groups.emplace_back(authenticated_group);
    caller.user = std::move(user);
  } else {
    const std::string_view token = bearer_of(request.headers);
    if (token.empty()) return fail(Code::Unauthorized, "Unauthorized");
    std::vector<std::string> audiences;
    auto user = authenticate_token(token, audiences);
    if (!user) {
      log_debug("a bearer token was refused", {{"reason", user.error().message}});
      return fail(Code::Unauthorized, "Unauthorized");
    }
    caller.user = std::make_shared<const User>(std::move(*user));
  }
  auto wanted = parse_impersonation(request.headers);
  if (!wanted) return std::unexpected(std::move(wanted.error()));
  if (!*wanted) return caller;
  for (const Attributes& needed : (*wanted)->needed) {
    const Verdict verdict = authorize(*caller.user, needed);
    if (!verdict.allowed) return fail(Code::Forbidden, forbidden_message(*caller.user, needed, verdict));
  }
  caller.real = std::move(caller.user);
  caller.user = std::make_shared<const User>(std::move((*wanted)->user));
  return caller;
}

Verdict Access::authorize(const User& user, const Attributes& attributes, bool explain) const {
  if (user.in(masters_group)) return {true, ""};
  std::string node_reason;
  if (const std::string node = user.node(); !node.empty() && attributes.resource_request) {
    Verdict verdict = authorize_node(node, attributes, *this);
    if (verdict.allowed) return {true, ""};
    node_reason = std::move(verdict.reason);
  }
  const std::shared_lock lock(roles_mutex_);
  Verdict verdict = roles_.authorize(user, attributes, explain);
  if (!verdict.allowed && verdict.reason.empty()) verdict.reason = std::move(node_reason);
  return verdict;
}

Rules Access::rules_of_user(const User& user, const std::string& space) const {
  const std::shared_lock lock(roles_mutex_);
  return roles_.rules_for(user, space);
}

kube::Json Access::rules_review(const User& user, const std::string& space) const {
  std::vector<std::string> problems;
  const Rules rules = [&] {
    const std::shared_lock lock(roles_mutex_);
    return roles_.rules_for(user, space, &problems);
  }();
  Json resources = Json::array(), paths = Json::array();
  for (const Rule& rule : rules) (rule.urls.empty() ? resources : paths).push(resource_rule(rule));
  if (!user.node().empty()) problems.insert(problems.begin(), "node authorizer does not support user rule resolution");
  Json status = Json::object({{"incomplete", !problems.empty()}});
  status.set("resourceRules", std::move(resources)).set("nonResourceRules", std::move(paths));
  if (!problems.empty()) status.set("evaluationError", problems.size() == 1 ? problems.front() : fmt::format("[{}]", fmt::join(problems, ", ")));
  return status;
}

Result<void> Access::may_grant(const User& user, const kube::Resource& role, const kube::ObjectKey& key, const Json* old, const Json& next) const {
  if (user.in(masters_group)) return {};
  const bool aggregates = next["aggregationRule"].is_object();
  if (old != nullptr && (*old)["rules"] == next["rules"] && (*old)["aggregationRule"] == next["aggregationRule"]) return {};
  if (authorize(user, {.verb = "escalate", .group = role.group, .resource = role.plural, .space = key.space, .name = key.name}).allowed) return {};
  const Rules wanted = aggregates ? everything() : parse_rules(next["rules"]);
  const Rules missing = not_covered(rules_of_user(user, key.space), wanted);
  if (missing.empty()) return {};
  return forbidden(role, key.name, fmt::format("user \"{}\" (groups={}) is attempting to grant RBAC permissions not currently held:\n{}", user.name, quoted(user.groups), describe(missing)));
}

Result<void> Access::may_bind(const User& user, const Json& binding) const {
  if (user.in(masters_group)) return {};
  const kube::ObjectKey key = kube::key_of(binding);
  const kube::Resource& resource = key.space.empty() ? rbac_resources::cluster_role_bindings : rbac_resources::role_bindings;
  const RoleBinding parsed = parse_binding(binding);
  const kube::Resource& role = parsed.cluster_role ? rbac_resources::cluster_roles : rbac_resources::roles;
  if (authorize(user, {.verb = "bind", .group = std::string(rbac_group), .resource = role.plural, .space = key.space, .name = parsed.role}).allowed) return {};
  const auto rules = [&] {
    const std::shared_lock lock(roles_mutex_);
    return roles_.role(parsed.cluster_role, key.space, parsed.role);
  }();
  if (!rules) return not_found(resource, parsed.role);  // of the binding: Kubernetes says it so
  const Rules missing = not_covered(rules_of_user(user, key.space), *rules);
  if (missing.empty()) return {};
  return forbidden(resource, key.name, fmt::format("user \"{}\" (groups={}) is attempting to grant RBAC permissions not currently held:\n{}", user.name, quoted(user.groups), describe(missing)));
}

Result<kube::Json> Access::request_token(const Json& request, const kube::ObjectKey& account, const User& caller) const {
  if (!options_.keys) return fail(Code::Unsupported, "service accounts get no tokens here: the server was started without a key for them");
  auto plan = plan_token(request, account, caller, [this](const kube::Resource& resource, const kube::ObjectKey& key) { return find(resource, key); }, options_.site, clock_.now(), random_uuid());
  if (!plan) return std::unexpected(std::move(plan.error()));
  plan->answer.child("status").set("token", options_.keys->sign(plan->claims));
  return std::move(plan->answer);
}

}  // namespace fairlead::apiserver
