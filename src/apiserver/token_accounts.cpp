// SPDX-License-Identifier: Apache-2.0
#include "apiserver/token_accounts.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::apiserver {

using kube::Json;
namespace r = kube::resources;

namespace {

constexpr std::int64_t default_seconds = 3600, least_seconds = 600, most_seconds = std::int64_t{1} << 32;
// Clocks differ: what ended less than this ago still counts, as in Kubernetes.
constexpr auto leeway = std::chrono::seconds(60);

std::int64_t seconds_of(Instant time) { return std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count(); }
std::unexpected<Error> unauthorized(std::string why) { return fail(Code::Unauthorized, std::move(why)); }
std::unexpected<Error> not_found(const std::string& plural, const std::string& name) { return fail(Code::NotFound, fmt::format("{} \"{}\" not found", plural, name)); }
Json reference(const std::string& name, const std::string& uid) { return Json::object({{"name", name}, {"uid", uid}}); }

std::unexpected<Error> invalid(const std::string& name, const std::string& why) {
  return fail(Code::Invalid, fmt::format("TokenRequest.authentication.k8s.io \"{}\" is invalid: {}", name, why));
}

struct Bound {
  Json claim = Json::object();  // members of kubernetes.io
  std::string uid;
};

Result<Bound> bind_to(const Json& target, const kube::ObjectKey& account, const FindObject& find) {
  const std::string &kind = target["kind"].string(), &name = target["name"].string();
  Bound out;
  if (target["apiVersion"].string() != "v1" || (kind != "Pod" && kind != "Secret" && kind != "Node"))
    return fail(Code::Invalid, fmt::format("cannot bind token to object of type {}, Kind={}", target["apiVersion"].string(), kind));
  if (kind == "Pod") {
    const auto pod = find(r::pods, {account.space, name});
    if (!pod) return not_found("pods", name);
    if ((*pod)["spec"]["serviceAccountName"].string_or("default") != account.name)
      return fail(Code::Invalid, fmt::format("cannot bind token for serviceaccount \"{}\" to pod running with different serviceaccount name.", account.name));
    out.uid = kube::uid_of(*pod);
    out.claim.set("pod", reference(name, out.uid));
    if (const std::string& on = (*pod)["spec"]["nodeName"].string(); !on.empty()) {
      const auto node = find(r::nodes, {"", on});
      Json there = Json::object({{"name", on}});
      if (node) there.set("uid", kube::uid_of(*node));
      out.claim.set("node", std::move(there));
    }
    return out;
  }
  const bool node = kind == "Node";
  const auto object = find(node ? r::nodes : r::secrets, {node ? "" : account.space, name});
  if (!object) return not_found(node ? "nodes" : "secrets", name);
  out.uid = kube::uid_of(*object);
  out.claim.set(node ? "node" : "secret", reference(name, out.uid));
  return out;
}

Result<void> check_node_request(const std::string& node, const Json& target, const kube::ObjectKey& account, const FindObject& find) {
  const auto refuse = [&](std::string why) { return fail(Code::Forbidden, fmt::format("serviceaccounts \"{}\" is forbidden: {}", account.name, why)); };
  if (target["apiVersion"].string() != "v1" || target["kind"].string() != "Pod" || target["name"].string().empty()) return refuse("node requested token not bound to a pod");
  const std::string &name = target["name"].string(), &uid = target["uid"].string();
  if (uid.empty()) return refuse("node requested token with a pod binding without a uid");
  const auto pod = find(r::pods, {account.space, name});
  if (!pod) return not_found("pods", name);
  if (kube::uid_of(*pod) != uid) return refuse(fmt::format("the UID in the bound object reference ({}) does not match the UID in record. The object might have been deleted and then recreated", uid));
  if ((*pod)["spec"]["nodeName"].string() != node) return refuse("node requested token bound to a pod scheduled on a different node");
  return {};
}

std::optional<NamedUid> named(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  return NamedUid{json["name"].string(), json["uid"].string()};
}

std::vector<std::string> audiences_of(const Json& claim) {
  if (claim.is_string()) return {claim.string()};
  std::vector<std::string> out;
  for (const Json& one : claim.items()) out.push_back(one.string());
  return out;
}

Result<void> stands(const char* what, const kube::Resource& resource, const kube::ObjectKey& key, const std::string& uid, const FindStanding& find, Instant now) {
  const auto found = find(resource, key);
  if (!found) return unauthorized("service account token has been invalidated");
  if (found->uid != uid) return unauthorized(fmt::format("{} UID ({}) does not match claim ({})", what, found->uid, uid));
  if (found->deleted.empty()) return {};
  const auto when = parse_time(found->deleted);
  if (when && *when < now - leeway) return unauthorized("service account token has been invalidated");
  return {};
}

}  // namespace

Result<TokenPlan> plan_token(const Json& request, const kube::ObjectKey& account, const User& caller, const FindObject& find, const TokenSite& site, Instant now, const std::string& id) {
  const auto object = find(r::service_accounts, account);
  if (!object) return not_found("serviceaccounts", account.name);
  const Json& spec = request["spec"];
  const Json& metadata = request["metadata"];
  if (const std::string& name = metadata["name"].string(); !name.empty() && name != account.name)
    return invalid(account.name, fmt::format("metadata.name: Invalid value: \"{}\": must match the service account name if specified", name));
  if (const std::string& space = metadata["namespace"].string(); !space.empty() && space != account.space)
    return invalid(account.name, fmt::format("metadata.namespace: Invalid value: \"{}\": must match the service account namespace if specified", space));
  const std::int64_t seconds = spec["expirationSeconds"].is_null() ? default_seconds : spec["expirationSeconds"].integer();
  if (seconds < least_seconds) return invalid("", fmt::format("spec.expirationSeconds: Invalid value: {}: may not specify a duration less than 10 minutes", seconds));
  if (seconds > most_seconds) return invalid("", fmt::format("spec.expirationSeconds: Invalid value: {}: may not specify a duration larger than 2^32 seconds", seconds));
  const Json& target = spec["boundObjectRef"];
  if (const std::string node = caller.node(); !node.empty()) {
    if (auto done = check_node_request(node, target, account, find); !done) return std::unexpected(std::move(done.error()));
  }
  Bound bound;
  if (target.is_object()) {
    auto made = bind_to(target, account, find);
    if (!made) return std::unexpected(std::move(made.error()));
    bound = std::move(*made);
    if (const std::string& uid = target["uid"].string(); !uid.empty() && uid != bound.uid)
      return fail(Code::Conflict, fmt::format("Operation cannot be fulfilled on {} \"{}\": the UID in the bound object reference ({}) does not match the UID in record. The object might have been "
                                              "deleted and then recreated", target["kind"].string(), target["name"].string(), uid));
  }
  std::vector<std::string> audiences = audiences_of(spec["audiences"]);
  if (audiences.empty()) audiences = site.audiences;

  TokenPlan plan;
  const std::int64_t begin = seconds_of(now);
  const Json audience_list = Json::array(std::vector<Json>(audiences.begin(), audiences.end()));
  Json details = std::move(bound.claim);
  details.set("namespace", account.space).set("serviceaccount", reference(account.name, kube::uid_of(*object)));
  plan.claims = Json::object({{"aud", audience_list}, {"exp", begin + seconds}, {"iat", begin}, {"iss", site.issuer}, {"jti", id}});
  plan.claims.set("kubernetes.io", std::move(details)).set("nbf", begin).set("sub", service_account_user(account));

  plan.answer = Json::object({{"kind", "TokenRequest"}, {"apiVersion", "authentication.k8s.io/v1"}});
  plan.answer.set("metadata", Json::object({{"name", account.name}, {"namespace", account.space}, {"creationTimestamp", print_time(now)}}));
  Json answered = Json::object({{"audiences", audience_list}, {"expirationSeconds", seconds}});
  answered.set("boundObjectRef", target);
  plan.answer.set("spec", std::move(answered));
  plan.answer.set("status", Json::object({{"expirationTimestamp", print_time(Instant(std::chrono::seconds(begin + seconds)))}}));
  return plan;
}

Result<AccountClaims> read_claims(const Json& claims, const TokenSite& site, const std::vector<std::string>& audiences, Instant now) {
  if (claims["iss"].string() != site.issuer) return unauthorized("the token was issued by somebody else");
  if (!claims["exp"].is_number()) return unauthorized("the token never ends: it is not taken");
  const std::int64_t time = seconds_of(now), slack = leeway.count();
  if (claims["exp"].number() + static_cast<double>(slack) < static_cast<double>(time)) return unauthorized("service account token has expired");
  for (const char* begin : {"nbf", "iat"}) {
    if (claims[begin].number() - static_cast<double>(slack) > static_cast<double>(time)) return unauthorized("service account token is not valid yet");
  }
  AccountClaims out;
  const Json& details = claims["kubernetes.io"];
  out.space = details["namespace"].string();
  out.account = {details["serviceaccount"]["name"].string(), details["serviceaccount"]["uid"].string()};
  out.pod = named(details["pod"]), out.secret = named(details["secret"]), out.node = named(details["node"]);
  out.id = claims["jti"].string();
  if (out.space.empty() || out.account.name.empty() || out.account.uid.empty() || claims["sub"].string() != service_account_user({out.space, out.account.name}))
    return unauthorized("the token names no service account");
  const std::vector<std::string>& wanted = audiences.empty() ? site.audiences : audiences;
  for (std::string& audience : audiences_of(claims["aud"])) {
    if (std::find(wanted.begin(), wanted.end(), audience) != wanted.end()) out.audiences.push_back(std::move(audience));
  }
  if (out.audiences.empty()) return unauthorized("the token is for another audience");
  return out;
}

Result<void> check_standing(const AccountClaims& claims, const FindStanding& find, Instant now) {
  if (auto done = stands("service account", r::service_accounts, {claims.space, claims.account.name}, claims.account.uid, find, now); !done) return done;
  if (claims.secret) {
    if (auto done = stands("secret", r::secrets, {claims.space, claims.secret->name}, claims.secret->uid, find, now); !done) return done;
  }
  if (claims.pod) return stands("pod", r::pods, {claims.space, claims.pod->name}, claims.pod->uid, find, now);
  if (claims.node) return stands("node", r::nodes, {"", claims.node->name}, claims.node->uid, find, now);
  return {};
}

User user_of(const AccountClaims& claims) {
  User user{.name = service_account_user({claims.space, claims.account.name}), .groups = service_account_groups(claims.space), .uid = claims.account.uid};
  user.groups.emplace_back(authenticated_group);
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) user.extra.emplace_back(std::string("authentication.kubernetes.io/") + key, std::vector<std::string>{value});
  };
  if (!claims.id.empty()) add("credential-id", "JTI=" + claims.id);
  if (claims.node) add("node-name", claims.node->name), add("node-uid", claims.node->uid);
  if (claims.pod) add("pod-name", claims.pod->name), add("pod-uid", claims.pod->uid);
  return user;
}

}  // namespace fairlead::apiserver
